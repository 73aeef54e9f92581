"""The captions of figures: what a figure shows, the task and the seeds as labels, and what its marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.errors import counted

BAND = "Lines: median over seeds; bands: from the lowest to the highest seed."
BASELINE_WORDS = "Grey dashes: the baseline."
MOST_NAMED = 8
"""The most variants that a caption names."""


@dataclass(frozen=True)
class Caption:
    """What stands below a figure.

    Attributes:
        what: what the figure shows, written by hand.
        facts: labels, such as the task, its settings, and the seeds of each model.
        notes: sentences on the lines and marks, written by hand.
    """

    what: str
    facts: Sequence[str] = ()
    notes: Sequence[str] = ()

    def also(self, facts: Sequence[str] = (), notes: Sequence[str] = ()) -> Caption:
        """Return the caption with further facts and notes."""
        return replace(self, facts=(*self.facts, *facts), notes=(*self.notes, *notes))


def caption(what: str, name: str, condition: Condition, has_bands: bool = True) -> Caption:
    """Return the caption of a paper's figure: its name, the task, T, the batch size, and n and the seeds of the models.

    Args:
        has_bands: whether the figure has lines over seeds.
    """
    return (brief(what, condition) if has_bands else Caption(what)).also(facts_of(name, condition))


def facts_of(name: str, condition: Condition) -> list[str]:
    """Return the facts of `caption`."""
    return [capitalized(name), *where(condition), *_sizes_and_seeds(condition)]


def brief(what: str, condition: Condition) -> Caption:
    """Return a figure's caption below a heading that names the condition, next to the table of its variants."""
    return Caption(what, notes=[BAND] if any(len(variant.runs) > 1 for variant in condition.variants) else [])


def capitalized(text: str) -> str:
    """Return a text with a capital first letter; unlike `str.capitalize` it keeps the capitals of names, as in MSE."""
    return text[:1].upper() + text[1:]


def where(condition: Condition) -> list[str]:
    """Return the task with its length and order of pixels, and the batch size: "adding, T = 750", "batches of 50"."""
    title = condition.title
    if condition.settings.get("permuted"):
        title = f"permuted {title}"
    if condition.settings.get("noise_padded"):
        title = f"noise-padded {title}"
    parts = [title]
    if rows := condition.settings.get("last_rows"):  # left out of the record of whole images
        parts.append(f"the last {rows} rows")
    sizes = {variant.run.spec["training"].get("batch_size") for variant in condition.variants} - {None}
    return [*parts, f"batches of {' and '.join(map(str, sorted(sizes)))}"] if sizes else parts


def _sizes_and_seeds(condition: Condition) -> list[str]:
    """Return each variant's hidden size and seeds, once if they are the same for several models.

    None for many variants, which the tables list.
    """
    variants = [variant for variant in condition.variants if not variant.run.is_trial] or condition.variants
    if len(variants) > MOST_NAMED:
        return []
    sizes, seeds = list(map(_size, variants)), list(map(_seeds, variants))
    if len(variants) > 1 and len({*sizes}) == 1 and len({*seeds}) == 1:
        return [*filter(None, sizes[:1]), f"{seeds[0]} each"]
    return [
        f"{_with_size(variant.label, size)}: {own}" for variant, size, own in zip(variants, sizes, seeds, strict=True)
    ]


def _size(variant: VariantData) -> str:
    size = variant.run.spec["model_settings"].get("hidden_size")
    return "" if size is None else f"n = {size}"


def _with_size(label: str, size: str) -> str:
    return ", ".join(filter(None, (label, "" if "n = " in label else size)))


def _seeds(variant: VariantData) -> str:
    done, runs = len(variant.finished), len(variant.runs)
    seeds = counted(runs, "seed")
    return seeds if done == runs else f"{done} of {seeds} finished"
