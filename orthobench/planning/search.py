"""A search: trials are drawn one after another, each from the results of earlier trials.

A trial is an ordinary run. A record in the database, written before the run starts, contains the drawn settings and the
key of the run. Everything else is read from the runs, so a search can resume wherever it was interrupted. Each draw has
its own seed, derived from the key of the search and the number of the trial, and depends only on earlier trials. Trials
that train at the same time form a round. They are drawn from the results of earlier rounds, so the order in which they
end has no effect.

Points come from optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011). It draws the first ten at
random, and later ones where good trials are denser than bad ones. Diverged and pruned trials count as bad. The rule
that prunes is in `objective`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from orthobench.analysis.shown_table import ShownTable
from orthobench.errors import UsageError
from orthobench.metric import Metric
from orthobench.model import Model
from orthobench.options.arguments import Preset
from orthobench.planning.match import check_can_match, with_equal_parameters
from orthobench.planning.objective import MedianRule, best_so_far, objective_values, was_pruned
from orthobench.planning.space import Space
from orthobench.planning.sweep_runs import SweepRun
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, Settings, digest, unknown_setting
from orthobench.spec.model_sizes import Counter
from orthobench.spec.resolve import RunConfig, resolve, unnamed_arguments
from orthobench.store import MetricValue, Run, Status, Store
from orthobench.task import Task, TrainingSettings, derive_seed

if TYPE_CHECKING:
    import pandas as pd
    from optuna.trial import FrozenTrial

DRAWS = 20
"""The number of draws from the sampler before all points are enumerated."""

TrialStatus = Literal["finished", "diverged", "pruned", "failed", "interrupted", "missing"]


@dataclass(frozen=True)
class Trial:
    """A point of the search and the state of its run.

    Attributes:
        number: the number of the trial, counted from 0.
        settings: the drawn settings, as text.
        split: the split by which the run is judged: "valid" if the task has a validation split, else "test".
        bests: the best value of the task's metric on this split, up to each evaluation.
    """

    number: int
    settings: dict[str, str]
    config: RunConfig
    state: TrialStatus = "missing"
    run: Run | None = None
    split: str = "test"
    bests: list[float] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.config.spec.key

    @property
    def is_pending(self) -> bool:
        """Whether the run of the trial still has to train."""
        return self.state in ("missing", "interrupted", "failed")

    @property
    def best(self) -> float | None:
        """The best value so far."""
        return self.bests[-1] if self.bests else None


@dataclass(frozen=True)
class Search:
    """A search for settings of a model on a task. All trials have seed 0.

    Attributes:
        match_parameters: a parameter count, or the model that has it. The hidden size of each trial is chosen to match.
    """

    catalog: Catalog
    task: str
    model: str
    overrides: dict[str, str]
    preset: Preset
    space: Space
    prune: bool
    match_parameters: int | str | None = None
    _counter: Counter = field(default_factory=Counter, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            UsageError: a task, model or setting is unknown, a setting is both fixed and searched, a value of the space
                is invalid, or the hidden size should match a count but is also given or searched.
        """
        if both := sorted(set(self.overrides) & set(self.space.names)):
            raise UsageError(f"{', '.join(both)} is both set and in the grid: leave one out")
        model_class: type[Model] = self.catalog.load("model", self.model)
        groups: tuple[type[Settings], ...] = (self.task_class.Settings, model_class.Settings, TrainingSettings)
        known = {name for group in groups for name in group.model_fields}
        for name in (*self.overrides, *self.space.names):
            if name not in known and name not in SHORT_NAMES:
                raise unknown_setting("setting", name, known, unnamed_arguments(model_class))
        for name, value in self.space.limits():
            full = SHORT_NAMES.get(name, name)
            next(group for group in groups if full in group.model_fields).check_value(full, value)
        if self.match_parameters is not None:
            check_can_match(self.model, model_class, (*self.overrides, *self.space.names))

    @property
    def task_class(self) -> type[Task]:
        task_class: type[Task] = self.catalog.load("task", self.task)
        return task_class

    @property
    def metric(self) -> Metric:
        """The metric that the search optimises."""
        return self.task_class.main_metric()

    @property
    def key(self) -> str:
        """The key of the search, which does not depend on the number of trials."""
        matching = {} if self.match_parameters is None else {"match_parameters": self.match_parameters}
        return digest(
            {
                "task": self.task,
                "model": self.model,
                "given": self.overrides,
                "preset": self.preset,
                "space": self.space.texts,
                "prune": self.prune,
                **matching,
            }
        )

    @property
    def _name(self) -> str:
        """The name of the search's records in the database."""
        return f"search {self.key}"

    def resolve(self, settings: Mapping[str, str]) -> RunConfig:
        """Return the run with these drawn settings.

        Raises:
            UsageError: a value is invalid, or the settings contradict each other.
        """
        return resolve(self.catalog, self.task, self.model, {**self.overrides, **settings}, self.preset)

    def _point(self, drawn: dict[str, str]) -> tuple[dict[str, str], RunConfig]:
        """Return the settings of a draw, including the hidden size if it is chosen, and the run with them.

        Raises:
            UsageError: as for `resolve`, or no hidden size gives the parameter count.
        """
        if self.match_parameters is None:
            return drawn, self.resolve(drawn)
        models = dict.fromkeys(
            (self.model, *([self.match_parameters] if isinstance(self.match_parameters, str) else []))
        )
        runs = [
            SweepRun(resolve(self.catalog, self.task, model, {**self.overrides, **drawn}, self.preset), drawn)
            for model in models
        ]
        own, *_ = with_equal_parameters(
            self.catalog, runs, self.overrides, self.preset, self.match_parameters, self._counter
        ).runs
        return own.settings, own.config

    def trials(self, store: Store) -> list[Trial]:
        """Return the trials in the order of their draws, except trials whose settings now resolve to another run."""
        points: dict[str, tuple[dict[str, str], RunConfig]] = {}
        for record in store.benchmarks(self._name):
            settings = record.results["chosen"]
            with suppress(UsageError):  # the meaning or limits of settings may have changed
                config = self.resolve(settings)
                if config.spec.key == record.results["run"]:
                    points.setdefault(config.spec.key, (settings, config))
        runs = {run.key: run for run in store.runs(keys=list(points))}
        rows: dict[int, list[MetricValue]] = {run.id: [] for run in runs.values()}
        for row in store.metrics(list(rows), name=self.metric.name):
            rows[row.run_id].append(row)
        trials = []
        for number, (key, (settings, config)) in enumerate(points.items()):
            trial = Trial(number, settings, config)
            if run := runs.get(key):
                split, values = objective_values(rows[run.id])
                trial = replace(
                    trial, state=self._state(run), run=run, split=split, bests=best_so_far(values, self.metric.goal)
                )
            trials.append(trial)
        return trials

    def _state(self, run: Run) -> TrialStatus:
        if self.prune and was_pruned(run):
            return "pruned"
        return "interrupted" if run.status == Status.RUNNING else cast(TrialStatus, run.status)

    def rule(self, trial: Trial, trials: Sequence[Trial], round_size: int) -> MedianRule | None:
        """Return the rule that prunes a trial, from the finished trials of earlier rounds; None without pruning."""
        if not self.prune:
            return None
        earlier = trials[: round_start(trial.number, round_size)]
        return MedianRule(
            tuple(_whole_curve(other) for other in earlier if other.state == "finished"), self.metric.goal
        )

    def draw(self, trials: Sequence[Trial], round_size: int) -> Trial | None:
        """Draw the next trial; return None if every point is already a trial.

        Raises:
            UsageError: no point can run; the message gives the reason for one of them.
        """
        known = {trial.key for trial in trials}
        problem = None
        for drawn in self._draws(trials, round_size):
            try:
                settings, config = self._point(drawn)
            except UsageError as error:  # these settings contradict each other; others may not
                problem = error
                continue
            if config.spec.key not in known:
                return Trial(len(trials), settings, config)
        if problem is not None and not trials:
            raise problem
        return None

    def record(self, trial: Trial, store: Store, environment: Mapping[str, Any]) -> None:
        """Record a trial before its run starts."""
        results = {"chosen": trial.settings, "run": trial.key}
        store.add_benchmark(self._name, results, environment)

    def _draws(self, trials: Sequence[Trial], round_size: int) -> Iterator[dict[str, str]]:
        """Yield points from the sampler and then, if their number is finite, all points."""
        import optuna

        # Quiet, because optuna reports each study that it creates, and each draw creates one.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = self.space.distributions()
        ended = round_start(len(trials), round_size)
        past = [self._as_optuna(trial) for trial in trials[:ended] if trial.state != "failed"]
        past += [self._as_optuna(replace(trial, state="missing", bests=[])) for trial in trials[ended:]]
        for attempt in range(DRAWS):
            # Reduced because the sampler takes 32 bits.
            seed = derive_seed(0, "search", self.key, len(trials), attempt) % 2**32
            # The constant liar: running trials count as bad, so that the sampler does not draw points near them.
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            # A new study for each draw, because a draw may depend on nothing but the trials in the database.
            study = optuna.create_study(
                sampler=sampler, direction="minimize" if self.metric.goal == "min" else "maximize"
            )
            study.add_trials(past)
            yield self.space.settings(study.ask(distributions).params)
        yield from self.space.shuffled(derive_seed(0, "search", self.key, len(trials)))

    def _as_optuna(self, trial: Trial) -> FrozenTrial:
        """Convert a trial to a trial of optuna."""
        from optuna.trial import TrialState, create_trial

        finished = TrialState.COMPLETE if trial.bests else TrialState.PRUNED
        states = {"finished": finished, "pruned": TrialState.PRUNED, "diverged": TrialState.PRUNED}
        return create_trial(
            state=states.get(trial.state, TrialState.RUNNING),
            params=self.space.values(trial.settings),
            distributions=self.space.distributions(),
            value=trial.best if trial.state == "finished" else None,
            intermediate_values={} if trial.state == "diverged" else dict(enumerate(trial.bests)),
        )


