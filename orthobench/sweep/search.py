"""A search: where a grid tries every point, trials are drawn one after another, by what those before them gave.

A trial is an ordinary run. That it is one, a record in the database says which is written before the run begins: the
settings drawn, and the run's key. All else is read off the runs, so a search that was cut off anywhere goes on with
what it had, on whatever database. Each draw has a seed of its own, from the search's name and the trial's number, and
depends on the trials before it alone. Where several are made at once, they go by rounds: the trials of one are drawn
on what those of earlier rounds gave, so that it does not matter which ends first.

Points come from optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011): the first ten by chance,
later ones where good trials are denser than the others. A trial that diverged or was cut short counts as one of the
others. `pruning` has the rule by which trials are cut short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from orthobench import seeds
from orthobench.errors import UsageError, unknown
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, Settings
from orthobench.spec import Preset, RunConfig, digest, resolve
from orthobench.store import Metric, Run, Status, Store
from orthobench.sweep.objective import Goal, Median, best_so_far, judged, was_pruned
from orthobench.sweep.space import Space
from orthobench.task import TrainingSettings

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

DRAWS = 20
"""How often the sampler is asked for a point that is no trial yet."""

State = Literal["finished", "diverged", "pruned", "failed", "interrupted", "missing"]


@dataclass(frozen=True)
class Trial:
    """A point of the search, and how far its run is.

    number: counts from 0. split: what it is judged by, "valid" where the task has a validation split, else "test".
    bests: the best value of the task's metric there by every test.
    """

    number: int
    chosen: dict[str, str]
    config: RunConfig
    state: State = "missing"
    run: Run | None = None
    split: str = "test"
    bests: list[float] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.config.spec.key

    @property
    def is_wanted(self) -> bool:
        """Whether its run is still to be trained."""
        return self.state in ("missing", "interrupted", "failed")

    @property
    def best(self) -> float | None:
        return self.bests[-1] if self.bests else None


@dataclass(frozen=True)
class Search:
    """What is tuned: a model on a task, with these settings given, over this space; all with seed 0."""

    catalog: Catalog
    task: str
    model: str
    given: dict[str, str]
    preset: Preset
    space: Space
    prune: bool

    def __post_init__(self) -> None:
        """Refuse what cannot be searched.

        Raises:
            UsageError: there is no such task, model or setting, or a setting is both given and searched.
        """
        if both := sorted(set(self.given) & set(self.space.names)):
            raise UsageError(f"{', '.join(both)} is both set and in the grid: leave one out")
        kinds: tuple[type[Settings], ...] = (
            self.task_class.Settings,
            self.catalog.load("model", self.model).Settings,
            TrainingSettings,
        )
        known = {name for kind in kinds for name in kind.model_fields}
        for name in (*self.given, *self.space.names):
            if name not in known and name not in SHORT_NAMES:
                raise unknown("setting", name, known)

    @property
    def task_class(self) -> Any:
        return self.catalog.load("task", self.task)

    @property
    def goal(self) -> Goal:
        goal: Goal = self.task_class.goal
        return goal

    @property
    def key(self) -> str:
        """Names the search: asked for again with more trials it is the same."""
        return digest(
            {
                "task": self.task,
                "model": self.model,
                "given": self.given,
                "preset": self.preset,
                "space": self.space.texts,
                "prune": self.prune,
            }
        )

    @property
    def _name(self) -> str:
        """What its records in the database are called."""
        return f"search {self.key}"

    def resolve(self, chosen: Mapping[str, str]) -> RunConfig:
        """The run of a point.

        Raises:
            UsageError: the point does not fit.
        """
        return resolve(self.catalog, self.task, self.model, {**self.given, **chosen}, self.preset)

    def trials(self, store: Store) -> list[Trial]:
        """The trials so far, in the order they were drawn; without those that have come to mean another run."""
        points: dict[str, tuple[dict[str, str], RunConfig]] = {}
        for record in store.benchmarks(self._name):
            chosen = record.results["chosen"]
            with suppress(UsageError):  # the settings' meaning or limits may have changed since
                config = self.resolve(chosen)
                if config.spec.key == record.results["run"]:
                    points.setdefault(config.spec.key, (chosen, config))
        runs = {run.key: run for run in store.runs(keys=list(points))}
        rows: dict[int, list[Metric]] = {run.id: [] for run in runs.values()}
        for row in store.metrics(list(rows), name=self.task_class.metric):
            rows[row.run_id].append(row)
        trials = []
        for number, (key, (chosen, config)) in enumerate(points.items()):
            trial = Trial(number, chosen, config)
            if run := runs.get(key):
                split, values = judged(rows[run.id])
                trial = replace(
                    trial, state=self._state(run), run=run, split=split, bests=best_so_far(values, self.goal)
                )
            trials.append(trial)
        return trials

    def _state(self, run: Run) -> State:
        if self.prune and was_pruned(run):
            return "pruned"
        ends: dict[str, State] = {
            Status.FINISHED: "finished",
            Status.DIVERGED: "diverged",
            Status.FAILED: "failed",
        }
        return ends.get(run.status, "interrupted")

    def rule(self, trial: Trial, trials: Sequence[Trial], at_once: int) -> Median | None:
        """By what a trial is cut short, if it is: the finished ones of the rounds before."""
        if not self.prune:
            return None
        earlier = trials[: rounded(trial.number, at_once)]
        return Median(tuple(tuple(one.bests) for one in earlier if one.state == "finished"), self.goal)

    def draw(self, trials: Sequence[Trial], at_once: int) -> Trial | None:
        """The next trial, of rounds of so many; None where every point there is has been one.

        Raises:
            UsageError: no point can be run; with the reason why one cannot.
        """
        known = {trial.key for trial in trials}
        problem = None
        for chosen in self._draws(trials, at_once):
            try:
                config = self.resolve(chosen)
            except UsageError as error:  # settings that do not fit each other; others may
                problem = error
                continue
            if config.spec.key not in known:
                return Trial(len(trials), chosen, config)
        if problem is not None and not trials:
            raise problem
        return None

    def record(self, trial: Trial, store: Store, environment_digest: str, environment: Mapping[str, Any]) -> None:
        """Enter a trial, before its run begins."""
        results = {"chosen": trial.chosen, "run": trial.key}
        store.add_benchmark(self._name, results, environment_digest, environment)

    def _draws(self, trials: Sequence[Trial], at_once: int) -> Iterator[dict[str, str]]:
        """Points by the sampler; then, if the points can be counted, all of them."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = self.space.distributions()
        ended = rounded(len(trials), at_once)
        past = [self._told(trial) for trial in trials[:ended] if trial.state != "failed"]
        past += [self._told(replace(trial, state="missing", bests=[])) for trial in trials[ended:]]
        for attempt in range(DRAWS):
            seed = seeds.derive(0, "search", self.key, len(trials), attempt) % 2**32
            # the constant liar: a point that is being tried is taken for a bad one, so that its neighbours wait
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            study = optuna.create_study(sampler=sampler, direction="minimize" if self.goal == "min" else "maximize")
            study.add_trials(past)
            yield self.space.settings(study.ask(distributions).params)
        yield from self.space.shuffled(seeds.derive(0, "search", self.key, len(trials)))

    def _told(self, trial: Trial) -> FrozenTrial:
        """A trial as optuna is told of it."""
        from optuna.trial import TrialState, create_trial

        finished = TrialState.COMPLETE if trial.bests else TrialState.PRUNED
        states = {"finished": finished, "pruned": TrialState.PRUNED, "diverged": TrialState.PRUNED}
        return create_trial(
            state=states.get(trial.state, TrialState.RUNNING),
            params=self.space.values(trial.chosen),
            distributions=self.space.distributions(),
            value=trial.best if trial.state == "finished" else None,
            intermediate_values={} if trial.state == "diverged" else dict(enumerate(trial.bests)),
        )


def rounded(number: int, at_once: int) -> int:
    """How many trials there are in the rounds before that of this one."""
    return number - number % at_once
