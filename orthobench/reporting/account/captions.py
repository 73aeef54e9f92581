"""The captions of figures: the task, its settings, the models' sizes and seeds, the band and the baseline."""

from __future__ import annotations

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.errors import counted

BAND = "Lines: median over seeds; bands: from the lowest to the highest seed."
BASELINE_WORDS = "Grey dashes: the baseline."
MOST_NAMED = 8
"""The most variants that a caption names."""


def caption(what: str, condition: Condition, baseline: bool = False, band: str = BAND) -> str:
    """Return a figure's caption: its content, the task, T, the batch size, n and the seeds, the band and the baseline.

    Args:
        baseline: whether to explain the dashed line, if there is one.
        band: the meaning of lines and bands; empty if the figure has none.
    """
    parts = [f"{what}: {where(condition)}.", sizes_and_seeds(condition)]
    if band and any(len(variant.runs) > 1 for variant in condition.variants):
        parts.append(band)
    if baseline and condition.baseline is not None:
        parts.append(BASELINE_WORDS)
    return " ".join(filter(None, parts))


def brief(what: str, condition: Condition) -> str:
    """Return a figure's caption below a heading that names the condition, next to the table of its variants."""
    return f"{what}. {BAND}" if any(len(variant.runs) > 1 for variant in condition.variants) else f"{what}."


def capitalized(text: str) -> str:
    """Return a text with a capital first letter; unlike `str.capitalize` it keeps the capitals of names, as in MSE."""
    return text[:1].upper() + text[1:]


def where(condition: Condition) -> str:
    """Return the task with its length, order of pixels and batch size, such as "adding, T = 750, batches of 50"."""
    parts = [condition.title]
    if condition.settings.get("permuted"):
        parts[0] = f"permuted {parts[0]}"
    if condition.settings.get("noise_padded"):
        parts[0] = f"noise-padded {parts[0]}"
    if rows := condition.settings.get("last_rows"):  # left out of the record of whole images
        parts.append(f"the last {rows} rows")
    batches = sorted({size for variant in condition.variants if (size := _batch(variant)) is not None})
    if batches:
        parts.append(f"batches of {' and '.join(map(str, batches))}")
    return ", ".join(parts)


def sizes_and_seeds(condition: Condition) -> str:
    """Return each variant's hidden size and seeds; "" for many variants, which the tables list."""
    variants = [variant for variant in condition.variants if not variant.run.is_trial] or condition.variants
    return "; ".join(map(_described, variants)) + "." if 0 < len(variants) <= MOST_NAMED else ""


def _described(variant: VariantData) -> str:
    size = _size(variant)
    label = variant.label if size is None or "n = " in variant.label else f"{variant.label}, n = {size}"
    done, runs = len(variant.finished), len(variant.runs)
    seeds = counted(runs, "seed")
    return f"{label}: {seeds}" if done == runs else f"{label}: {done} of {seeds} finished"


def _size(variant: VariantData) -> int | None:
    size: int | None = variant.run.spec["model_settings"].get("hidden_size")
    return size


def _batch(variant: VariantData) -> int | None:
    size: int | None = variant.run.spec["training"].get("batch_size")
    return size
