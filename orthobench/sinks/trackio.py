"""Runs for Trackio: rows of the database of its project, each run named by its key, which `trackio show` opens.

Written through Trackio's own storage and not with `trackio.init`, which prints, ends the run before it, and gives a run
that is continued another name.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from trackio import SQLiteStorage

from orthobench.sinks.destination import Change
from orthobench.sinks.run_record import LoggedPoints, RunRecord

PROJECT = os.environ.get("TRACKIO_PROJECT") or "orthobench"
HOLDS = "orthobench.holds"
"""The entry of a run's configuration with the hash of what it holds, once the run has ended."""


class Trackio:
    """A folder with the databases of Trackio, one for each project."""

    def __init__(self, folder: Path) -> None:
        """Check that the package writes to this folder.

        Raises:
            ValueError: it was imported for another one.
        """
        used = SQLiteStorage.get_project_db_path(PROJECT).parent
        if used.resolve() != folder.resolve():
            raise ValueError(f"trackio already writes to {used} in this process: use one folder for it")

    def open(self, record: RunRecord, points: LoggedPoints) -> TrackioRun:
        """Open the run and return a writer; a run that holds something else is written anew."""
        known = SQLiteStorage.get_run_config(PROJECT, record.key)
        if known is not None and known.get(HOLDS) == record.digest(points):
            return TrackioRun(None, record, points, Change.UNCHANGED)
        if known is not None:
            SQLiteStorage.delete_run(PROJECT, record.key)
        run = TrackioRun(record.key, record, {}, Change.ADDED if known is None else Change.REPLACED)
        run.add(points)
        return run


class TrackioRun:
    """Writes one run; `name` is None if there is nothing to write."""

    def __init__(self, name: str | None, record: RunRecord, points: LoggedPoints, change: Change) -> None:
        self.name, self.record, self.points, self.change = name, record, points, change
        self.last = max((iteration for _, iteration in points), default=0)

    def add(self, points: LoggedPoints) -> None:
        self.points = self.points | points
        rows = {
            iteration: {name: value for (name, _), value in row}
            for iteration, row in groupby(points.items(), key=lambda point: point[0][1])
        }
        self._write(rows, self.record, {})

    def end(self, record: RunRecord) -> None:
        if self.name is not None:
            # A row without numbers, because a configuration is only stored together with one.
            self._write({self.last: {}}, record, {HOLDS: record.digest(self.points)})

    def _write(self, rows: dict[int, dict[str, float]], record: RunRecord, mark: dict[str, str]) -> None:
        if self.name is None or not rows:
            return
        self.last = max(self.last, *rows)
        facts = {**record.facts, "tags": ", ".join(record.tags), "status": record.status, "message": record.message}
        config: dict[str, Any] = dict(record.settings) | {f"orthobench.{name}": value for name, value in facts.items()}
        # As Trackio writes it: its page groups runs by this entry.
        config |= {"_Group": str(record.facts["variant"]), "_Created": record.started_at.isoformat()}
        SQLiteStorage.bulk_log(
            PROJECT,
            self.name,
            list(rows.values()),
            steps=list(rows),
            timestamps=[datetime.now(UTC).isoformat()] * len(rows),
            config=config | mark,
        )
