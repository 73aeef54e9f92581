"""Runs as plain records, and functions that print tables and JSON."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from orthobench.settings import text
from orthobench.store import Status
from orthobench.system.location import Location
from orthobench.system.strict_json import dump_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from orthobench.analysis.statistics import Median
    from orthobench.analysis.variants import Variant
    from orthobench.display.console import Console
    from orthobench.metric import Metric
    from orthobench.session.session import SweepResult
    from orthobench.store import Run, Store


def console() -> Console:
    """Create a console for tables, which does not wrap piped output."""
    import sys

    from orthobench.display.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def run_rows(store: Store, runs: Sequence[Run], status_of: Callable[[Run], str]) -> list[dict[str, Any]]:
    """Return the rows of `ls`: with the kinds of weights, and the settings in which runs of a task and model differ."""
    from orthobench.analysis.variants import differing_settings

    differing = differing_settings(runs, lambda run: f"{run.task} {run.model}")
    kinds: dict[int, list[str]] = {}
    for row in store.weights():
        kinds.setdefault(row.run_id, []).append(row.kind)
    return [
        run.brief(status_of(run)) | {"weights": kinds.get(run.id, []), "settings": differing[run.key]} for run in runs
    ]


def runs_of(result: SweepResult, db: Location, dry_run: bool) -> list[dict[str, Any]]:
    """Return the runs of a sweep as JSON values: in a dry run as planned, else as `orthobench ls --json` lists them."""
    from orthobench.store import open_store
    from orthobench.training.settled import status_in

    if dry_run:
        return result.plan.records()
    with open_store(db) as store:
        return run_rows(store, result.runs, status_in(store, db))


def cell(value: Any) -> str:
    """Format a value for a table."""
    if isinstance(value, str):  # the most frequent, in lists of thousands of runs
        return value
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={text(entry)}" for name, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def some_lengths(lengths: Iterable[int], trained: Iterable[int]) -> list[int]:
    """Select eight of many lengths, from the shortest to the longest, and add the lengths used in training."""
    tested = sorted(lengths)
    spread = {tested[number * (len(tested) - 1) // 7] for number in range(8)}
    return sorted(spread | {length for length in trained if length in tested})


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as aligned columns, with ? for control characters; faster than rich for thousands of rows."""
    table = [headings, *(row if "".join(row).isprintable() else list(map(_harmless, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table))


def _harmless(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def echo_log(location: Location) -> None:
    """Warn on stderr that a copy of the SQLite file may lack rows if its write-ahead log contains some."""
    from rich.filesize import decimal

    from orthobench.errors import shell_command
    from orthobench.store.sqlite import log_of, log_size

    file = location.file
    if file is not None and (size := log_size(file)):
        command = shell_command("db", "backup", "COPY", "--db", location)
        typer.echo(
            f"note: {log_of(file).name} holds {decimal(size)} that a copy of {file.name} alone may lack, as while runs "
            f"train: copy with `{command}`",
            err=True,
        )


def print_json(value: Any) -> None:
    """Print strict JSON, in which numbers that are not finite become null."""
    print(dump_json(value, indent=2, default=str))


class RunState(NamedTuple):
    """A run of a sweep and its state; `estimate` contains the table cells for time, memory and their source."""

    key: str
    task: str
    model: str
    settings: Mapping[str, str]
    seed: int
    state: str
    is_left_out: bool = False
    estimate: Sequence[str] | None = None


def print_states(runs: Sequence[RunState], given: Mapping[str, str] | None = None) -> None:
    """Print every run with its state and estimate, and then the number of runs by state.

    Settings that all runs of a task share are printed once, above the runs.

    Args:
        given: the settings that all runs were given and that are not among their own.
    """
    from rich.table import Table

    shared = {task: {**(given or {}), **settings} for task, settings in _shared_settings(runs).items()}
    several = len(shared) > 1
    for task, settings in shared.items():
        if settings:
            typer.echo(f"every run{f' of {task}' if several else ''}: {cell(settings)}")
    headings = ("run", *(("task",) if several else ()), "model", "settings", "seed", "state")
    has_estimates = any(run.estimate is not None for run in runs)
    table = Table(*headings, *(("time", "memory", "judged by") if has_estimates else ()), box=None)
    for run in runs:
        own = {name: value for name, value in run.settings.items() if name not in shared[run.task]}
        state = f"{run.state}, left out" if run.is_left_out else run.state
        tasks = [run.task] if several else []
        table.add_row(run.key, *tasks, run.model, cell(own), str(run.seed), state, *(run.estimate or ()))
    console().print(table)
    states = [run.state for run in runs]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))


def _shared_settings(runs: Sequence[RunState]) -> dict[str, dict[str, str]]:
    """Return the settings that the runs of each task have in common; a single run shares none."""
    shared: dict[str, dict[str, str]] = {}
    for run in runs:
        settings = shared.setdefault(run.task, dict(run.settings))
        shared[run.task] = {name: value for name, value in settings.items() if run.settings.get(name) == value}
    counts = Counter(run.task for run in runs)
    return {task: settings if counts[task] > 1 else {} for task, settings in shared.items()}


def print_summary(store: Store, runs: Sequence[Run]) -> None:
    """Print the results of each variant over its seeds, with the baseline of each task.

    The best is first, by the median of the runs' ends, as in all rankings. It is "best" if it beats the baseline, and
    "no better" if its median does not, or the interval of the mean contains the baseline. The others are in the states
    of `analysis.inference.Standing`; those whose runs failed or have not ended have "no result". In a narrow terminal
    the last columns are left out, because a number must not be cut.
    """
    from rich.table import Table

    from orthobench.analysis.compare import ends_of_tests
    from orthobench.analysis.variants import group, variants

    ends = {run: end.value for run, end in ends_of_tests(store, runs).items()}
    conditions = group(variants(runs), lambda variant: variant.run.condition)
    records = [record for same in conditions for record in _ranked(same, ends)]
    if not records:
        return
    terminal, headings = console(), [*records[0]]
    widths = {name: max(len(name), *(len(cell(record[name])) for record in records)) for name in headings}
    widths["model"] = min(widths["model"], NARROW_MODEL)
    while len(headings) > LEAST_COLUMNS and sum(widths[name] + 2 for name in headings) - 2 > terminal.width:
        headings.pop()
    table = Table(box=None, pad_edge=False)
    for name in headings:
        table.add_column(name, no_wrap=name != "model", overflow="fold", min_width=widths[name])
    for record in records:
        table.add_row(*(cell(record[name]) for name in headings))
    terminal.print(table)


END = "end: median [95 %]"
"""The heading of the values by which the rows are ranked."""
COMPARISON, NO_BETTER, NO_RESULT = "compared", "no better", "no result"
"""The heading of the comparison with the first row, and what stands there if this one does not beat the baseline, and
in rows whose runs have not ended."""
NARROW_MODEL = 20
"""The width to which the names of models may shrink, by folding, before other columns are left out."""
LEAST_COLUMNS = 4
"""The number of columns of a summary that every terminal shows: model, value, metric and comparison."""


def _ranked(rows: Sequence[Variant], ends: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return the table rows of the variants of one condition, and of its baseline, the best first.

    Args:
        ends: of the runs with tests, by id.
    """
    from orthobench.analysis.inference import standings_after_first
    from orthobench.analysis.statistics import median

    metric, baseline = rows[0].run.main_metric, rows[0].run.baselines.get(rows[0].run.metric)

    def scores(variant: Variant) -> list[float]:
        own = [ends[run.id] for run in variant.finished if run.id in ends]
        return [metric.worst if math.isnan(value) else value for value in own] + [metric.worst] * variant.diverged

    def loss(middle: Median | None) -> float:
        return math.inf if middle is None else metric.sign * middle.value

    # Each median once, because its interval is a bootstrap.
    rated = [(variant, own, median(own)) for variant in rows for own in [scores(variant)]]
    rated.sort(key=lambda each: (each[2] is None, loss(each[2])))
    ended = [own for _, own, _ in rated if own]  # the first ones, because the others have no score
    notes = [str(standing) for standing in standings_after_first(ended)]
    if ended:
        is_better = math.isfinite(loss(rated[0][2])) and (baseline is None or _beats(metric, ended[0], baseline))
        notes.insert(0, ("best" if len(ended) > 1 else "") if is_better else NO_BETTER)
    notes += [NO_RESULT] * (len(rated) - len(ended))
    records = []
    for (variant, _, middle), note in zip(rated, notes, strict=True):
        brief = variant.brief()
        del brief["final [95 %]"]
        shown = "diverged" if middle is not None and math.isinf(middle.value) else middle and str(middle)
        records.append({"model": brief["model"], END: shown, "metric": metric.name, COMPARISON: note} | brief)
    if baseline is not None:
        place = sum(loss(middle) < metric.sign * baseline for _, _, middle in rated)
        blank = dict.fromkeys(records[0], "")
        records.insert(place, blank | {"model": "baseline", END: baseline, "metric": metric.name})
    return records


def _beats(metric: Metric, values: Sequence[float], baseline: float) -> bool:
    """Return whether values are better than a baseline: their median, and the interval of the mean of finite ones."""
    from orthobench.analysis.statistics import summarize

    losses = [metric.sign * value for value in values]
    mean = summarize(losses)
    upper = -math.inf if mean is None or mean.half_width is None else mean.mean + mean.half_width
    return max(statistics.median(losses), upper) < metric.sign * baseline


def result_line(run: Run) -> str:
    """Describe the result of a run in one line."""
    final, best, baseline = (cell(value) for value in (run.final_value, run.best_value, run.baselines[run.metric]))
    text = f"run {run.key} {run.status}: {run.metric} {final}, best {best}, baseline {baseline}"
    return f"{text} ({run.message})" if run.message and Status(run.status).is_final else text
