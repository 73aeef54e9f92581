"""A process that has imported PyTorch once, and forks a worker for each run.

Importing PyTorch takes seconds, which is longer than a short run trains. The server itself starts no thread and opens
no CUDA context, because neither survives a fork. Parent and server exchange one JSON object per packet. A request
carries the three descriptors that become the worker's input, output and error output. The answers are the process
number of the worker, and later its exit code. The first packet of all says that PyTorch is imported. The server ends
when its parent does.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from orthobench.executors import worker
from orthobench.system.cores import set_session_niceness

PACKET = 1 << 16
"""Largest size of a packet in bytes."""
LOST = 255
"""The exit code of a worker whose server was killed, so that nobody knows the real one."""


class Forked:
    """A worker process. The methods behave like those of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._ended = threading.Event()

    def kill(self) -> None:
        """Kill the process unless it has ended."""
        # Not after its end, because the system may have given its number to another process.
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return its exit code, or the negative number of a signal.

        Raises:
            subprocess.TimeoutExpired: it has not ended after `timeout` seconds.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        assert self._code is not None
        return self._code

    def end(self, code: int) -> None:
        """Record the exit code."""
        self._code = code
        self._ended.set()


class ForkServer:
    """The server as its parent sees it: started on construction, and stopped by `close`.

    Args:
        environment: the environment of the server and, except for what `fork` adds, of the workers.

    Attributes:
        is_ready: whether the server has imported PyTorch, so that `fork` does not wait for it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Packets and no stream, because descriptors have to arrive together with the request that they belong to.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "orthobench.executors.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.is_ready = False
        self._alive: dict[int, Forked] = {}
        self._answers: queue.SimpleQueue[Forked | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def fork(self, environment: Mapping[str, str], descriptors: tuple[int, int, int]) -> Forked:
        """Start a worker with these variables, input, output and error output.

        Raises:
            OSError: the server has ended, or the system has no memory or process left.
        """
        socket.send_fds(self._socket, [json.dumps(dict(environment)).encode()], descriptors)
        worker = self._answers.get()
        if worker is None:
            raise OSError(0, "the process that forks workers has ended or cannot fork")
        return worker

    def close(self) -> None:
        """Stop the server. Workers go on."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.process.wait()

    def _read(self) -> None:
        """Read the server's answers until it ends."""
        while packet := self._receive():
            message: dict[str, Any] = json.loads(packet)
            if "ready" in message:
                self.is_ready = True
            elif (pid := message["pid"]) is None:
                self._answers.put(None)
            elif "code" in message:
                self._alive.pop(pid).end(message["code"])
            else:
                self._alive[pid] = worker = Forked(pid)
                self._answers.put(worker)
        for worker in self._alive.values():
            worker.end(LOST)
        self._answers.put(None)  # for a request that is waiting

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(PACKET)
        # No error, because `close` shuts the socket down while this thread reads.
        except OSError:
            return b""


def serve(parent: socket.socket) -> bool:
    """Fork workers as the parent asks; return True in a worker, and False in the server once the parent has ended."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    parent.send(json.dumps({"ready": True}).encode())
    while True:
        ready, _, _ = select.select([parent, woken], [], [])
        if woken in ready:
            woken.recv(PACKET)
            _report_ends(parent)
        if parent in ready:
            packet, descriptors, _, _ = socket.recv_fds(parent, PACKET, 3)
            if not packet:
                return False
            pid: int | None = None
            with suppress(OSError):
                pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for each_signal in (signal.SIGCHLD, signal.SIGINT):
                    signal.signal(each_signal, signal.SIG_DFL)
                for each in (parent, woken, wake):
                    each.close()
                os.setsid()
                os.environ.update(json.loads(packet))
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
            for descriptor in descriptors:
                os.close(descriptor)
            if pid == 0:
                return True
            parent.send(json.dumps({"pid": pid}).encode())


def _report_ends(parent: socket.socket) -> None:
    """Tell the parent the exit codes of the workers that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        with suppress(OSError):  # if the parent has just ended, nobody asks
            parent.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def main() -> None:
    set_session_niceness(os.nice(0))  # because the server has a session of its own
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        worker.main()


if __name__ == "__main__":
    main()
