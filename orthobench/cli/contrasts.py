"""Describe the comparison of two selections of runs as a record or in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


def contrast_record(contrast: Contrast, p: float | None, value: str) -> dict[str, Any]:
    """Return a comparison as JSON values."""
    result = contrast.result
    record: dict[str, Any] = {
        "first": contrast.first.text,
        "second": contrast.second.text,
        "runs": [[run.key for run in side.runs] for side in (contrast.first, contrast.second)],
        "settings": contrast.settings,
        "environment": contrast.environment,
        "metric": contrast.metric,
        "value": value,
        "statuses": contrast.counts,
        "medians": [side and {"value": side.value, "interval": [side.low, side.high]} for side in contrast.medians],
        "paired": contrast.paired,
        "caution": contrast.caution or None,
    }
    if result:
        record["result"] = {
            "n": result.n,
            "difference": result.difference.mean if result.difference else None,
            "half_width": result.difference.half_width if result.difference else None,
            "test": result.test,
            "p": result.p,
            "p_holm": p,
            "smallest_p": result.smallest_p,
            "first_lower": result.first_lower,
            "words": result.words or None,
        }
    return record


def shown(values: Sequence[Any]) -> str:
    """Return the values of one side of a difference as text."""
    return ", ".join(map(_shown, values))


def _shown(value: Any) -> str:
    from orthobench.settings import text

    if value is None:
        return "–"
    if isinstance(value, list):
        return text([_shown(entry) for entry in value])
    if isinstance(value, dict):
        plugin = value.get("path") or value.get("distribution")  # in an environment, with the hashes of its files
        return f"{plugin} {value.get('revision')}" if plugin else str(value)
    return text(value)


def result_lines(contrast: Contrast, p: float | None, value: str) -> list[str]:
    """Describe the result of a comparison in words."""
    from orthobench.cli.records import cell

    result = contrast.result
    if result is None:
        return ["too few finished or diverged runs to compare: give 6 seeds"]
    pairs = f"{result.n[0]} common seeds" if contrast.paired else f"{result.n[0]} and {result.n[1]} runs, not paired"
    return [
        f"{contrast.metric}, {value}: {pairs}; difference of the means of finished runs "
        + (f"{result.difference} (95 % interval)" if result.difference else "–"),
        f"{result.test}: p = {cell(result.p)}"
        + (f", by Holm over all comparisons {cell(p)}" if p is not None else "")
        + f"; smallest possible p {cell(result.smallest_p)}",
        f"the first is lower in {result.first_lower:.0%} of the pairs of runs; a diverged run is the worst",
        *(text for text in (result.words, contrast.caution) if text),
    ]
