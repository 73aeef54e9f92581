"""What TensorBoard, MLflow, Trackio and Weights & Biases hold of a run, read by their own readers and formats."""

from __future__ import annotations

import json
import sqlite3
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KEY_OF_POINT = tuple[str, int]


@dataclass
class Held:
    """A run at a destination; `doubles` are the points that occur more than once."""

    name: str
    points: dict[KEY_OF_POINT, float]
    doubles: list[KEY_OF_POINT]
    settings: dict[str, str]
    tags: list[str]
    status: str


def read_back(kind: str, location: Path, key: str) -> Held:
    """The only run of this key."""
    (run,) = all_of(kind, location, key)
    return run


def all_of(kind: str, location: Path, key: str) -> list[Held]:
    """The runs of this key, those with fewer points first."""
    read = {"tensorboard": _tensorboard, "mlflow": _mlflow, "trackio": _trackio, "wandb": _wandb}[kind]
    return sorted(read(location, key), key=lambda run: len(run.points))


def as_sent(kind: str, points: dict[KEY_OF_POINT, float]) -> dict[KEY_OF_POINT, float]:
    """The numbers as this destination holds them: TensorBoard in float32."""
    return {at: float(np.float32(value)) for at, value in points.items()} if kind == "tensorboard" else points


def stored(store, key: str) -> dict[KEY_OF_POINT, float]:
    """The points of the rows of the database."""
    run = store.find(key)
    points = {}
    for row in store.metrics([run.id]):
        points[row.name if row.split == "probe" else f"{row.name}/{row.split}", row.iteration] = row.value
    for row in store.traces([run.id]):
        values = list(row.values)
        parts = {"first": values[0], "last": values[-1], "least": min(values), "largest": max(values)}
        points |= {(f"{row.name}/{part}", row.iteration): value for part, value in parts.items()}
    return points


def _as_read(
    name: str, points: list[tuple[KEY_OF_POINT, float]], settings: dict[str, Any], tags: list[str], status: str
):
    doubles = [at for at, count in Counter(at for at, _ in points).items() if count > 1]
    shown = {key: "none" if value is None else str(value) for key, value in settings.items()}
    return Held(name, dict(points), doubles, shown, tags, status)


def _tensorboard(location: Path, key: str) -> Iterator[Held]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginReader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    folder = location / key
    if not folder.exists():
        return
    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    reader.Reload()
    points, texts = [], []
    for tag in reader.Tags()["tensors"]:
        if tag == "orthobench/run/text_summary":
            texts = [make_ndarray(event.tensor_proto).item() for event in reader.Tensors(tag)]
            continue
        points += [((tag, event.step), float(make_ndarray(event.tensor_proto))) for event in reader.Tensors(tag)]
    record = json.loads(texts[-1])
    plugins = PluginReader(str(folder))
    plugins.Reload()
    session = plugins.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(session).session_start_info.hparams
    settings = {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}
    whole = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in settings.items()
    }
    yield _as_read(folder.name, points, whole, record["tags"], record["status"])


def _mlflow(location: Path, key: str) -> Iterator[Held]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{location}/mlflow.db")
    experiment = client.get_experiment_by_name("orthobench")
    assert experiment is not None
    for run in client.search_runs([experiment.experiment_id], f"tags.`orthobench.key` = '{key}'"):
        points = [
            ((name, metric.step), metric.value)
            for name in run.data.metrics
            for metric in client.get_metric_history(run.info.run_id, name)
        ]
        tags = [tag for tag in run.data.tags["orthobench.tags"].split(", ") if tag]
        status = run.data.tags["orthobench.status"]
        states = {"finished": "FINISHED", "interrupted": "KILLED", "running": "RUNNING"}
        assert run.info.status == states.get(status, "FAILED")
        yield _as_read(run.info.run_name, points, run.data.params, tags, status)


def _trackio(location: Path, key: str) -> Iterator[Held]:
    """Read the tables of the project, because the package itself reads only the folder it was imported for."""
    with closing(sqlite3.connect(location / "orthobench.db")) as database:
        runs = database.execute("SELECT run_id, config FROM configs WHERE run_name = ?", (key,)).fetchall()
        rows = database.execute("SELECT run_id, step, metrics FROM metrics WHERE run_name = ?", (key,)).fetchall()
    special = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}
    for run, config in runs:
        own = [(step, json.loads(row)) for each, step, row in rows if each == run]
        points = [((name, step), special.get(str(value), value)) for step, row in own for name, value in row.items()]
        entries = json.loads(config)
        tags = [tag for tag in entries["orthobench.tags"].split(", ") if tag]
        yield _as_read(key, points, entries, tags, entries["orthobench.status"])


def _wandb_records(file: Path) -> list[Any]:
    """The records of an ended offline run, whose last ones wandb's own process may write after `finish` returns."""
    deadline = time.monotonic() + 30
    while True:
        records = list(_written(file))
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        assert time.monotonic() < deadline, f"{file} does not say that its run has ended"
        time.sleep(0.02)


def _written(file: Path) -> Iterator[Any]:
    """Yield the records of a file: protocol buffers in LevelDB's log format, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # its classes are made when it is imported
    data, position, part = file.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, position)
        part += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or the end of one
            record = messages.Record()
            record.ParseFromString(part)
            part = b""
            yield record


def _wandb(location: Path, key: str) -> Iterator[Held]:
    runs = map(_wandb_run, (location / "wandb").glob("*/run-*.wandb"))
    return (run for run in runs if run.name == key)


def _wandb_run(file: Path) -> Held:
    points: list[Any] = []
    summary: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    tags: list[str] = []
    name = ""
    for record in _wandb_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name, tags = record.run.display_name or name, list(record.run.tags) or tags
            settings |= {entry.key: json.loads(entry.value_json) for entry in record.run.config.update}
        elif kind == "summary":
            summary |= {_name(entry): entry.value_json for entry in record.summary.update}
        elif kind == "history":
            row = {_name(entry): json.loads(entry.value_json) for entry in record.history.item}
            points += [((name_, row["_step"]), float(value)) for name_, value in row.items() if name_[0] != "_"]
    status = json.loads(summary.get("status", '"running"'))
    return _as_read(name, points, settings, tags, status)


def _name(entry) -> str:
    return entry.key or "/".join(entry.nested_key)
