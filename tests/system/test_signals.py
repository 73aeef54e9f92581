"""Ctrl-C and the end of a terminal stop runs at once; with nohup, and behind a closed pipe, they go on."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.data import write_mnist

from orthobench.store import open_store
from orthobench.store.open import DatabaseNotFoundError
from orthobench.system.signals import StopRequest, ending_at_once, stop_on_signals

LONG = {"train_size": "4000", "epochs": "1000", "evaluate_every": "50"}
"""Settings of a run that takes minutes."""
WAIT_SECONDS = 120


@pytest.fixture(autouse=True)
def hangup():
    """Give each test, and the processes that it starts, the usual hangup: `nohup make test` ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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
WARNINGS = ("SIGUSR1", "SIGUSR2", "SIGXCPU")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "adding", "rnn"), "SIGUSR1"),
        *(pytest.param(("run", "adding", "rnn"), name, marks=pytest.mark.slow) for name in ("SIGTERM", *WARNINGS[1:])),
        *(pytest.param(SWEEP, name, marks=pytest.mark.slow) for name in ("SIGTERM", *WARNINGS)),
    ],
)
def test_signal_of_a_batch_system_to_all_processes_leaves_a_checkpoint(words, name, tmp_path, tiny):
    """Sent twice, as Linux repeats XCPU, to the command, the server of its workers and the worker."""
    process = subprocess.Popen(
        command(tiny | LONG, *words), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_rows(tmp_path)
        every = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for _ in range(1 if name == "SIGTERM" else 2):
            for each in every:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.Signals[name])
        _, printed = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130, printed
    assert "the same command resumes" in printed
    assert "Traceback" not in printed
    assert runs(tmp_path) == [("interrupted", None)]
    assert list((tmp_path / "results.db.checkpoints").glob("*/checkpoint.pt"))


def test_time_that_runs_out_stops_a_run_with_a_checkpoint(tmp_path, tiny):
    """The kernel's own signal, which it sends again each second."""
    limited = ["sh", "-c", 'ulimit -St 12; exec "$@"', "sh", *command(tiny | LONG, "run", "adding", "rnn")]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert runs(tmp_path) == [("interrupted", None)]
    assert list((tmp_path / "results.db.checkpoints").glob("*/checkpoint.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "adding", "rnn"), pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_closed_terminal_stops_runs_with_a_checkpoint(words, tmp_path, tiny):
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


@pytest.mark.slow
def test_run_under_nohup_continues(tmp_path, tiny):
    words = ["nohup", *command(tiny | LONG | {"epochs": "3"}, "run", "adding", "rnn")]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_rows(tmp_path)
        process.send_signal(signal.SIGHUP)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
    assert runs(tmp_path) == [("finished", None)]


@pytest.mark.parametrize("name", ["SIGHUP", *WARNINGS])
def test_repeated_warning_does_not_kill(monkeypatch, name):
    number = signal.Signals[name]
    monkeypatch.setattr("orthobench.system.output.leave_terminal", lambda: None)
    before, request = signal.getsignal(number), StopRequest()
    with stop_on_signals(request):
        assert not request()
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert request.is_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    after = signal.signal(number, before)
    assert after is (signal.SIG_IGN if name == "SIGXCPU" else before)


@pytest.mark.parametrize("name", ["SIGHUP", *WARNINGS])
def test_ignored_warning_stays_ignored(name):
    number = signal.Signals[name]
    before, request = signal.signal(number, signal.SIG_IGN), StopRequest()
    try:
        with stop_on_signals(request):
            signal.raise_signal(number)
        assert not request.is_requested
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


RUN = ("run", "adding", "rnn")


@pytest.mark.slow
@pytest.mark.parametrize("words", [RUN, pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_run_continues_after_its_pipe_has_closed(words, tmp_path, tiny):
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which libraries are loaded")
def test_ctrl_c_while_torch_loads_is_one_line(tmp_path, tiny):
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
def test_ctrl_c_while_data_is_generated_stops_at_once(words, tmp_path, tiny):
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


def test_interrupt_swallowed_by_an_import_ends_the_program(tmp_path):
    """A stand-in for torch catches every exception, as the destructors of a library do."""
    (tmp_path / "torch.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
        "print('the interrupt is lost')\n"
    )
    code = "from orthobench.system.signals import stop_while_torch_is_loaded as stop\nstop()\nimport torch"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_interrupt_after_the_import_is_an_exception_again(tmp_path):
    (tmp_path / "torch.py").write_text("here = True")
    code = (
        "import signal, sys\nfrom orthobench.system.signals import stop_while_torch_is_loaded as stop\n"
        "finders = len(sys.meta_path)\nstop()\nstop()\nimport torch\nassert torch.here\n"
        "assert len(sys.meta_path) == finders\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('raised')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("raised\n", "")


def test_handler_of_the_caller_is_kept_while_torch_loads():
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGINT)
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


IMPORT = """
import sys, time
from pathlib import Path
from orthobench.__main__ import main
from orthobench.data.mnist import MNISTData

def check_for_long(data_set, folder):
    assert list(folder.iterdir())
    Path("checking").touch()
    time.sleep(1000)

MNISTData.faults = check_for_long
sys.argv = ["orthobench", "data", "import", "mnist", "theirs"]
main()
"""


def test_ctrl_c_during_a_data_import_keeps_the_old_data(tmp_path, monkeypatch):
    """The files are copied, and their check takes long."""
    write_mnist(tmp_path / "theirs")
    old = tmp_path / "data" / "mnist" / "old"
    old.parent.mkdir(parents=True)
    old.touch()
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    process = start([sys.executable, "-c", IMPORT], tmp_path)
    wait_for((tmp_path / "checking").exists, process)
    assert stopped(process) == (130, "importing and checking mnist\nstopped\n")
    assert list(old.parent.iterdir()) == [old]
    assert {path.name for path in (tmp_path / "data").iterdir()} <= {"mnist", ".mnist.lock"}


REFERENCE = Path(__file__).parents[2] / "results.db"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which files are open")
def test_ctrl_c_during_a_report_leaves_nothing(tmp_path):
    shutil.copy(REFERENCE, tmp_path / "runs.db")
    process = start([sys.executable, "-m", "orthobench", "report", "--html", "--db", "runs.db"], tmp_path)
    opened = Path(f"/proc/{process.pid}/fd")

    def is_read() -> bool:
        with suppress(OSError):  # a file that is closed meanwhile
            return any(file.readlink().name == "runs.db" for file in opened.iterdir())
        return False

    wait_for(is_read, process)
    assert stopped(process) == (130, "stopped\n")
    assert not list(tmp_path.rglob("*.html*"))
