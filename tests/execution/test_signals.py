"""Ctrl-C and the end of a terminal stop runs at once; with nohup, and behind a closed pipe, they go on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from orthobench.execution.session import StopRequest, stop_on_signals
from orthobench.store import open_store
from orthobench.store.open import DatabaseNotFoundError

LONG = {"train_size": "4000", "epochs": "1000", "evaluate_every": "50"}
"""Settings of a run that takes minutes."""
WAIT_SECONDS = 120


def wait_for_rows(folder: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with suppress(DatabaseNotFoundError), open_store(str(folder / "results.db")) as store:
            if any(store.metrics([run.id]) for run in store.runs()):
                return
        time.sleep(0.1)
    pytest.fail("the run has no rows")


def runs(folder: Path) -> list:
    with open_store(str(folder / "results.db")) as store:
        return [(run.status, run.message) for run in store.runs()]


def command(settings: dict[str, str], *words: str) -> list[str]:
    assignments = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    return [
        sys.executable,
        "-m",
        "orthobench",
        *words,
        *assignments,
        "--db",
        "results.db",
        "--checkpoint-every",
        "1000",
    ]


SWEEP = ("sweep", "adding", "--models", "rnn", "-j", "1")


@pytest.mark.parametrize("words", [("run", "adding", "rnn"), pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_a_terminal_that_closes_stops_runs_with_a_checkpoint(words, tmp_path, tiny):
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, command(tiny | LONG, *words))
    closing = threading.Event()

    def read_output() -> None:  # a full terminal would block the process
        with suppress(OSError):
            while not closing.is_set():
                os.read(terminal, 1 << 16)

    reader = threading.Thread(target=read_output, daemon=True)
    try:
        reader.start()
        wait_for_rows(tmp_path)
        closing.set()
        reader.join(1)  # after the next output
        os.close(terminal)
        _, status = os.waitpid(process, 0)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    assert os.waitstatus_to_exitcode(status) == 130
    assert runs(tmp_path) == [("interrupted", None)]
    assert list((tmp_path / "results.db.checkpoints").glob("*/checkpoint.pt"))


def test_a_run_under_nohup_goes_on(tmp_path, tiny):
    words = ["nohup", *command(tiny | LONG | {"epochs": "3"}, "run", "adding", "rnn")]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_rows(tmp_path)
        process.send_signal(signal.SIGHUP)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
    assert runs(tmp_path) == [("finished", None)]


def test_a_repeated_hangup_does_not_stop_at_once(monkeypatch):
    monkeypatch.setattr("orthobench.execution.session.leave_terminal", lambda: None)
    before, request = signal.getsignal(signal.SIGHUP), StopRequest()
    with stop_on_signals(request):
        assert not request()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert request.is_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is before


def test_an_ignored_hangup_stays_ignored():
    before, request = signal.signal(signal.SIGHUP, signal.SIG_IGN), StopRequest()
    try:
        with stop_on_signals(request):
            signal.raise_signal(signal.SIGHUP)
        assert not request.is_requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


RUN = ("run", "adding", "rnn")


@pytest.mark.parametrize("words", [RUN, pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_a_run_goes_on_after_its_pipe_has_closed(words, tmp_path, tiny):
    reader, writer = os.pipe()
    words = command(tiny | {"train_size": "400", "epochs": "20"}, *words)
    process = subprocess.Popen(words, cwd=tmp_path, stdout=writer, stderr=writer)
    try:
        os.close(writer)
        assert os.read(reader, 1)
        os.close(reader)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
    assert runs(tmp_path) == [("finished", None)]


def stopped(process: subprocess.Popen) -> tuple[int, str]:
    """Press Ctrl-C: return the exit code and what the processes of the group still print."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, printed = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    return process.returncode, printed


def start(words: list[str], folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(condition, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which libraries are loaded")
@pytest.mark.slow  # a library's import may swallow the interrupt, rarely
def test_ctrl_c_while_torch_is_loaded_is_one_line(tmp_path, tiny):
    process = start(command(tiny, *RUN), tmp_path)
    wait_for(lambda: "libtorch_cpu" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    assert stopped(process) == (130, "stopped\n")


SLEEPER = """
import time
from pathlib import Path
from orthobench.tasks.adding import Adding

class Sleeper(Adding):
    def __init__(self, *arguments):
        Path("asleep").touch()
        time.sleep(1000)
"""


@pytest.mark.parametrize("words", [RUN, pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_ctrl_c_while_data_is_made_stops_at_once(words, tmp_path, tiny):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    with open_store(str(tmp_path / "results.db"), create=True):  # an existing database is not preceded by a trial
        pass
    words = command(tiny, words[0], "sleeper", *words[2:], "--plugin", "sleeper.py")
    process = start(words, tmp_path)
    wait_for((tmp_path / "asleep").exists, process)
    code, printed = stopped(process)
    assert (code, printed.splitlines()[-1]) == (130, "stopped; the same command resumes")
    assert "Traceback" not in printed
    assert [status for status, _ in runs(tmp_path)] in ([], ["interrupted"])


@pytest.mark.slow
def test_ctrl_c_during_an_estimate_is_one_line(tmp_path, tiny):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    words = ["sweep", "sleeper", "--models", "rnn", "--dry-run", "--plugin", "sleeper.py"]
    process = start(command(tiny, *words), tmp_path)
    wait_for((tmp_path / "asleep").exists, process)
    code, printed = stopped(process)
    assert code == 130
    assert printed.splitlines() == ["trying a few steps of rnn", "stopped; the same command resumes"]
