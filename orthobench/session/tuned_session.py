"""Carry out a tuned comparison: all searches of a task, and then the fresh seeds of their winners."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orthobench.analysis.compare import Contrast, SelectedRuns, contrast, values_of, with_standings
from orthobench.analysis.rate_search import RateSearch
from orthobench.analysis.scores import scores_of
from orthobench.analysis.shown_table import ShownTable
from orthobench.analysis.statistics import Median, median
from orthobench.errors import counted
from orthobench.executors.job import Ending, Job, JobOutcome
from orthobench.planning.objective import Pause
from orthobench.planning.sweep_runs import SweepRun
from orthobench.planning.tuned_protocol import Column, Entry, ModelSize, describe
from orthobench.session.session import Session
from orthobench.store import Run, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cost:
    """What an entry costs.

    Attributes:
        search: the iterations of its search, if it leaves the plateau and adds one rate.
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
        search: the state of its search.
        runs: the records of its fresh seeds, in order.
        values: the end of each one's tests, by key; a diverged run has the worst value.
        cost: what it costs; None unless it was asked for.
    """

    word: str
    entry: Entry
    search: RateSearch
    runs: list[Run]
    values: dict[str, float]
    cost: Cost | None = None

    @property
    def chosen(self) -> dict[str, str]:
        """The settings of the winner that the search has tried, as text; empty without a winner."""
        winner = self.search.winner
        return {} if winner is None else self.entry.trial(winner).settings

    @property
    def size(self) -> ModelSize:
        """The size with the winner's value of the second axis, or with the first value without a winner."""
        winner = self.search.winner
        return self.entry.sizes[winner.value if winner else self.entry.points[0].value]

    @property
    def median(self) -> Median | None:
        """The median over its fresh seeds."""
        return median(list(self.values.values()))

    @property
    def scores(self) -> list[float]:
        """The score of each fresh seed on its own test sequences (`scores_of`)."""
        return scores_of([(run, self.values[run.key]) for run in self.runs if run.key in self.values])

    @property
    def selection(self) -> SelectedRuns:
        return SelectedRuns(self.word, [run for run in self.runs if run.key in self.values])

    def record(self) -> dict[str, Any]:
        """Return the row of a table; the validation data that chose the settings are not shown."""
        size, values = self.size, [*self.values.values()]
        middle = self.median
        return {
            "model": self.word,
            "hidden_size": size.matched and size.matched.hidden_size,
            "parameters": size.parameters,
            "state": size.state,
            "off target": size.matched and size.matched.deviation,
            "trials": self.entry.first,
            "iterations": self.entry.iterations,
            "chosen": describe(self.chosen),
            "edge": self.search.edge,
            "seeds": len(values),
            "median": None if middle is None else middle.value,
            "lowest": min(values, default=None),
            "highest": max(values, default=None),
        }


@dataclass(frozen=True, repr=False)
class TunedColumn(ShownTable):
    """The models of a tuned comparison on one task, in the order in which they were named.

    Attributes:
        seeds: the number of fresh seeds that every model should have.
        failed: the outcomes of runs that failed or could not start.
        busy: the keys of runs that another process trains.
    """

    most_rows = None

    column: Column
    models: list[TunedModel]
    seeds: int
    failed: list[JobOutcome] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)

    @property
    def refused(self) -> int:
        """The number of runs that could not start."""
        return sum(outcome.ending == Ending.REFUSED for outcome in self.failed)

    @property
    def is_complete(self) -> bool:
        """Whether every model has all its fresh seeds."""
        return all(len(model.values) >= self.seeds for model in self.models)

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


MORE_SEEDS = 2
"""Fresh seeds besides the usual ones for models between which these do not decide the first place."""


def plan_column(
    session: Session, column: Column, entries: Sequence[tuple[str, Entry]], seeds: int, more: int = 0
) -> TunedColumn:
    """Return the present state of a column, with what is left of it.

    Args:
        entries: the entries, each with the model as a command names it.
        more: as for `train_column`; they are planned once the results show which models get them.
    """
    models = [_model(session, word, entry, seeds, estimate=True) for word, entry in entries]
    undecided = [model.entry for model in _undecided(models, seeds)] if more else []
    planned = [
        _model(session, model.word, model.entry, seeds + more, estimate=True) if model.entry in undecided else model
        for model in models
    ]
    return TunedColumn(column, planned, seeds)


