"""Train the trials of a search until it has the requested number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orthobench.errors import needs_extra
from orthobench.executors.job import Job
from orthobench.planning.search import Trial, Tuning, TuningResult, round_start
from orthobench.session.session import Session
from orthobench.system import environment
from orthobench.training.checkpoint import checkpoints_at, lock


def check_optuna() -> None:
    """Check that optuna is installed.

    Raises:
        UsageError: optuna is not installed.
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise needs_extra("a search", "optuna", "search") from error


def train_trials(session: Session, tuning: Tuning) -> TuningResult:
    """Train trials in rounds, until there are enough or the budget of the session is spent.

    If the options give no number of jobs, a round has at most a fifth of all trials, so that later trials can learn
    from earlier rounds.

    Raises:
        RunLockedError: another process runs this search.
        UsageError: no trial can start.
        Stopped: the user stopped the session.
    """
    store, options = session.open_store, session.options
    session.display.on_search(tuning, tuning.trials(store), None)
    size = session.at_once if options.jobs is not None else min(session.at_once, max(1, tuning.trial_count // 5))
    at_once = size if options.jobs is None and session.cluster is None else None
    checkpoints = checkpoints_at(session.checkpoints, f"search-{tuning.search.key}")
    attempted: set[str] = set()
    with lock(store, checkpoints):
        while not session.is_over_budget() and (jobs := _round(session, tuning, size, attempted)):
            attempted |= {job.spec.key for job in jobs}
            session.train_jobs(jobs, at_once)
        checkpoints.clear()
    result = tuning.result(store)
    session.display.on_search_end(result)
    store.tag([trial.key for trial in result.trials], options.tags)  # including the trials of earlier calls
    return result


def _round(session: Session, tuning: Tuning, size: int, attempted: set[str]) -> list[Job]:
    """Draw the rest of the current round, and return its jobs together with earlier pending ones."""
    store = session.open_store
    trials = tuning.trials(store)
    pending = [trial for trial in trials if trial.is_pending and trial.key not in attempted]
    start = round_start(len(trials), size)
    if not any(trial.number < start for trial in pending):  # otherwise this round must wait for their results
        facts = environment.describe(session.device)
        while len(trials) < min(start + size, tuning.trial_count) and (trial := tuning.search.draw(trials, size)):
            tuning.search.record(trial, store, facts)
            trials.append(trial)
            pending.append(trial)
    return [_job(session, tuning, trial, trials, size) for trial in pending]


def _job(session: Session, tuning: Tuning, trial: Trial, trials: Sequence[Trial], size: int) -> Job:
    settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
    label = f"[{trial.number + 1}/{tuning.trial_count}] {tuning.search.model} {settings}"
    return replace(session.job(trial.config, label), rule=tuning.search.rule(trial, trials, size))
