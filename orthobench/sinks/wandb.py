"""Runs for Weights & Biases: each is an offline run, named by its key, which `wandb sync` sends later.

With WANDB_MODE=online the runs go to the server at once, with the login that `wandb login` has stored.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import wandb

from orthobench.sinks.run_record import LoggedPoints, RunRecord
from orthobench.store import Status
from orthobench.system.location import variable

PROJECT = variable("WANDB_PROJECT") or "orthobench"


class WeightsAndBiases:
    """A folder; the package writes to the folder `wandb` inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def open(self, record: RunRecord) -> WandbRun:
        """Start a run and return a writer."""
        run = wandb.init(
            project=PROJECT,
            name=record.key,
            group=str(record.facts["variant"]),
            tags=_tags(record),
            config=dict(record.settings) | {f"orthobench.{name}": value for name, value in record.facts.items()},
            mode="online" if variable("WANDB_MODE") == "online" else "offline",
            dir=str(self.folder),
            settings=_settings(),
        )
        return WandbRun(run)


class WandbRun:
    """Writes one run."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def add(self, points: LoggedPoints) -> None:
        for iteration, rows in groupby(points.items(), key=lambda point: point[0][1]):
            self.run.log({name: value for (name, _), value in rows}, step=iteration)

    def end(self, record: RunRecord) -> None:
        self.run.tags = _tags(record)
        self.run.summary.update({"status": record.status, "message": record.message})
        self.run.finish(exit_code=0 if record.status == Status.FINISHED else 1)


def _tags(record: RunRecord) -> tuple[str, ...]:
    """Return the tags of a run, cut because Weights & Biases refuses longer ones."""
    return tuple(tag[:64] for tag in record.tags)


def _settings() -> wandb.Settings:
    """Return settings with which the package prints nothing and records nothing about this machine."""
    return wandb.Settings(
        silent=True,
        console="off",
        # Runs in addition to open ones, because a sweep trains several at once.
        reinit="create_new",
        symlink=False,
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        init_timeout=20,
        login_timeout=5,
    )