def train_column(
    session: Session, column: Column, entries: Sequence[tuple[str, Entry]], seeds: int, more: int = 0
) -> TunedColumn:
    """Train what a column lacks, and return its results.

    Args:
        more: seeds that the models get besides which could still be the best one (`_undecided`).

    A trial that fails keeps its search from ending, because the other models' searches have all their trials.

    Raises:
        UsageError: no run can start.
        Stopped: the user stopped the session; the same call resumes it.
    """
    outcomes: list[JobOutcome] = []
    attempted: set[tuple[str, float]] = set()
    while not session.is_over_budget() and (jobs := list(_next_jobs(session, entries, attempted))):
        outcomes += session.train_jobs(jobs)
    outcomes += _train_fresh(session, column, [entry for _, entry in entries], seeds)
    models = [_model(session, word, entry, seeds) for word, entry in entries]
    if more and (undecided := [model.entry for model in _undecided(models, seeds)]):
        outcomes += _train_fresh(session, column, undecided, seeds + more)
        models = [_model(session, word, entry, seeds + more * (entry in undecided)) for word, entry in entries]
    failed = [outcome for outcome in outcomes if outcome.ending in (Ending.FAILED, Ending.REFUSED)]
    busy = [outcome.job.spec.key for outcome in outcomes if outcome.ending == Ending.BUSY]
    return TunedColumn(column, models, seeds, failed, busy)


def _train_fresh(session: Session, column: Column, entries: Sequence[Entry], seeds: int) -> list[JobOutcome]:
    """Train the fresh seeds that are missing."""
    fresh = [run for entry in entries for run in _fresh(entry, entry.search(session.open_store), seeds)]
    if not fresh or session.is_over_budget():
        return []
    planned = session.plan(fresh, estimate=False)
    session.display.print_line(f"{column.title}: {counted(len(fresh), 'run')} of fresh seeds")
    return session.train_jobs(session.jobs(planned.selected))


def _undecided(models: Sequence[TunedModel], seeds: int) -> list[TunedModel]:
    """Return the models whose seeds overlap with those of the best one, and the best one.

    None before all have their seeds, and none if the best one has a score of 100, because equal scores decide no place.
    """
    if not all(len(model.values) == seeds for model in models):
        return []
    scored = [model for model in models if model.scores]
    if len(scored) < 2:
        return []
    best = max((model.scores for model in scored), key=statistics.median)
    if round(100 * statistics.median(best)) == 100:
        return []
    near = [model for model in scored if max(model.scores) >= min(best)]
    return near if len(near) > 1 else []


def _next_jobs(
    session: Session, entries: Sequence[tuple[str, Entry]], attempted: set[tuple[str, float]]
) -> Iterator[Job]:
    """Yield the jobs of the trials that their searches wait for, each once."""
    for word, entry in entries:
        search = entry.search(session.open_store)
        for waiting in search.waiting:
            config, settings = entry.trial(waiting)
            step = (config.spec.key, search.share)
            if step in attempted:
                continue
            attempted.add(step)
            job = session.job(config, f"{entry.column.name} {word} {describe(settings)}")
            options = replace(job.options, keep_weights="none")
            yield replace(job, options=options, rule=None if search.share == 1 else Pause(search.share))


def _fresh(entry: Entry, search: RateSearch, seeds: int) -> list[SweepRun]:
    return [] if search.winner is None else entry.fresh(search.winner, seeds)


def _model(session: Session, word: str, entry: Entry, seeds: int, estimate: bool = False) -> TunedModel:
    """Return a model's results as the database has them."""
    store = session.store
    search = entry.search(store)
    keys = [run.config.spec.key for run in _fresh(entry, search, seeds)]
    runs = sorted(store.runs(keys=keys), key=lambda run: run.seed) if store and keys else []
    values = values_of(store, runs, "end") if store else {}
    cost = _cost(session, entry, search, runs, seeds) if estimate else None
    return TunedModel(word, entry, search, runs, values, cost)


def _cost(session: Session, entry: Entry, search: RateSearch, runs: Sequence[Run], seeds: int) -> Cost:
    whole, fresh = entry.search_iterations(), seeds * entry.iterations
    trained = sum(trial.run.iterations for trial in entry.curves(session.store) if trial.run is not None)
    left = 0 if search.winner is not None else max(0, whole - trained)
    left += fresh - sum(entry.iterations if Status(run.status).is_final else run.iterations for run in runs)
    seconds = None
    if left:
        typical = entry.trials[0]
        estimates = session.plan([typical], estimate=True).estimates or {}
        estimated = estimates.get(typical.config.spec.key)
        seconds = estimated.seconds if estimated else None
    return Cost(whole, fresh, left, seconds and seconds / entry.iterations * left)