@dataclass(frozen=True, repr=False)
class TuningResult(ShownTable):
    """The trials of a search.

    Attributes:
        trials: the trials, in the order in which they were drawn.
        is_exhausted: whether every point of the space is a trial already.
    """

    tuning: Tuning
    trials: list[Trial]
    is_exhausted: bool

    @property
    def ranked(self) -> list[Trial]:
        """The finished trials, starting with the best one, followed by the others."""
        sign = 1 if self.tuning.search.metric.goal == "min" else -1
        finished = [trial for trial in self.trials if trial.state == "finished" and trial.best is not None]
        finished.sort(key=lambda trial: sign * (trial.best or 0.0))
        return [*finished, *(trial for trial in self.trials if trial not in finished)]

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best value; None without a finished trial."""
        ranked = self.ranked
        return ranked[0] if ranked and ranked[0].state == "finished" and ranked[0].best is not None else None

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.state == "failed"]

    def records(self) -> list[dict[str, Any]]:
        """Return the trials as rows of a table, as ranked."""
        return [
            {
                "trial": trial.number + 1,
                "run": trial.key,
                "settings": " ".join(f"{name}={value}" for name, value in trial.settings.items()),
                "state": trial.run.message if trial.run and trial.state == "pruned" else trial.state,
                "judged by": f"{trial.split} {self.tuning.search.metric.name}",
                "best": trial.best,
            }
            for trial in self.ranked
        ]

    @property
    def table(self) -> pd.DataFrame:
        """The trials, as ranked."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=["trial", "run", "settings", "state", "judged by", "best"])

    def _words(self) -> str:
        search = self.tuning.search
        return f"search of {len(self.trials)} trials: {search.task} {search.model}"


