"""Runs for Weights & Biases: each is an offline run, named by its key, which `wandb sync` sends later.

With WANDB_MODE=online the runs go to the server at once, with the login that `wandb login` has stored.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import wandb

from orthobench.sinks.destination import Change
from orthobench.sinks.run_record import LoggedPoints, RunRecord
from orthobench.store import Status
from orthobench.system import files

PROJECT = os.environ.get("WANDB_PROJECT") or "orthobench"
MARK = "orthobench.json"
"""The file next to an offline run that marks it as written by this module and says what it holds."""
REPLACED = "replaced-"


class WeightsAndBiases:
    """A folder; the package writes to the folder `wandb` inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mode: Literal["online", "offline"] = "online" if os.environ.get("WANDB_MODE") == "online" else "offline"
        folder.mkdir(parents=True, exist_ok=True)

    def open(self, record: RunRecord, points: LoggedPoints) -> WandbRun:
        """Open the run and return a writer; an offline run holds the whole series and replaces an earlier one."""
        earlier = self._own_folders(record.key)
        if [_digest_in(folder) for folder in earlier] == [record.digest(points)]:
            return WandbRun(None, record, points, Change.UNCHANGED)
        change = Change.REPLACED if earlier else Change.ADDED
        # An offline run started in the same second would have the same name, and `wandb sync` would not notice a
        # replacement.
        while any(time.strftime("-run-%Y%m%d_%H%M%S-") in folder.name for folder in earlier):
            time.sleep(0.05)
        # Set aside and not removed yet, because the export may still fail.
        moved = [folder.rename(folder.with_name(REPLACED + folder.name)) for folder in earlier]
        run: Any = wandb.init(
            project=PROJECT,
            id=record.key,
            name=record.key,
            group=str(record.facts["variant"]),
            # Cut, because Weights & Biases refuses longer ones.
            tags=[tag[:64] for tag in record.tags],
            config=dict(record.settings) | {f"orthobench.{name}": value for name, value in record.facts.items()},
            mode=self.mode,
            dir=str(self.folder),
            resume="allow" if self.mode == "online" else None,
            settings=_settings(),
        )
        if self.mode == "offline":
            files.write_bytes(Path(run.settings.sync_dir) / MARK, b"{}")
        elif run.resumed:  # the server keeps the points it has, and accepts later ones
            points = {(name, iteration): value for (name, iteration), value in points.items() if iteration >= run.step}
        writer = WandbRun(run, record, {}, change)
        writer.add(points)
        for folder in moved:
            shutil.rmtree(folder, ignore_errors=True)
        return writer

    def _own_folders(self, key: str) -> list[Path]:
        folders = sorted((self.folder / "wandb").glob(f"offline-run-*-{key}"))
        return [folder for folder in folders if (folder / MARK).exists()]


class WandbRun:
    """Writes one run; `run` is None if there is nothing to write."""

    def __init__(self, run: Any, record: RunRecord, points: LoggedPoints, change: Change) -> None:
        self.run, self.record, self.points, self.change = run, record, points, change

    def add(self, points: LoggedPoints) -> None:
        self.points = self.points | points
        for iteration, rows in groupby(points.items(), key=lambda point: point[0][1]):
            self.run.log({name: value for (name, _), value in rows}, step=iteration)

    def end(self, record: RunRecord) -> None:
        if self.run is None:
            return
        self.run.tags = tuple(tag[:64] for tag in record.tags)
        self.run.summary.update({"status": record.status, "message": record.message})
        self.run.finish(exit_code=0 if record.status == Status.FINISHED else 1)
        if self.run.offline:
            mark = json.dumps({"holds": record.digest(self.points)}).encode()
            files.write_bytes(Path(self.run.settings.sync_dir) / MARK, mark)


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


def _digest_in(folder: Path) -> str:
    return str(json.loads((folder / MARK).read_bytes()).get("holds", ""))
