"""Carry out a tuned comparison: all searches of a task, rung by rung, and then the fresh seeds of their winners."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orthobench.analysis.compare import Contrast, SelectedRuns, contrast, values_of, with_standings
from orthobench.analysis.halving import Edge, Halving, TrialCurve, edge_of
from orthobench.analysis.statistics import Median, median
from orthobench.errors import counted
from orthobench.executors.job import Ending, Job, Outcome
from orthobench.planning.objective import Rung
from orthobench.planning.plan import SweepRun
from orthobench.planning.tuned_protocol import RATE, Column, Entry, describe
from orthobench.session.session import Session
from orthobench.store import Run, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cost:
    """What an entry costs.

    Attributes:
        search: the iterations of its search, if no trial ends before its rung.
        fresh: the iterations of its fresh seeds.
        left: how many of these are left.
        seconds: the estimated time of those that are left, on one core; None if unknown.
    """

    search: int
    fresh: int
    left: int
    seconds: float | None


@dataclass(frozen=True)
class TunedModel:
    """A model of a tuned comparison.

    Attributes:
        word: the model as a command names it.
        halving: the state of its search.
        runs: the records of its fresh seeds, in order.
        values: the end of each one's tests, by key; a diverged run has the worst value.
        cost: what it costs; None unless it was asked for.
    """

    word: str
    entry: Entry
    halving: Halving
    runs: list[Run]
    values: dict[str, float]
    cost: Cost | None = None

    @property
    def chosen(self) -> dict[str, str]:
        """The settings of the winner that the search has tried, as text; empty without a winner."""
        winner = self.halving.winner
        return {} if winner is None else self.entry.trials[winner.number].settings

    @property
    def edge(self) -> Edge:
        """Whether the winner has the highest or the lowest rate of the search."""
        rates = [float(trial.settings[RATE]) for trial in self.entry.trials]
        return edge_of(float(self.chosen[RATE]), rates) if self.chosen else ""

    @property
    def median(self) -> Median | None:
        """The median over its fresh seeds."""
        return median(list(self.values.values()))

    @property
    def selection(self) -> SelectedRuns:
        return SelectedRuns(self.word, [run for run in self.runs if run.key in self.values])

    def record(self) -> dict[str, Any]:
        """Return the row of a table; the validation data that chose the settings are not shown."""
        size, values = self.entry.size, [*self.values.values()]
        middle = self.median
        return {
            "model": self.word,
            "hidden_size": self.entry.trials[0].config.spec.model_settings.get("hidden_size"),
            "parameters": self.entry.parameters,
            "state": self.entry.state,
            "off target": None if size is None else size.deviation,
            "trials": len(self.entry.trials),
            "iterations": self.entry.iterations,
            "chosen": describe(self.chosen),
            "edge": self.edge,
            "seeds": len(values),
            "median": None if middle is None else middle.value,
            "lowest": min(values, default=None),
            "highest": max(values, default=None),
        }


@dataclass(frozen=True, repr=False)
class TunedColumn:
    """The models of a tuned comparison on one task, in the order in which they were named.

    Attributes:
        seeds: the number of fresh seeds that every model should have.
        failed: the outcomes of runs that failed or could not start.
        busy: the keys of runs that another process trains.
    """

    column: Column
    models: list[TunedModel]
    seeds: int
    failed: list[Outcome] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)

    @property
    def refused(self) -> int:
        """The number of runs that could not start."""
        return sum(outcome.ending == Ending.REFUSED for outcome in self.failed)

    @property
    def is_complete(self) -> bool:
        """Whether every model has all its fresh seeds."""
        return all(len(model.values) == self.seeds for model in self.models)

    @property
    def metric(self) -> str:
        name: str = self.models[0].entry.metric.name
        return name

    def contrasts(self) -> list[Contrast]:
        """Compare the first model with each other one; models without results are left out."""
        compared = [model for model in self.models if model.values]
        others = compared[1:]
        contrasts = [
            contrast(compared[0].selection, other.selection, (compared[0].values, other.values), None, len(others))
            for other in others
        ]
        return with_standings(contrasts, None)

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each model."""
        return [model.record() for model in self.models]

    @property
    def table(self) -> pd.DataFrame:
        """The models and their results."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def _words(self) -> str:
        return f"{self.column.title}, tuned: {counted(len(self.models), 'model')}, {counted(self.seeds, 'seed')} each"

    def __repr__(self) -> str:
        return f"{self._words()}\n{self.table.to_string(index=False, float_format='{:.4g}'.format)}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, float_format="{:.4g}".format, na_rep="")
        return f"{html.escape(self._words())}\n{table}"


def plan_column(session: Session, column: Column, entries: Sequence[tuple[str, Entry]], seeds: int) -> TunedColumn:
    """Return the present state of a column, with what is left of it.

    Args:
        entries: the entries, each with the model as a command names it.
    """
    return TunedColumn(column, [_model(session, word, entry, seeds, estimate=True) for word, entry in entries], seeds)


def train_column(session: Session, column: Column, entries: Sequence[tuple[str, Entry]], seeds: int) -> TunedColumn:
    """Train what a column lacks, and return its results.

    A trial that fails keeps its search from ending, because the other models' searches have all their trials.

    Raises:
        UsageError: no run can start.
        Stopped: the user stopped the session; the same call resumes it.
    """
    store = session.open_store
    outcomes: list[Outcome] = []
    attempted: set[tuple[str, float]] = set()
    while not session.is_over_budget() and (jobs := list(_next_jobs(session, entries, attempted))):
        outcomes += session.train_jobs(jobs)
    fresh = [run for _, entry in entries for run in _fresh(entry, entry.halving(store), seeds)]
    if fresh and not session.is_over_budget():
        planned = session.plan(fresh, estimate=False)
        session.display.print_line(f"{column.title}: {counted(len(fresh), 'run')} of fresh seeds")
        outcomes += session.train_jobs(session.jobs(planned.selected))
    models = [_model(session, word, entry, seeds) for word, entry in entries]
    failed = [outcome for outcome in outcomes if outcome.ending in (Ending.FAILED, Ending.REFUSED)]
    busy = [outcome.job.spec.key for outcome in outcomes if outcome.ending == Ending.BUSY]
    return TunedColumn(column, models, seeds, failed, busy)


def _next_jobs(
    session: Session, entries: Sequence[tuple[str, Entry]], attempted: set[tuple[str, float]]
) -> Iterator[Job]:
    """Yield the jobs of the trials that have to reach the present rung of their search, each once."""
    for word, entry in entries:
        halving = entry.halving(session.open_store)
        for trial in halving.waiting:
            config, settings = entry.trials[trial.number]
            step = (config.spec.key, halving.share)
            if step in attempted:
                continue
            attempted.add(step)
            label = f"[{trial.number + 1}/{len(entry.trials)}] {entry.column.name} {word} {describe(settings)}"
            job = session.job(config, label)
            options = replace(job.options, keep_weights="none")
            yield replace(job, options=options, rule=None if halving.share == 1 else Rung(halving.share))


def _fresh(entry: Entry, halving: Halving, seeds: int) -> list[SweepRun]:
    return [] if halving.winner is None else entry.fresh(halving.winner, seeds)


def _model(session: Session, word: str, entry: Entry, seeds: int, estimate: bool = False) -> TunedModel:
    """Return a model's results as the database has them."""
    store = session.store
    halving = entry.halving(store)
    keys = [run.config.spec.key for run in _fresh(entry, halving, seeds)]
    runs = sorted(store.runs(keys=keys), key=lambda run: run.seed) if store and keys else []
    values = values_of(store, runs, "end") if store else {}
    cost = _cost(session, entry, halving, runs, seeds) if estimate else None
    return TunedModel(word, entry, halving, runs, values, cost)


def _cost(session: Session, entry: Entry, halving: Halving, runs: Sequence[Run], seeds: int) -> Cost:
    search, fresh = entry.search_iterations(), seeds * entry.iterations
    trained = sum(trial.run.iterations for trial in halving.contenders[0] if trial.run is not None)
    left = 0 if halving.winner is not None else max(0, search - trained)
    left += fresh - sum(entry.iterations if Status(run.status).is_final else run.iterations for run in runs)
    (typical,) = entry.fresh(TrialCurve(0), 1)
    seconds = None
    if left:
        estimates = session.plan([typical], estimate=True).estimates or {}
        estimated = estimates.get(typical.config.spec.key)
        seconds = estimated.seconds if estimated else None
    return Cost(search, fresh, left, seconds and seconds / entry.iterations * left)
