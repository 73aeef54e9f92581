"""Runs for Trackio: rows of the database of its project, each run named by its key, which `trackio show` opens.

Written through Trackio's own storage and not with `trackio.init`, which prints, ends the run before it, and gives a
second run of one name another one.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from trackio import SQLiteStorage

from orthobench.sinks.run_record import LoggedPoints, RunRecord
from orthobench.system.location import variable

PROJECT = variable("TRACKIO_PROJECT") or "orthobench"


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

    def open(self, record: RunRecord) -> TrackioRun:
        """Begin a run and return a writer."""
        return TrackioRun(record)


class TrackioRun:
    """Writes one run."""

    def __init__(self, record: RunRecord) -> None:
        self.id, self.record, self.last = uuid.uuid4().hex, record, 0

    def add(self, points: LoggedPoints) -> None:
        rows = {
            iteration: {name: value for (name, _), value in row}
            for iteration, row in groupby(points.items(), key=lambda point: point[0][1])
        }
        self._write(rows, self.record)

    def end(self, record: RunRecord) -> None:
        # A row without numbers, because a configuration is only stored together with one.
        self._write({self.last: {}}, record)

    def _write(self, rows: dict[int, dict[str, float]], record: RunRecord) -> None:
        self.last = max((self.last, *rows))
        facts = {**record.facts, "tags": ", ".join(record.tags), "status": record.status, "message": record.message}
        config: dict[str, Any] = dict(record.settings) | {f"orthobench.{name}": value for name, value in facts.items()}
        # As Trackio writes it: its page groups runs by this entry.
        config |= {"_Group": str(record.facts["variant"]), "_Created": record.started_at.isoformat()}
        SQLiteStorage.bulk_log(
            PROJECT,
            record.key,
            list(rows.values()),
            steps=list(rows),
            timestamps=[datetime.now(UTC).isoformat()] * len(rows),
            config=config,
            run_id=self.id,
        )
