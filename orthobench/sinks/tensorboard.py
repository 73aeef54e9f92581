"""Runs for TensorBoard: one folder per run, named by its key, with event files of `torch.utils.tensorboard`.

Numbers are float32, because TensorBoard's default loader drops scalars of any other type.
"""

from __future__ import annotations

import json
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.util.tensor_util import make_ndarray
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from orthobench.sinks.destination import Change
from orthobench.sinks.run_record import LoggedPoints, RunRecord, equal
from orthobench.store import Status
from orthobench.store.result import as_name

SUFFIX = ".orthobench"
"""The suffix of the event files that this module writes and may replace."""
RECORD = "orthobench/run"
"""The tag of the text summary that holds the run's record as JSON."""


class TensorBoard:
    """A folder of runs for `tensorboard --logdir`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, record: RunRecord, points: LoggedPoints) -> TensorBoardRun:
        """Open the run, replace event files with other points, and return a writer.

        Raises:
            DamagedError: the run's key cannot be a file name.
        """
        folder = self.folder / as_name(record.key)
        earlier = _own_files(folder)
        if earlier:
            sent, content = _read(folder)
            if sent is not None and equal(sent, {at: _storable(value) for at, value in points.items()}):
                same = content == record.content()
                return TensorBoardRun(folder, Change.UNCHANGED if same else Change.CONTINUED, record, same)
        writer = TensorBoardRun(folder, Change.REPLACED if earlier else Change.ADDED, record, False)
        writer.add(points)
        for file in earlier:
            # Only now, because an export that fails should leave the earlier file.
            file.unlink(missing_ok=True)
        return writer


class TensorBoardRun:
    """Writes one run; the event file is created with the first change.

    Args:
        is_same: whether the folder already holds this record.
    """

    def __init__(self, folder: Path, change: Change, record: RunRecord, is_same: bool) -> None:
        self.folder, self.change, self.record, self._is_same = folder, change, record, is_same
        self._writer: Any = None

    def _open(self) -> Any:
        if self._writer is None:
            # Purging from step 0 makes a running TensorBoard forget the points of replaced files.
            purge = 0 if self.change == Change.REPLACED else None
            self._writer = SummaryWriter(str(self.folder), purge_step=purge, filename_suffix=SUFFIX)
            settings = {name: value for name, value in self.record.settings.items() if value != ""}
            experiment, start, _ = hparams(settings, {})
            for summary in (experiment, start):
                self._writer.file_writer.add_summary(summary)
            self._write_record(self.record)
        return self._writer

    def _write_record(self, record: RunRecord) -> None:
        self._writer.add_text(RECORD, json.dumps(record.content(), sort_keys=True))

    def add(self, points: LoggedPoints) -> None:
        writer = self._open()
        # With its zone, because timestamp() takes a time without one as local, and the database's are in UTC.
        started = self.record.started_at.replace(tzinfo=UTC).timestamp()
        now = time.time() if self.record.is_running else started
        for (name, iteration), value in points.items():
            writer.add_scalar(name, value, iteration, walltime=now, new_style=True)
        writer.flush()

    def end(self, record: RunRecord) -> None:
        if not self._is_same or record.content() != self.record.content():
            writer = self._open()
            self._write_record(record)
            if not record.is_running:
                writer.file_writer.add_summary(_session_end(record.status == Status.FINISHED))
        if self._writer is not None:
            self._writer.close()


def _session_end(is_finished: bool) -> Summary:
    """Return the end of a run for the hyper-parameters page, because TensorBoard's function needs TensorFlow."""
    end = SessionEndInfo(status=api_pb2.STATUS_SUCCESS if is_finished else api_pb2.STATUS_FAILURE)
    content = HParamsPluginData(session_end_info=end, version=metadata.PLUGIN_DATA_VERSION).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content)
    name = metadata.SESSION_END_INFO_TAG
    return Summary(value=[Summary.Value(tag=name, metadata=SummaryMetadata(plugin_data=plugin))])


def _storable(value: float) -> float:
    """Return a value as event files store it: in float32, where numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _own_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"events.out.tfevents.*{SUFFIX}"))


def _read(folder: Path) -> tuple[LoggedPoints | None, dict[str, Any] | None]:
    """Return the points of a run's folder, None if one occurs twice, and the run's last record."""
    # 0 keeps all, because the reader otherwise takes a sample of them.
    events = EventAccumulator(str(folder), size_guidance={TENSORS: 0})
    events.Reload()
    points: LoggedPoints = {}
    content = None
    for tag in events.Tags()[TENSORS]:
        if tag == f"{RECORD}/text_summary":
            content = json.loads(make_ndarray(events.Tensors(tag)[-1].tensor_proto).item())
            continue
        for event in events.Tensors(tag):
            if (tag, event.step) in points:
                return None, content
            points[tag, event.step] = float(make_ndarray(event.tensor_proto))
    return points, content
