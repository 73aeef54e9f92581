"""Runs in MLflow: each is a run of the experiment `orthobench`, named by its key."""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from orthobench.sinks.run_record import LoggedPoints, RunRecord
from orthobench.store import Status
from orthobench.system.location import variable

EXPERIMENT = variable("MLFLOW_EXPERIMENT_NAME") or "orthobench"
METRICS_AT_ONCE, PARAMETERS_AT_ONCE = 1000, 100  # limits of MLflow's log_batch
STATES = {str(Status.FINISHED): "FINISHED", str(Status.INTERRUPTED): "KILLED"}
"""MLflow's status of a run that has ended; all others are FAILED, and the tag `orthobench.status` gives the reason."""

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

    def open(self, record: RunRecord) -> MLflowRun:
        """Create a run with its hyper-parameters and tags, and return a writer."""
        facts = {f"orthobench.{name}": str(value) for name, value in record.facts.items()}
        tags = {"orthobench.key": record.key, **facts, **_state(record)}
        run = self.client.create_run(self.experiment, _milliseconds(record.started_at), tags, record.key).info.run_id
        parameters = [Param(name, str(value)) for name, value in record.settings.items()]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self.client.log_batch(run, params=parameters[start : start + PARAMETERS_AT_ONCE])
        return MLflowRun(self.client, run, record)


class MLflowRun:
    """Writes one run."""

    def __init__(self, client: MlflowClient, run: str, record: RunRecord) -> None:
        self.client, self.id, self.record = client, run, record

    def add(self, points: LoggedPoints) -> None:
        now = int(1000 * time.time()) if self.record.is_running else _milliseconds(self.record.updated_at)
        metrics = [Metric(name, _storable(value), now, iteration) for (name, iteration), value in points.items()]
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            self.client.log_batch(self.id, metrics=metrics[start : start + METRICS_AT_ONCE])

    def end(self, record: RunRecord) -> None:
        for name, value in _state(record).items():
            self.client.set_tag(self.id, name, value)
        if not record.is_running:
            self.client.set_terminated(self.id, STATES.get(record.status, "FAILED"), _milliseconds(record.updated_at))


def _state(record: RunRecord) -> dict[str, str]:
    """Return the tags that change while a run trains."""
    state = {"tags": ", ".join(record.tags), "status": record.status, "message": record.message}
    return {f"orthobench.{name}": value for name, value in state.items()}


def _storable(value: float) -> float:
    """Return a value as MLflow's databases store it, with the largest number instead of infinity."""
    return max(-sys.float_info.max, min(sys.float_info.max, value)) if value == value else value


def _milliseconds(moment: datetime) -> int:
    return int(1000 * moment.replace(tzinfo=UTC).timestamp())
