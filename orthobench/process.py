"""The process: its cores and idle threads, the signals that stop it, and output that outlives its reader.

Output has no control characters.
"""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

IDLE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables that keep idle threads from occupying cores, unless the user has set them.

OpenMP threads spin after each operation of torch, and OpenBLAS threads in NumPy and SciPy slow down small computations
such as eigenvalues by a factor of a hundred.
"""


def quiet_idle_threads() -> None:
    """Set IDLE_THREADS for the libraries that this process has not imported yet."""
    for name, value in IDLE_THREADS.items():
        os.environ.setdefault(name, value)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_session_niceness(nice: int, process: int | str = "self") -> None:
    """Set the niceness of a process's session, where the system has one.

    Linux shares the cores among sessions first (`man 7 sched`, autogroup), so the niceness of a process alone counts
    only within its own session.
    """
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that was closed before this process, as by `>&-`.

    Otherwise the next file, such as a database, would get its descriptor, and with it what other code prints there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def send_nowhere(descriptor: int) -> None:
    """Discard all further output of a file descriptor."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def leave_terminal() -> None:
    """Discard the output of this process if its terminal has closed, because each write would fail."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                send_nowhere(descriptor)


_HARMFUL = {
    code: "?"
    for codes in (range(0x20), range(0x7F, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for code in codes
    if chr(code) not in "\t\n"
}
"""The control characters C0 and C1, DEL, and those that override the direction of writing."""


def harmless(text: str) -> str:
    """Replace each control character of a text by ?, except for line breaks and tabs."""
    return text.translate(_HARMFUL)


class HarmlessStream:
    """A text stream that writes ? instead of control characters.

    It hides the `buffer` of the stream, which would bypass the replacement. rich writes its own codes to the stream
    itself.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(harmless(text))

    def writelines(self, lines: Iterable[str]) -> None:
        self.rich_proxied_file.writelines(map(harmless, lines))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)


@contextmanager
def harmless_output() -> Iterator[None]:
    """Replace control characters in the output of the `with` block."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, HarmlessStream(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


@contextmanager
def lasting_output() -> Iterator[None]:
    """In the `with` block, discard the output as soon as its pipe or terminal has closed."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = streams


class _LastingFile(io.FileIO):
    """A file that accepts writes after its reader has gone."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            send_nowhere(self.fileno())
            return memoryview(data).nbytes


def _lasting(stream: TextIO) -> TextIO:
    """Return a stream that writes to the same file and survives its reader; a stream without a file is returned."""
    if isinstance(stream, HarmlessStream):
        return cast(TextIO, HarmlessStream(_lasting(stream.rich_proxied_file)))
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return stream
    with suppress(BrokenPipeError):  # the next write notices it
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_LastingFile(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        # PYTHONUNBUFFERED=1 gives streams that write through; a line at a time is prompt enough.
        line_buffering=getattr(stream, "line_buffering", False) or getattr(stream, "write_through", False),
    )


HANGUP = getattr(signal, "SIGHUP", None)
"""The signal that a process receives when its terminal closes; None on Windows."""
REQUESTS = (signal.SIGINT, signal.SIGTERM) if HANGUP is None else (signal.SIGINT, signal.SIGTERM, HANGUP)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to stop.

    SIGHUP is not among them if it is ignored, because then the user started the process with nohup.
    """
    return [number for number in REQUESTS if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def handled(handler: Callable[[int, FrameType | None], Any] = signal.default_int_handler) -> Iterator[None]:
    """In the `with` block, call a handler on each signal that asks this process to stop.

    The default handler treats each of them as Ctrl-C. Only the main thread can receive signals, so nothing changes in
    other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in stop_signals()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class LoadingTorch:
    """An import hook that lets Ctrl-C end the process at once while torch is being imported.

    The import of torch calls C code that may drop a KeyboardInterrupt. Ending the process is safe, because nothing is
    open or written before this import.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec of torch whose import ends the process on Ctrl-C; None for any other module."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_stop(module: ModuleType) -> None:
                with ending_at_once():
                    load(module)

            spec.loader.exec_module = load_and_stop  # type: ignore[method-assign]
        return spec


def stop_while_torch_is_loaded() -> None:
    """Let Ctrl-C end this process at once while torch is being imported, whenever that happens."""
    if "torch" not in sys.modules and not any(isinstance(finder, LoadingTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, LoadingTorch())


@contextmanager
def ending_at_once() -> Iterator[None]:
    """In the `with` block, end the process on Ctrl-C with one line and exit code 130, without an exception.

    Nothing changes in other threads than the main one, or if the program has its own handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


class Stopped(KeyboardInterrupt):
    """The user stopped the session. Every run has its checkpoint, so the same call resumes the runs."""


class StopRequest:
    """The request to stop. The first Ctrl-C stops runs after their current iteration, the second one immediately.

    The first one also stops immediately if no code checks the request yet, for example while data is loaded. A terminal
    that closes may send SIGHUP more than once, so this signal never stops immediately.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.is_requested = self.is_watched = False
        self.on_request = on_request

    def __call__(self) -> bool:
        self.is_watched = True
        return self.is_requested

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: this is the second signal, or no code checks the request yet.
        """
        if number == HANGUP:
            leave_terminal()
        if not self.is_watched or (self.is_requested and number != HANGUP):
            raise KeyboardInterrupt
        self.is_requested = True
        self.on_request()


def stop_on_signals(request: StopRequest) -> AbstractContextManager[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request to stop."""
    return handled(request.handle)