@dataclass(frozen=True)
class Tuning:
    """A search, and the number of its trials, including trials of earlier calls."""

    search: Search
    trial_count: int

    def trials(self, store: Store | None) -> list[Trial]:
        """Return the trials so far."""
        return self.search.trials(store)[: self.trial_count] if store else []

    def first_draws(self) -> Iterator[RunConfig]:
        """Yield the runs that a search without any results would draw, one by one; nothing is recorded."""
        trials: list[Trial] = []
        while len(trials) < self.trial_count and (trial := self.search.draw(trials, 1)):
            trials.append(trial)
            yield trial.config

    def pending(self, store: Store | None) -> list[SweepRun]:
        """Return the runs that are known to remain; the results of earlier trials may still change later draws."""
        trials = self.trials(store)
        while len(trials) < self.trial_count and (trial := self.search.draw(trials, 1)):
            trials.append(trial)
        return [SweepRun(trial.config, trial.settings) for trial in trials if trial.is_pending]

    def result(self, store: Store | None) -> TuningResult:
        """Return the trials so far as a result."""
        trials = self.trials(store)
        exhausted = len(trials) < self.trial_count and self.search.draw(trials, 1) is None
        return TuningResult(self, trials, exhausted)


def _whole_curve(trial: Trial) -> tuple[float, ...]:
    """Return the best value of a finished trial up to each evaluation, continued at its last value if it stopped."""
    bests, run = tuple(trial.bests), trial.run
    if run is None or run.solved_at is None or not bests:
        return bests
    missing = len(bests) * run.total_iterations // run.iterations + 1 - len(bests)
    return bests + bests[-1:] * missing


def round_start(number: int, round_size: int) -> int:
    """Return the number of the first trial in the round that contains this trial."""
    return number - number % round_size
