"""Tables of the variants under a condition, with the columns that the user chooses, in which the best may be bold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.statistics import Median, Summary
from orthobench.analysis.variants import CHOSEN_TESTS, Variant, are_in_cpu_time, chosen_tests
from orthobench.metric import Metric
from orthobench.reporting.account.leaderboards import best_first, fullest_first, leaderboard
from orthobench.reporting.account.names import distinguishing_values, full_title
from orthobench.reporting.tables.table import Table, shown_median
from orthobench.settings import SHORT_NAMES, merged_settings, text, unknown_setting

RESULTS: dict[str, Callable[[VariantData], Median | None]] = {
    "end": lambda variant: variant.median,
    "final": lambda variant: variant.final,
    "best": lambda variant: variant.best,
    "at_best_validation": lambda variant: variant.at_best_validation,
}
"""The columns of the task's main metric: medians over seeds, in which a diverged run is the worst."""
FACTS: dict[str, Callable[[VariantData], Any]] = {
    "model": lambda variant: variant.run.model,
    "variant": lambda variant: variant.label,
    "parameters": lambda variant: variant.run.parameter_count,
    "metric": lambda variant: variant.run.main_metric.name,
    "seeds": lambda variant: len(variant.finished),
    "diverged": lambda variant: variant.diverged,
    **RESULTS,
    "better_than_baseline": lambda variant: variant.against_baseline and variant.against_baseline.reached,
    "tests_not_better_than_baseline": lambda variant: (
        variant.against_baseline and variant.against_baseline.tests_beyond
    ),
    "solved": lambda variant: variant.solved and variant.solved.reached,
    "seconds_per_epoch": lambda variant: variant.seconds_per_epoch,
    "timed_on": lambda variant: variant.timed_on,
    "backends": lambda variant: "; ".join(variant.backends),
    "tags": lambda variant: ", ".join(variant.tags),
}
"""The columns of every table, for programs."""
WORDS: dict[str, Callable[[VariantData], str]] = {
    "model": lambda variant: variant.label,
    "seeds": lambda variant: seeds_of(variant),
    "better_than_baseline": lambda variant: str(variant.against_baseline or ""),
    "solved": lambda variant: f"{variant.solved.reached} of {variant.solved.seeds}" if variant.solved else "",
}
"""The columns in which readers see other words than programs."""
PRINTED = ("model", "parameters", "seeds", "end")
"""The columns for LaTeX and with bold values, if the user chooses none; they fit into a column of a paper."""


def condition_tables(
    conditions: Sequence[Condition], columns: Sequence[str] = (), bold_best: bool = False, for_print: bool = False
) -> list[Table]:
    """Return a table for each condition, of each task the fullest first (`fullest_first`).

    In a table the best variants are first, by the first column of a metric with a goal.

    Args:
        columns: names of `FACTS`, metrics, and settings; none: all, or `PRINTED`. A table leaves out metrics and
            settings that none of its runs have.
        bold_best: mark the best value of each column of a metric that has a goal.
        for_print: leave out the variants without a finished or diverged run.

    Raises:
        UsageError: no table has a column of this name; the message has the nearest ones.
    """
    columns = [SHORT_NAMES.get(name, name) for name in columns]
    known = {name for condition in conditions for name in _names(condition)}
    for name in columns:
        if name not in known:
            raise unknown_setting("column", name, known)
    chosen = columns or (PRINTED if bold_best or for_print else ())
    return [
        condition_table(condition, conditions, chosen, bold_best, for_print) for condition in fullest_first(conditions)
    ]


def condition_table(
    condition: Condition,
    among: Sequence[Condition],
    columns: Sequence[str] = (),
    bold_best: bool = False,
    for_print: bool = False,
) -> Table:
    """Return the table of one condition, as for `condition_tables`.

    Args:
        among: the conditions of all tables; if several have the same title, titles and rows say how they differ.
    """
    variants = [variant for variant in best_first(condition).variants if not variant.run.is_trial]
    if for_print:
        variants = [variant for variant in variants if variant.finished or variant.diverged]
    own = set(_names(condition)) - (CHOSEN_TESTS.keys() - chosen_tests(condition.variants))
    names = [name for name in columns if name in own]
    if goals := [name for name in names if _metric(condition, name) is not None]:
        variants.sort(key=lambda variant: _order(condition, variant, goals[0]))
    ranks = {row.variant.label: row.rank for row in leaderboard(condition)}

    def values(name: str) -> list[Any]:
        return [ranks.get(variant.label) if name == "rank" else _value(variant, name) for variant in variants]

    place = {f"task_{name}": value for name, value in distinguishing_values(condition, among).items()}
    frame = {"task": condition.task, "condition": condition.key, **place}
    for name in names or ("rank", *FACTS):
        frame |= _plain(name, values(name))
    names = names or _readable(condition, variants)
    texts = {name: [*map(WORDS[name], variants)] if name in WORDS else [*map(_shown, values(name))] for name in names}
    headings = [_heading(condition, name, variants, values(name)) for name in names]
    bold = set()
    for column, name in enumerate(names if bold_best else ()):
        if metric := _metric(condition, name):
            bold |= {(row, column) for row in _best(metric, values(name))}
    return Table(
        full_title(condition, among),
        pd.DataFrame(list(zip(*texts.values(), strict=True)), columns=headings, dtype=object),
        pd.DataFrame(frame, index=range(len(variants)), dtype=object),
        bold,
    )


