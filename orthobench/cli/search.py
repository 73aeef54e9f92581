"""`orthobench sweep --search`: trials drawn and trained until there are enough, and what came of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import typer

from orthobench import environment
from orthobench.checkpoint import CheckpointFolder
from orthobench.cli import training
from orthobench.cli.options import DEFAULT_DATABASE, checkpoint_root
from orthobench.cli.progress import Progress
from orthobench.cli.records import cell, console
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.settings import parse_assignments
from orthobench.spec import Preset
from orthobench.store import Store, open_store
from orthobench.store.open import check_writable, sqlite_file
from orthobench.sweep.job import Ending, Job, Outcome, attempt
from orthobench.sweep.search import Search, Trial
from orthobench.sweep.space import Space
from orthobench.train import BackendName, DeviceName, check_backend, pick_device

SHOWN = 10
"""Trials in the table at the end."""
SEEDS = 5
"""Seeds in the command that it ends with."""


def search_settings(
    catalog: Catalog,
    task: str,
    models: Sequence[str],
    grid: Sequence[str],
    given: Sequence[str],
    preset: Preset,
    trials: int,
    prune: bool,
    device: DeviceName,
    backend: BackendName,
    db: str,
    data_dir: Path | None,
    plugins: Sequence[Path],
    checkpoint_every: float,
    dry_run: bool,
) -> None:
    """Carry out a search for each model, or say what it would be.

    Raises:
        UsageError: it cannot begin; optuna is not installed.
        typer.Exit: the user stopped it, or runs failed.
    """
    space, settings = Space(grid), parse_assignments(given)
    searches = [Search(catalog, task, model, settings, preset, space, prune) for model in dict.fromkeys(models)]
    where = pick_device(device)
    check_backend(backend, where)
    if dry_run:
        with training.existing(db) or nullcontext() as store:
            for search in searches:
                Tuning(search, trials).tell_plan(store)
        return
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise UsageError("--search optuna needs optuna: pip install 'orthobench[search]'") from error
    check_writable(db)
    file, checkpoints = sqlite_file(db), checkpoint_root(db).absolute()
    job = partial(
        Job,
        database=str(file.absolute()) if file else db,
        checkpoints=str(checkpoints),
        plugins=tuple(str(plugin.absolute()) for plugin in plugins),
        data_folder=str(data_dir.absolute()) if data_dir else None,
        device=device,
        backend=backend,
        checkpoint_every=checkpoint_every,
    )
    options = ["--preset", preset] if preset != "paper" else []
    options += [word for plugin in plugins for word in ("--plugin", str(plugin))]
    options += ["--db", db] if db != DEFAULT_DATABASE else []
    made: list[Trial] = []
    with open_store(db, create=True) as store, training.stop_on_signals() as stop:
        for search in searches:
            tuning = Tuning(search, trials)
            tuning.tell_plan(store)
            tuning.carry_out(store, checkpoints, where, job, stop)
            tuning.tell_trials(store, options)
            made += tuning.trials(store)
    training.report_failures(sum(trial.state == "failed" for trial in made), len(made))


@dataclass(frozen=True)
class Tuning:
    """A search and how many trials it shall have, those made before among them."""

    search: Search
    wanted: int

    def tell_plan(self, store: Store | None) -> None:
        """What is searched, by what, and how far that is."""
        search, metric = self.search, self.search.task_class.metric
        least = "lowest" if search.goal == "min" else "highest"
        typer.echo(f"search {search.task} {search.model}: " + ", ".join(map("=".join, search.space.texts.items())))
        typer.echo(f"objective: the {least} {metric} of a run's tests, on the validation split where there is one")
        trials = self.trials(store) if store else []
        states = [trial.state for trial in trials]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        typer.echo(", ".join([f"{self.wanted} trials", *counts, f"{self.wanted - len(trials)} to come"]))

    def carry_out(
        self, store: Store, checkpoints: Path, device: torch.device, job: Callable[..., Job], stop: training.StopRequest
    ) -> None:
        """Train trials until there are enough; `job` makes one of spec, label and rule.

        Raises:
            UsageError: another process is at this search, or no trial can be started.
            typer.Exit: the user stopped it.
        """
        folder = CheckpointFolder(checkpoints, f"search-{self.search.key}")
        with folder.lock():
            for outcome in _one_by_one(self._jobs(store, device, job), stop):
                if outcome.ending == Ending.REFUSED:
                    raise UsageError(outcome.cause)
                if stop.made:
                    typer.echo("stopped; the same command goes on from here", err=True)
                    raise typer.Exit(130)
                cause = f" ({outcome.cause})" if outcome.cause else ""
                typer.echo(f"{outcome.job.label} {outcome.ending}{cause}", err=True)
            folder.clear()

    def trials(self, store: Store) -> list[Trial]:
        return self.search.trials(store)[: self.wanted]

    def _jobs(self, store: Store, device: torch.device, job: Callable[..., Job]) -> Iterator[Job]:
        """Trials to train, each drawn when it is asked for, on what is known by then; those left open come first."""
        facts = environment.describe(device)
        tried: set[str] = set()
        while True:
            trials = self.trials(store)
            trial = next((trial for trial in trials if trial.is_wanted and trial.key not in tried), None)
            if trial is None and len(trials) < self.wanted and (trial := self.search.draw(trials)):
                self.search.record(trial, store, environment.digest(facts), facts)
            if trial is None:
                return
            tried.add(trial.key)
            label = f"[{trial.number + 1}/{self.wanted}] {self.search.model} {_settings(trial)}"
            yield job(spec=trial.resolved.spec, label=label, rule=self.search.rule(trials))

    def tell_trials(self, store: Store, options: Sequence[str]) -> None:
        """The best trials, and the command that trains the best with more seeds, with these options of this one."""
        from rich.table import Table

        trials = self.trials(store)
        sign = 1 if self.search.goal == "min" else -1
        finished = [trial for trial in trials if trial.state == "finished" and trial.best is not None]
        finished.sort(key=lambda trial: sign * (trial.best or 0.0))
        others = [trial for trial in trials if trial not in finished]
        table = Table("trial", "run", "settings", "state", "judged by", "best", box=None)
        for trial in (*finished, *others)[:SHOWN]:
            judge = f"{trial.split} {self.search.task_class.metric}"
            state = trial.run.message if trial.run and trial.state == "pruned" else trial.state
            table.add_row(str(trial.number + 1), trial.key, _settings(trial), state, judge, cell(trial.best))
        console().print(table)
        if len(trials) > SHOWN:
            typer.echo(f"and {len(trials) - SHOWN} more")
        if len(trials) < self.wanted:
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
        typer.echo(f"the best with more seeds:\n    {self._command(best, options)}")

    def _command(self, trial: Trial, options: Sequence[str]) -> str:
        settings = {**self.search.given, **trial.chosen}
        given = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        words = ["orthobench", "sweep", self.search.task, "--models", self.search.model, *given]
        return shlex.join([*words, "--seeds", str(SEEDS), *options])


def _settings(trial: Trial) -> str:
    return " ".join(f"{name}={value}" for name, value in trial.chosen.items())


def _one_by_one(jobs: Iterator[Job], stop: training.StopRequest) -> Iterator[Outcome]:
    for job in jobs:
        with Progress(job.label) as progress:
            outcome = attempt(job, progress, stop)
        yield outcome
