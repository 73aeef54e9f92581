"""Runs for TensorBoard: one folder per run, named by its key, with an event file of `torch.utils.tensorboard`.

Numbers are float32, because TensorBoard's default loader drops scalars of any other type.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from orthobench.sinks.run_record import LoggedPoints, RunRecord
from orthobench.store import Status
from orthobench.store.result import as_name

SUFFIX = ".orthobench"
"""The suffix of the event files that this module writes and replaces."""
RECORD = "orthobench/run"
"""The tag of the text summary that holds the run's record as JSON."""


class TensorBoard:
    """A folder of runs for `tensorboard --logdir`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, record: RunRecord) -> TensorBoardRun:
        """Return a writer of a new event file, which replaces earlier ones of the run.

        Raises:
            DamagedError: the run's key cannot be a file name.
        """
        return TensorBoardRun(self.folder / as_name(record.key), record)


class TensorBoardRun:
    """Writes one run."""

    def __init__(self, folder: Path, record: RunRecord) -> None:
        self.earlier, self.record = list(folder.glob(f"events.out.tfevents.*{SUFFIX}")), record
        # Purging from step 0 makes a running TensorBoard forget the points of replaced files.
        purge = 0 if self.earlier else None
        self.writer: Any = SummaryWriter(str(folder), purge_step=purge, filename_suffix=SUFFIX)
        experiment, start, _ = hparams({name: value for name, value in record.settings.items() if value != ""}, {})
        for summary in (experiment, start):
            self._add(summary)
        self._write(record)

    def _add(self, summary: Summary) -> None:
        self.writer.file_writer.add_summary(summary)

    def _write(self, record: RunRecord) -> None:
        self.writer.add_text(RECORD, json.dumps(asdict(record), default=str, sort_keys=True))

    def add(self, points: LoggedPoints) -> None:
        # With its zone, because timestamp() takes a time without one as local, and the database's are in UTC.
        started = self.record.started_at.replace(tzinfo=UTC).timestamp()
        now = time.time() if self.record.is_running else started
        for (name, iteration), value in points.items():
            self.writer.add_scalar(name, value, iteration, walltime=now, new_style=True)
        self.writer.flush()
        while self.earlier:  # only now, because an export that fails should leave the earlier file
            self.earlier.pop().unlink(missing_ok=True)

    def end(self, record: RunRecord) -> None:
        self._write(record)
        if not record.is_running:
            self._add(_session_end(record.status == Status.FINISHED))
        self.writer.close()


def _session_end(is_finished: bool) -> Summary:
    """Return the end of a run for the hyper-parameters page, because TensorBoard's function needs TensorFlow."""
    end = SessionEndInfo(status=api_pb2.STATUS_SUCCESS if is_finished else api_pb2.STATUS_FAILURE)
    content = HParamsPluginData(session_end_info=end, version=metadata.PLUGIN_DATA_VERSION).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content)
    name = metadata.SESSION_END_INFO_TAG
    return Summary(value=[Summary.Value(tag=name, metadata=SummaryMetadata(plugin_data=plugin))])
