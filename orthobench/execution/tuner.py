"""`orthobench sweep --search`: trials drawn and trained until there are enough, and what came of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import typer

from orthobench import environment
from orthobench.cli.options import DEFAULT_DATABASE
from orthobench.cli.records import cell, console
from orthobench.errors import UsageError
from orthobench.execution.budget import Budget
from orthobench.execution.job import Job
from orthobench.execution.ray import RayCluster
from orthobench.execution.session import Session, report_failures
from orthobench.spec import RunConfig
from orthobench.store import Store
from orthobench.sweep.search import Search, Trial, round_start
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.locks import lock

SHOWN = 10
"""Trials in the table at the end."""
SEEDS = 5
"""Seeds in the command that it ends with."""


def check_optuna() -> None:
    """Refuse to begin without optuna.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise UsageError("--search optuna needs optuna: pip install 'orthobench[search]'") from error


def tune(
    tunings: Sequence[Tuning],
    session: Session,
    at_once: int,
    jobs: int | None,
    gpu_share: int,
    budget: Budget | None,
    cluster: RayCluster | None,
) -> None:
    """One search after the other, each with what came of it.

    Args:
        at_once: how many trials there is room for.
        jobs: how many were asked for. If none, a round is a fifth of all trials at most: later ones learn from earlier.

    Raises:
        UsageError: another process is at a search, or no trial can be started.
        typer.Exit: the user stopped it, or trials failed.
    """
    trials: list[Trial] = []
    for tuning in tunings:
        size = at_once if jobs is not None else min(at_once, max(1, tuning.wanted // 5))
        limit = size if jobs is None and cluster is None else jobs
        tuning.tell_plan(session.store)
        train = partial(session.carry_out, at_once=limit, gpu_share=gpu_share, budget=budget, cluster=cluster)
        tuning.carry_out(session, size, train, budget)
        tuning.tell_trials(session)
        made = tuning.trials(session.store)
        session.store.tag([trial.key for trial in made], session.tags)  # those that were finished before, too
        trials += made
    report_failures(sum(trial.state == "failed" for trial in trials), len(trials))


@dataclass(frozen=True)
class Tuning:
    """A search and how many trials it shall have, those made before among them."""

    search: Search
    wanted: int

    def trials(self, store: Store | None) -> list[Trial]:
        return self.search.trials(store)[: self.wanted] if store else []

    def tell_plan(self, store: Store | None) -> None:
        """What is searched, by what, and how far that is."""
        search, metric = self.search, self.search.metric.name
        least = "lowest" if search.metric.goal == "min" else "highest"
        typer.echo(f"search {search.task} {search.model}: " + ", ".join(map("=".join, search.space.texts.items())))
        typer.echo(f"objective: the {least} {metric} of a run's tests, on the validation split, or else the test split")
        states = [trial.state for trial in self.trials(store)]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        typer.echo(", ".join([f"{self.wanted} trials", *counts, f"{self.wanted - len(states)} to come"]))

    def to_come(self, store: Store | None) -> list[tuple[RunConfig, dict[str, str]]]:
        """What is left to train, as it is known now: what comes of earlier trials may change those to be drawn."""
        trials = self.trials(store)
        while len(trials) < self.wanted and (trial := self.search.draw(trials, 1)):
            trials.append(trial)
        return [(trial.config, trial.settings) for trial in trials if trial.is_pending]

    def carry_out(
        self, session: Session, size: int, train: Callable[[Sequence[Job]], object], budget: Budget | None
    ) -> None:
        """Train trials, in rounds of this size, until there are enough or the budget is spent.

        Raises:
            UsageError: another process is at this search, or no trial can be started.
            typer.Exit: the user stopped it.
        """
        held = checkpoints_at(session.checkpoints, f"search-{self.search.key}")
        tried: set[str] = set()
        with lock(session.store, held):
            while not (budget and budget.is_spent()) and (trials := self._round(session, size, tried)):
                tried |= {job.spec.key for job in trials}
                train(trials)
            held.clear()

    def _round(self, session: Session, size: int, tried: set[str]) -> list[Job]:
        """What to train next: trials that are open, or else the rest of a round, drawn now."""
        trials = self.trials(session.store)
        opened = [trial for trial in trials if trial.is_pending and trial.key not in tried]
        start = round_start(len(trials), size)
        if not any(trial.number < start for trial in opened):  # for what they give, this round would have to wait
            facts = environment.describe(session.device)
            while len(trials) < min(start + size, self.wanted) and (trial := self.search.draw(trials, size)):
                self.search.record(trial, session.store, environment.digest(facts), facts)
                trials.append(trial)
                opened.append(trial)
        return [self._job(session, trial, trials, size) for trial in opened]

    def _job(self, session: Session, trial: Trial, trials: Sequence[Trial], size: int) -> Job:
        label = f"[{trial.number + 1}/{self.wanted}] {self.search.model} {_settings(trial)}"
        return replace(session.job(trial.config, label), rule=self.search.rule(trial, trials, size))

    def tell_trials(self, session: Session) -> None:
        """The best trials, and the command that trains the best with more seeds."""
        from rich.table import Table

        trials = self.trials(session.store)
        sign = 1 if self.search.metric.goal == "min" else -1
        finished = [trial for trial in trials if trial.state == "finished" and trial.best is not None]
        finished.sort(key=lambda trial: sign * (trial.best or 0.0))
        others = [trial for trial in trials if trial not in finished]
        table = Table("trial", "run", "settings", "state", "judged by", "best", box=None)
        for trial in (*finished, *others)[:SHOWN]:
            judge = f"{trial.split} {self.search.metric.name}"
            state = trial.run.message if trial.run and trial.state == "pruned" else trial.state
            table.add_row(str(trial.number + 1), trial.key, _settings(trial), state, judge, cell(trial.best))
        console().print(table)
        if len(trials) > SHOWN:
            typer.echo(f"and {len(trials) - SHOWN} more")
        if len(trials) < self.wanted and self.search.draw(trials, 1) is None:
            typer.echo(f"the space has no more than these {len(trials)} points")
        if not finished:
            typer.echo("no trial has finished")
            return
        best = finished[0]
        if best.split == "test":
            typer.echo(
                f"{self.search.task} has no validation split: the best was selected on the test set, as the papers "
                "did, so its value here flatters it"
            )
        typer.echo(f"the best with more seeds:\n    {self._command(best, session)}")

    def _command(self, trial: Trial, session: Session) -> str:
        search = self.search
        words = ["orthobench", "sweep", search.task, "--models", search.model]
        words += [
            word for name, value in (search.overrides | trial.settings).items() for word in ("-s", f"{name}={value}")
        ]
        words += ["--preset", search.preset] if search.preset != "paper" else []
        words += [word for plugin in session.plugins for word in ("--plugin", str(plugin))]
        words += ["--db", session.database] if session.database != DEFAULT_DATABASE else []
        return shlex.join([*words, "--seeds", str(SEEDS)])


def _settings(trial: Trial) -> str:
    return " ".join(f"{name}={value}" for name, value in trial.settings.items())
