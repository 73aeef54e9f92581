"""Train the trials of a search until it has the requested number of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orthobench import environment
from orthobench.errors import needs_extra
from orthobench.execution.job import Job
from orthobench.execution.session import Session
from orthobench.planning.plan import SweepRun
from orthobench.planning.search import Search, Trial, round_start
from orthobench.spec import RunConfig
from orthobench.store import Store
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.locks import lock


def check_optuna() -> None:
    """Check that optuna is installed.

    Raises:
        UsageError: optuna is not installed.
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise needs_extra("a search", "optuna", "search") from error


@dataclass(frozen=True)
class TuningResult:
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

    def train(self, session: Session) -> TuningResult:
        """Train trials in rounds, until there are enough or the budget of the session is spent.

        If the options give no number of jobs, a round has at most a fifth of all trials, so that later trials can learn
        from earlier rounds.

        Raises:
            RunLockedError: another process runs this search.
            UsageError: no trial can start.
            Stopped: the user stopped the session.
        """
        store, options = session.open_store, session.options
        session.display.on_search(self, self.trials(store), None)
        size = session.at_once if options.jobs is not None else min(session.at_once, max(1, self.trial_count // 5))
        at_once = size if options.jobs is None and session.cluster is None else None
        checkpoints = checkpoints_at(session.checkpoints, f"search-{self.search.key}")
        attempted: set[str] = set()
        with lock(store, checkpoints):
            while not session.is_over_budget() and (jobs := self._round(session, size, attempted)):
                attempted |= {job.spec.key for job in jobs}
                session.train_jobs(jobs, at_once)
            checkpoints.clear()
        result = self.result(store)
        session.display.on_search_end(result)
        store.tag([trial.key for trial in result.trials], options.tags)  # including the trials of earlier calls
        return result

    def _round(self, session: Session, size: int, attempted: set[str]) -> list[Job]:
        """Draw the rest of the current round, and return its jobs together with earlier pending ones."""
        store = session.open_store
        trials = self.trials(store)
        pending = [trial for trial in trials if trial.is_pending and trial.key not in attempted]
        start = round_start(len(trials), size)
        if not any(trial.number < start for trial in pending):  # otherwise this round must wait for their results
            facts = environment.describe(session.device)
            while len(trials) < min(start + size, self.trial_count) and (trial := self.search.draw(trials, size)):
                self.search.record(trial, store, environment.digest(facts), facts)
                trials.append(trial)
                pending.append(trial)
        return [self._job(session, trial, trials, size) for trial in pending]

    def _job(self, session: Session, trial: Trial, trials: Sequence[Trial], size: int) -> Job:
        settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        label = f"[{trial.number + 1}/{self.trial_count}] {self.search.model} {settings}"
        return replace(session.job(trial.config, label), rule=self.search.rule(trial, trials, size))
