"""Tables with the columns that the user chooses, in which the best values are bold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.statistics import Median, Summary, summarize
from orthobench.metric import Metric
from orthobench.reporting.page.names import distinguishing_values, full_title
from orthobench.reporting.tables.paper_table import (
    Sheet,
    median_columns,
    number_columns,
    ranked,
    seeds_of,
    shown_median,
)
from orthobench.settings import SHORT_NAMES, merged_settings, text, unknown_setting

DEFAULT = ("model", "parameters", "seeds", "median", "best")
"""The columns of a table whose best values are bold, if the user chooses none."""
FACTS: dict[str, Callable[[VariantData], Any]] = {
    "model": lambda variant: variant.label,
    "parameters": lambda variant: variant.run.parameter_count,
    "seeds": seeds_of,
    "diverged": lambda variant: variant.diverged,
    "solved": lambda variant: variant.solved and f"{variant.solved.reached} of {variant.solved.seeds}",
    "seconds_per_epoch": lambda variant: variant.seconds_per_epoch,
    "backends": lambda variant: "; ".join(variant.backends),
    "tags": lambda variant: ", ".join(variant.tags),
}
RESULTS: dict[str, Callable[[VariantData], Summary | Median | None]] = {
    "median": lambda variant: variant.median,
    "end": lambda variant: variant.end,
    "final": lambda variant: variant.final,
    "best": lambda variant: variant.best,
}
"""The columns of the task's main metric."""


def chosen_sheets(conditions: Sequence[Condition], columns: Sequence[str], bold_best: bool) -> list[Sheet]:
    """Return a table of the variants of each condition, the best first by the first column of a metric with a goal.

    A value that leaves out diverged seeds says so. It stands below the others, and is never bold.

    Args:
        columns: names in `FACTS` and `RESULTS`, metrics, and settings; none: `DEFAULT`. A table leaves out metrics and
            settings that none of its runs have.
        bold_best: mark the best value of each column of a metric that has a goal.

    Raises:
        UsageError: no table has a column of this name; the message has the nearest ones.
    """
    columns = [SHORT_NAMES.get(name, name) for name in columns or DEFAULT]
    known = {name for condition in conditions for name in _names(condition)}
    for name in columns:
        if name not in known:
            raise unknown_setting("column", name, known)
    return [_sheet(condition, conditions, columns, bold_best) for condition in conditions]


def _names(condition: Condition) -> Iterable[str]:
    yield from (*FACTS, *RESULTS)
    for variant in condition.variants:
        yield from merged_settings(variant.run.spec)
        yield from (name for split, name in variant.metrics if split in ("test", "probe"))


def _sheet(condition: Condition, among: Sequence[Condition], columns: Sequence[str], bold_best: bool) -> Sheet:
    own = set(_names(condition))
    names = [name for name in columns if name in own]
    variants, _ = ranked(condition)
    if goals := [name for name in names if _metric(condition, name) is not None]:
        variants.sort(key=lambda variant: _order(condition, variant, goals[0]))
    rows = [[_value(variant, name) for name in names] for variant in variants]
    place = {f"task_{name}": value for name, value in distinguishing_values(condition, among).items()}
    records = [
        {"task": condition.task, "condition": condition.key, **place}
        | {key: each for name, value in zip(names, row, strict=True) for key, each in _record(name, value).items()}
        for row in rows
    ]
    bold = set()
    for column, name in enumerate(names):
        metric = _metric(condition, name)
        values = [
            math.nan if _lacks_seeds(variant, row[column]) else _number(row[column])
            for variant, row in zip(variants, rows, strict=True)
        ]
        if bold_best and metric is not None and any(map(math.isfinite, values)):
            best = min(filter(math.isfinite, values), key=lambda value: metric.sign * value)
            bold |= {(number, column) for number, value in enumerate(values) if value == best}
    header = [_heading(condition, name, [row[column] for row in rows]) for column, name in enumerate(names)]
    shown = [
        [_cell(condition, variant, name, value) for name, value in zip(names, row, strict=True)]
        for variant, row in zip(variants, rows, strict=True)
    ]
    return Sheet(full_title(condition, among), records, header, shown, bold=bold)


def _lacks_seeds(variant: VariantData, value: Any) -> bool:
    """Return whether a variant's value is of the seeds alone that did not diverge."""
    return bool(variant.diverged) and not isinstance(value, Median)


def _order(condition: Condition, variant: VariantData, name: str) -> tuple[bool, bool, float]:
    """Return the place of a variant by its value in the column of a metric."""
    metric, value = _metric(condition, name), _value(variant, name)
    assert metric is not None
    number = _number(value)
    return math.isnan(number), _lacks_seeds(variant, value), metric.sign * number


def _cell(condition: Condition, variant: VariantData, name: str, value: Any) -> str:
    """Return a value as text; of a metric with the number of diverged seeds if it leaves them out."""
    if _metric(condition, name) is None or not _lacks_seeds(variant, value):
        return _shown(value)
    diverged = f"{variant.diverged} of {len(variant.runs)} diverged"
    return diverged if value is None else f"{_shown(value)} ({diverged})"


def _value(variant: VariantData, name: str) -> Any:
    """Return the value of a variant in a column: a summary over seeds, a setting's value, a number, a text, or None."""
    if name in FACTS or name in RESULTS:
        return (FACTS.get(name) or RESULTS[name])(variant)
    settings = merged_settings(variant.run.spec)
    if name in settings:
        return settings[name]
    for split in ("test", "probe"):
        if ends := variant.ends_of(split, name):
            declared = variant.run.declared(name)
            values = [end.value for end in ends.values()]
            return summarize(values, bounds=declared.bounds(values) if declared else (-math.inf, math.inf))
    return None


def _metric(condition: Condition, name: str) -> Metric | None:
    """Return the metric that a column shows; None for other columns, and for the values of probes."""
    if name in RESULTS:
        return condition.metric
    return condition.variants[0].run.declared(name)


def _heading(condition: Condition, name: str, values: Iterable[Any]) -> str:
    metric = _metric(condition, name)
    words = f"{metric.axis}, {name}" if metric and name in RESULTS else metric.axis if metric else name
    has_interval = any("[" in _shown(value) for value in values if isinstance(value, (Summary, Median)))
    return f"{words} [95 %]" if has_interval else words


def _number(value: Any) -> float:
    if isinstance(value, Summary):
        return value.mean
    return value.value if isinstance(value, Median) else math.nan


def _shown(value: Any) -> str:
    if isinstance(value, Median):
        return shown_median(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value) if isinstance(value, Summary) else "–" if value is None else text(value)


def _record(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Median):
        return median_columns(name, value)
    return number_columns(name, value) if isinstance(value, Summary) else {name: value}
