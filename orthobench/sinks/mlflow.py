"""Runs in MLflow: each is a run of the experiment `orthobench`, named by its key."""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from mlflow.entities import Metric, Param, Run
from mlflow.tracking import MlflowClient

from orthobench.sinks.destination import Change
from orthobench.sinks.run_record import LoggedPoints, RunRecord, same_number
from orthobench.store import Status

EXPERIMENT = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "orthobench"
KEY, TAGS, STATUS, MESSAGE = "orthobench.key", "orthobench.tags", "orthobench.status", "orthobench.message"
METRICS_AT_ONCE, PARAMETERS_AT_ONCE = 1000, 100  # limits of MLflow's log_batch
STATES = {
    str(Status.RUNNING): "RUNNING",
    str(Status.FINISHED): "FINISHED",
    str(Status.INTERRUPTED): "KILLED",
}
"""MLflow's status by a run's status; all other runs are FAILED, and the tag `orthobench.status` gives the reason."""

os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # else each run's end prints two lines
for _logger in ("mlflow", "alembic", "urllib3.connectionpool"):
    logging.getLogger(_logger).setLevel(logging.ERROR)  # the caller reports failures in one line


class MLflow:
    """A tracking server or a database file, given by its tracking URI."""

    def __init__(self, uri: str) -> None:
        file = uri.removeprefix("sqlite:///")
        if file != uri:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        self.client = MlflowClient(tracking_uri=uri)
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        self.experiment = experiment.experiment_id if experiment else self.client.create_experiment(EXPERIMENT)

    def open(self, record: RunRecord, points: LoggedPoints) -> MLflowRun:
        """Open the run, add the points that it lacks, and return a writer.

        Because MLflow cannot delete a point, a run with points that are not in the database is deleted and created
        again.
        """
        earlier = self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{record.key}'")
        change = Change.REPLACED if earlier else Change.ADDED
        if len(earlier) == 1:
            sent = self._points(earlier[0])
            stored = {at: _storable(value) for at, value in points.items()}
            if sent is not None and all(at in stored and same_number(value, stored[at]) for at, value in sent.items()):
                missing = {at: value for at, value in points.items() if at not in sent}
                same = not missing and _is_same(earlier[0], record)
                writer = MLflowRun(self.client, earlier[0], record, Change.UNCHANGED if same else Change.CONTINUED)
                if not same:
                    writer.begin()
                    writer.add(missing)
                return writer
        for run in earlier:
            self.client.delete_run(run.info.run_id)
        run = self.client.create_run(self.experiment, _milliseconds(record.started_at), {KEY: record.key}, record.key)
        writer = MLflowRun(self.client, run, record, change)
        parameters = [Param(name, str(value)) for name, value in record.settings.items()]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self.client.log_batch(run.info.run_id, params=parameters[start : start + PARAMETERS_AT_ONCE])
        for name, value in record.facts.items():
            self.client.set_tag(run.info.run_id, f"orthobench.{name}", value)
        writer.begin()
        writer.add(points)
        return writer

    def _points(self, run: Run) -> LoggedPoints | None:
        """Return the points of a run; None if one occurs twice."""
        points: LoggedPoints = {}
        for name in run.data.metrics:
            for metric in self.client.get_metric_history(run.info.run_id, name):
                if (name, metric.step) in points:
                    return None
                points[name, metric.step] = metric.value
        return points


class MLflowRun:
    """Writes one run."""

    def __init__(self, client: MlflowClient, run: Run, record: RunRecord, change: Change) -> None:
        self.client, self.id, self.record, self.change = client, run.info.run_id, record, change

    def begin(self) -> None:
        """Write the run's state before its points."""
        self._write_state(self.record)

    def add(self, points: LoggedPoints) -> None:
        now = int(1000 * time.time()) if self.record.is_running else _milliseconds(self.record.updated_at)
        metrics = [Metric(name, _storable(value), now, iteration) for (name, iteration), value in points.items()]
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            self.client.log_batch(self.id, metrics=metrics[start : start + METRICS_AT_ONCE])

    def end(self, record: RunRecord) -> None:
        if self.change != Change.UNCHANGED or record.content() != self.record.content():
            self._write_state(record)

    def _write_state(self, record: RunRecord) -> None:
        for name, value in _state_tags(record).items():
            self.client.set_tag(self.id, name, value)
        if record.is_running:
            self.client.update_run(self.id, STATES[record.status])
        else:
            state = STATES.get(record.status, "FAILED")
            self.client.set_terminated(self.id, state, _milliseconds(record.updated_at))


def _state_tags(record: RunRecord) -> dict[str, str]:
    return {TAGS: ", ".join(record.tags), STATUS: record.status, MESSAGE: record.message}


def _is_same(run: Run, record: RunRecord) -> bool:
    """Return whether a run has this record's tags, status and message; its settings are determined by its key."""
    return all(run.data.tags.get(name, "") == value for name, value in _state_tags(record).items())


def _storable(value: float) -> float:
    """Return a value as MLflow's databases store it, with the largest number instead of infinity."""
    return max(-sys.float_info.max, min(sys.float_info.max, value)) if value == value else value


def _milliseconds(moment: datetime) -> int:
    return int(1000 * moment.replace(tzinfo=UTC).timestamp())