def _names(condition: Condition) -> Iterable[str]:
    yield from ("rank", *FACTS)
    for variant in condition.variants:
        yield from merged_settings(variant.run.spec)
        yield from (name for split, name in variant.metrics if split in ("test", "probe"))


def _readable(condition: Condition, variants: Sequence[VariantData]) -> list[str]:
    """Return the columns that readers see by default: those that tell the variants of a table something."""
    optional = {name: any(map(WORDS[name], variants)) for name in ("better_than_baseline", "solved")} | {
        "timed_on": len({machine for variant in variants if (machine := variant.timed_on)}) > 1,
        "backends": any(variant.backend_note for variant in variants),
        "tags": any(variant.tags for variant in variants),
    }
    names = ["rank", "model", "parameters", "end", "final", *chosen_tests(variants), "seeds", "better_than_baseline"]
    names += ["solved", "seconds_per_epoch", "timed_on", "backends", "tags"]
    return [name for name in names if optional.get(name, True)]


def _value(variant: VariantData, name: str) -> Any:
    """Return the value of a variant in a column: a summary over seeds, a setting's value, a number, a text, or None."""
    if name in FACTS:
        return FACTS[name](variant)
    settings = merged_settings(variant.run.spec)
    if name in settings:
        return settings[name]
    for split in ("test", "probe"):
        if (split, name) in variant.metrics:
            return variant.median_of(split, name)
    return None


def _metric(condition: Condition, name: str) -> Metric | None:
    """Return the metric that a column shows; None for other columns, and for the values of probes."""
    return condition.metric if name in RESULTS else condition.variants[0].run.declared(name)


def _order(condition: Condition, variant: VariantData, name: str) -> tuple[bool, float]:
    """Return the place of a variant by its value in the column of a metric."""
    metric, number = _metric(condition, name), _number(_value(variant, name))
    assert metric is not None
    return math.isnan(number), metric.sign * number


def _number(value: Any) -> float:
    if isinstance(value, Summary):
        return value.mean
    return value.value if isinstance(value, Median) else math.nan


def _best(metric: Metric, values: Sequence[Any]) -> list[int]:
    """Return the rows with the best value of a column."""
    numbers = [*map(_number, values)]
    best = min(filter(math.isfinite, numbers), key=lambda number: metric.sign * number, default=math.nan)
    return [row for row, number in enumerate(numbers) if number == best]


def _heading(condition: Condition, name: str, variants: Sequence[VariantData], values: Sequence[Any]) -> str:
    if name == "seconds_per_epoch":
        return seconds_heading(variants)
    metric = _metric(condition, name)
    words = (
        metric.axis
        if metric
        else {"backends": "back ends"}.get(name, name.replace("_", " ") if name in FACTS else name)
    )
    if name in RESULTS:
        words += f", {name.replace('_', ' ')}"
    words += ": median" * any(isinstance(value, Median) for value in values)
    has_interval = any("[" in _shown(value) for value in values if isinstance(value, (Summary, Median)))
    return f"{words} [95 %]" if has_interval else words


def _shown(value: Any) -> str:
    if isinstance(value, Median):
        return shown_median(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value) if isinstance(value, Summary) else "–" if value is None else text(value)


def _plain(name: str, values: Sequence[Any]) -> Mapping[str, list[Any]]:
    """Return the columns of values for programs: a median or mean with an interval has three."""
    if name in RESULTS or any(isinstance(value, Median) for value in values):
        name, middle = f"{name}_median", "value"
    elif name == "seconds_per_epoch" or any(isinstance(value, Summary) for value in values):
        middle = "mean"
    else:
        return {name: list(values)}
    parts = {name: middle, f"{name}_low": "low", f"{name}_high": "high"}
    return {part: [getattr(value, attribute, None) for value in values] for part, attribute in parts.items()}


def seconds_heading(variants: Sequence[Variant]) -> str:
    """Return the heading of the seconds of an epoch, which names the clock if it is CPU time for all variants."""
    return f"{'CPU ' * are_in_cpu_time(variants)}s / epoch [95 %]"


def seeds_of(variant: Variant) -> str:
    """Return in words how many of the runs are finished and how many diverged."""
    text = f"{len(variant.finished)} of {len(variant.runs)}"
    return f"{text}, {variant.diverged} diverged" if variant.diverged else text
