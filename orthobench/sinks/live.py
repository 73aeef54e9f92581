"""Send runs to destinations while they train, from separate threads, so that failures never reach a run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from orthobench.errors import one_line, shell_command
from orthobench.sinks.destination import Destination, RunWriter
from orthobench.sinks.run_record import RunRecord, read_points
from orthobench.sinks.targets import Target
from orthobench.store import Status, Store
from orthobench.training.events import Evaluation, EventSink, RunEnd

CLOSE_SECONDS = 30.0
"""Time to send what is left at the end of a session."""

_logger = logging.getLogger("orthobench")


class LiveSinks:
    """The destinations of a session's runs. As a context manager it sends what is left at the end.

    Args:
        store: the database of the runs.
        targets: the destinations, each of which gets a thread.
    """

    def __init__(self, store: Store, targets: Sequence[Target]) -> None:
        self.channels = [_Channel(store, target) for target in targets]

    def __enter__(self) -> Self:
        for channel in self.channels:
            channel.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for channel in self.channels:
            channel.messages.put(None)
        for channel in self.channels:
            channel.join(CLOSE_SECONDS)
            if channel.is_alive() and not channel.has_failed:
                channel.warn(f"not everything was sent within {CLOSE_SECONDS:g} s")

    def sink(self, key: str) -> EventSink:
        """Return the sink of a run's events."""
        return _Notifier(self, key)

    def notify(self, key: str, *, starts: bool = False) -> None:
        """Ask every destination to read the new rows of a run, also of one without an end event, whose process died.

        Args:
            starts: whether the run begins or resumes in this session, so that it is sent anew.
        """
        for channel in self.channels:
            if not channel.has_failed:
                channel.messages.put((key, starts))


class _Notifier(EventSink):
    """A sink that stores no events; each event only signals that the database has new rows."""

    def __init__(self, sinks: LiveSinks, key: str) -> None:
        self.sinks, self.key = sinks, key

    def on_resume(self, iteration: int) -> None:
        self.sinks.notify(self.key, starts=True)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.sinks.notify(self.key)

    def on_end(self, end: RunEnd) -> None:
        self.sinks.notify(self.key)


@dataclass
class _OpenRun:
    """A run that is open at a destination.

    Attributes:
        iteration: the last one of which the destination has points, which are `sent`.
    """

    writer: RunWriter
    iteration: int = 0
    sent: set[tuple[str, int]] = field(default_factory=set)


class _Channel(threading.Thread):
    """The thread of one destination; after its first failure it warns once and then does nothing."""

    def __init__(self, store: Store, target: Target) -> None:
        # A daemon, because a server that does not answer must not keep the process from ending.
        super().__init__(name=f"orthobench {target.kind}", daemon=True)
        self.store, self.target = store, target
        self.messages: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self.has_failed = False
        self._lock = threading.Lock()
        self._destination: Destination | None = None
        self._open: dict[str, _OpenRun] = {}
        self._ended: set[str] = set()

    def run(self) -> None:
        """Process messages until the session ends, and then end the open runs."""
        try:
            while (message := self.messages.get()) is not None:
                self._serve(*message)
            # A list, because the end of a run removes it.
            for key in list(self._open):
                self._serve(key)
                self._end(key)
        except Exception as error:
            self.warn(one_line(error))

    def warn(self, reason: str) -> None:
        """Tell the user once that this destination receives nothing more, and how to send the rest."""
        # Locked, because the end of the session may give its own warning at the same time.
        with self._lock:
            if self.has_failed:
                return
            self.has_failed = True
        _logger.warning(
            "%s receives nothing more: %s. Training continues; fix it and send the runs with `%s`",
            self.target,
            reason,
            shell_command("db", "export", "--to", str(self.target), "--db", str(self.store.location)),
        )

    def _serve(self, key: str, starts: bool = False) -> None:
        """Send the new rows of a run, if the database has it, and its end."""
        if starts:
            self._end(key)  # its rows may have been rewound since
            self._ended.discard(key)
        run = self.store.find(key)
        if run is None or key in self._ended:
            return
        if self._destination is None:
            # Opened in this thread and not before, because it may wait for a server
            # or fail, which must not reach the run.
            self._destination = self.target.open()
        if key not in self._open:
            self._open[key] = _OpenRun(self._destination.open(RunRecord.of(run)))
        opened = self._open[key]
        points = {
            at: value for at, value in read_points(self.store, run, opened.iteration).items() if at not in opened.sent
        }
        opened.writer.add(points)
        opened.iteration = max((iteration for _, iteration in points), default=opened.iteration)
        opened.sent = {at for at in (*opened.sent, *points) if at[1] == opened.iteration}
        if run.status != Status.RUNNING:
            self._end(key)
            self._ended.add(key)

    def _end(self, key: str) -> None:
        """Send the state of a run that is open."""
        if (opened := self._open.pop(key, None)) is None:
            return
        run = self.store.find(key)
        assert run is not None, "runs are not deleted while they train"
        # Its process died or starts it anew, or the session ends before it does.
        opened.writer.end(RunRecord.of(run, Status.INTERRUPTED if run.status == Status.RUNNING else run.status))
