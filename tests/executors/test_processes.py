"""Runs in processes of their own: what ends one ends no other, and the user's stop ends them all."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from orthobench.cli.session_display import TerminalDisplay
from orthobench.display.display import Display
from orthobench.display.progress import SideBySide
from orthobench.errors import UsageError
from orthobench.executors.job import Ending, SinkFactory, train_job
from orthobench.executors.processes import ProcessExecutor, describe_exit, visible_gpus, worker_slots
from orthobench.options.run_options import SweepOptions
from orthobench.planning.sweep_runs import PlannedRun
from orthobench.plugins import Catalog
from orthobench.session.session import Session, open_session
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.events import EventSink

CPU = torch.device("cpu")
FATAL = '''
import ctypes, os, signal, torch
from orthobench.models.rnn import RNN

class Segfault(RNN):
    """Reads address zero in the middle of training."""
    title, name, steps = "x", "segfault", 0
    def states(self, *arguments):
        self.steps += torch.is_grad_enabled()
        if self.steps > 6:
            ctypes.string_at(0)
        return super().states(*arguments)

class Killed(RNN):
    """Is killed before it is entered anywhere."""
    title, name = "x", "killed"
    def __init__(self, *arguments):
        os.kill(os.getpid(), signal.SIGKILL)

class Hungry(RNN):
    title, name = "x", "hungry"
    def states(self, inputs, *arguments):
        if torch.is_grad_enabled() and inputs.shape[1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().states(inputs, *arguments)
'''


def by_label(display: SideBySide) -> SinkFactory:
    return lambda job: display.open_sink(job.label)


def ends(database: Path) -> dict[str, tuple[str, str | None]]:
    with open_store(str(database)) as store:
        return {run.model: (run.status, run.message) for run in store.runs()}


@pytest.mark.slow
def test_death_of_one_process_ends_one_run_and_is_recorded(orthobench, tmp_path, tiny_options):
    Path("fatal.py").write_text(FATAL)
    models = "segfault,killed,hungry,rnn"
    outcome = orthobench("sweep", "adding", "--models", models, "--plugin", "fatal.py", "-j", "2", *tiny_options)
    assert outcome.code == 1
    assert "3 of 4 runs failed" in outcome.err
    assert "[1/4] segfault seed 0 failed: segmentation fault" in outcome.err.splitlines()
    assert "[4/4] rnn seed 0: epoch 3.00" in outcome.err
    run_ends = ends(tmp_path / "results.db")
    lack = "out of GPU memory at iteration 0 with batch_size=10: choose a smaller one (CUDA out of memory.)"
    assert run_ends == {
        "hungry": (Status.FAILED, lack),
        "segfault": (Status.FAILED, "segmentation fault"),
        "killed": (Status.FAILED, "killed by signal 9 (out of memory?)"),
        "rnn": (Status.FINISHED, None),
    }
    for command in (("ls",), ("show", "--json", key_of(tmp_path, "killed")), ("report", "--html")):
        assert orthobench(*command).code == 0  # a run of which nothing but its end is known can be shown
    orthobench("sweep", "adding", "--models", "rnn", "-j", "0", "--db", "here.db", *tiny_options)
    assert rows(tmp_path / "here.db") == rows(tmp_path / "results.db")


ENDING = '''
import atexit, ctypes, threading, time
from orthobench.models.rnn import RNN

def last():
    time.sleep(0.3)
    print("a thread of its own")

class Ending(RNN):
    """Leaves work for the end of its process."""
    title, name = "x", "ending"
    def __init__(self, *arguments):
        super().__init__(*arguments)
        atexit.register(print, "a function of atexit")
        ctypes.CDLL(None).printf(b"a buffer of C\\n")
        threading.Thread(target=last).start()
'''


def test_worker_finishes_what_a_plugin_left_for_its_end_and_git_is_asked_once(tmp_path, tiny_options, monkeypatch):
    asked, git = tmp_path / "asked", tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # which would leave C no buffer
    (tmp_path / "ending.py").write_text(ENDING)
    sweep = ("sweep", "adding", "--models", "ending", "--plugin", "ending.py", "--seeds", "3", "-j", "2")
    command = [sys.executable, "-m", "orthobench", *sweep, *tiny_options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for left in ("a thread of its own", "a function of atexit", "a buffer of C"):
        for seed in range(3):
            assert f"[{seed + 1}/3] ending seed {seed}: {left}" in done.stderr.splitlines()
    # By the process that forks the workers and perhaps by this one, and not by each of the three workers.
    assert asked.read_text().splitlines().count("rev-parse HEAD") in (1, 2)


FAILING_INTERPRETER = """
import multiprocessing
from pathlib import Path
import orthobench as ob
from orthobench.executors import processes

processes.CONTEXT = multiprocessing.get_context("{method}")
interpreter = Path("python")
interpreter.write_text("#!/bin/sh\\nexit 3\\n")
interpreter.chmod(0o755)
multiprocessing.set_executable(str(interpreter.resolve()))
outcomes = ob.sweep("adding", ["rnn"], settings={settings}, jobs=1, db="r.db")
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_interpreter_that_fails_ends_its_runs(method, tmp_path, tiny):
    code = FAILING_INTERPRETER.format(method=method, settings=tiny)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    ((status, message),) = ends(tmp_path / "r.db").values()
    assert status == Status.FAILED
    assert message.startswith("no process could be started: ") or message == describe_exit(3)


@pytest.mark.slow
def test_process_that_forks_has_one_thread_and_no_gpu_and_is_replaced_when_it_dies(tmp_path, tiny):
    here = session(tmp_path)
    jobs = [here.job(resolve(Catalog(), "adding", "rnn", tiny, seed=seed), str(seed)) for seed in range(2)]
    with here.store:
        for job in jobs:
            executor = ProcessExecutor(here.store, [None], 1, by_label(SideBySide(1)), here.stop, print)
            assert [outcome.ending for outcome in executor.run([job])] == [Ending.FINISHED]
            (server,) = fork_servers(os.getpid())
            assert server.num_threads() == 1
            assert not any("nvidia" in file.path for file in server.open_files())
            server.kill()


SHADOWED = """
import orthobench as ob
settings = {settings}
ob.sweep("adding", ["rnn", "lstm"], settings=settings, jobs=2, db="r.db")
print("once")
"""


@pytest.mark.slow
def test_script_without_a_main_guard_and_with_files_named_like_modules(tmp_path, tiny):
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(SHADOWED.format(settings=tiny))
    command = [sys.executable, "scripts/script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr
    assert ends(tmp_path / "r.db") == dict.fromkeys(("rnn", "lstm"), (Status.FINISHED, None))


def rows(database: Path):
    """What was logged of the RNNs, seed by seed."""
    with open_store(str(database)) as store:
        runs = sorted(store.runs(model="rnn"), key=lambda run: run.seed)
        return [[(m.split, m.name, m.iteration, m.value) for m in store.metrics([run.id])] for run in runs]


def key_of(folder: Path, model: str) -> str:
    with open_store(str(folder / "results.db")) as store:
        return store.runs(model=model)[0].key


def session(folder: Path, plugins=(), jobs=None, display=None) -> Session:
    """A session with a database in this folder."""
    store = open_store(str(folder / "r.db"), create=True)
    options = SweepOptions(device="cpu", jobs=jobs, checkpoint_every=0.0, plugins=tuple(plugins))
    return Session(store, Location(str(folder / "r.db")), options, CPU, at_once=1, display=display or Display())


@pytest.mark.slow
def test_each_process_has_its_gpu_and_share_of_threads(tmp_path, tiny):
    (tmp_path / "telling.py").write_text(
        "import os, torch\nfrom orthobench.models.rnn import RNN\n"
        "class Telling(RNN):\n"
        "    title = 'x'\n"
        "    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n"
        "        print('GPU', os.environ['CUDA_VISIBLE_DEVICES'], 'threads', torch.get_num_threads())\n"
    )
    plugin = tmp_path / "telling.py"
    catalog = Catalog([plugin])
    here = session(tmp_path, [plugin])
    jobs = [here.job(resolve(catalog, "adding", "telling", tiny, seed=seed), str(seed)) for seed in range(2)]
    said: list[str] = []
    display = SideBySide(2)
    with here.store:
        executor = ProcessExecutor(here.store, ["3", "GPU-5"], 4, by_label(display), here.stop, said.append)
        outcomes = list(executor.run(jobs))
    assert sorted(outcome.job.label for outcome in outcomes) == ["0", "1"]
    assert {outcome.ending for outcome in outcomes} == {Ending.FINISHED}
    assert sorted(said) == ["0: GPU 3 threads 2", "1: GPU GPU-5 threads 2"]


@pytest.mark.slow
def test_idle_threads_of_a_worker_sleep_unless_the_user_sets_them(tmp_path, tiny, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    plugin = tmp_path / "showing.py"
    plugin.write_text(
        "import os\nfrom orthobench.models.rnn import RNN\n"
        "class Showing(RNN):\n"
        "    title = 'x'\n"
        "    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n"
        "        print(os.environ['OMP_WAIT_POLICY'], os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    here = session(tmp_path, [plugin])
    job = here.job(resolve(Catalog([plugin]), "adding", "showing", tiny), "0")
    lines: list[str] = []
    with here.store:
        list(ProcessExecutor(here.store, [None], 1, by_label(SideBySide(1)), here.stop, lines.append).run([job]))
    assert lines == ["0: PASSIVE 3"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["0", "1"])
def test_run_taken_over_by_another_process_is_left_to_it(jobs, tmp_path, tiny, capsys):
    here = session(tmp_path, jobs=int(jobs), display=TerminalDisplay())
    locked_config, other = (resolve(Catalog(), "adding", model, tiny) for model in ("rnn", "lstm"))
    planned = [PlannedRun(config, {}, None, is_locked=False) for config in (locked_config, other)]
    with here.store, CheckpointFolder(here.checkpoints, locked_config.spec.key).lock():
        outcomes = here.train_jobs(here.jobs(planned))
        assert [outcome.ending for outcome in outcomes] == [Ending.BUSY, Ending.FINISHED]
        assert [run.model for run in here.store.runs()] == ["lstm"]
    assert "[1/2] rnn seed 0 is left to another process" in capsys.readouterr().err


def test_sweep_with_runs_left_to_another_process_has_its_exit_code(orthobench, tmp_path, tiny_options):
    sweep = ("sweep", "adding", "--models", "rnn,lstm", *tiny_options)
    assert orthobench(*sweep).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        left, _ = store.runs()
        store.update(left.id, {"status": "running"})
        with CheckpointFolder(tmp_path / "results.db.checkpoints", left.key).lock():
            done = orthobench(*sweep)
            assert done.code == 3
            assert "1 of 2 runs are left to another process: the same command later shows their results" in done.err
            store.delete(left.id)  # the other process has no record yet
            assert orthobench(*sweep).code == 3
    assert orthobench(*sweep).code == 0


@pytest.mark.parametrize("jobs", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_start_failure_is_reported_once_for_each_cause(jobs, orthobench):
    options = ("-s", "train_size=40", "-s", "test_size=20", "-s", "epochs=1", "-s", "sequence_length=10")
    command = ("sweep", "adding", "--models", "rnn", *options, "-j", jobs)
    some = orthobench(*command, "--grid", "batch_size=10,50")
    assert some.code == 1, some.err
    message = "rnn batch_size=50 seed 0 cannot be started: batch_size=50 is more than the training set of 40"
    assert message in some.err
    assert orthobench(*command, "--grid", "batch_size=10,50", "--seeds", "2").err.count("cannot be started") == 1
    every = orthobench(*command, "--grid", "batch_size=50,60")
    assert every.code == 2
    assert every.err.splitlines()[-1].startswith("error: batch_size=50 is more than the training set")


@pytest.mark.parametrize(
    ("jobs", "share", "expected"),
    [
        (None, 1, ["a", "b"]),
        (None, 2, ["a", "b", "a", "b"]),
        (3, 2, ["a", "b", "a"]),
        (1, 1, ["a"]),
    ],
)
def test_gpus_are_assigned_in_turn(jobs, share, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker_slots(torch.device("cuda"), jobs, share, cores=16) == expected


def test_more_runs_than_gpu_places_are_refused(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert visible_gpus() == ["0", "1"]
    with pytest.raises(UsageError, match=r"`jobs=5` is more than 2 GPU\(s\) with 2 run\(s\) each: give `gpu_share=3`"):
        worker_slots(torch.device("cuda"), 5, 2, cores=16)


def test_cpu_runs_are_limited_by_cores():
    assert worker_slots(CPU, None, 1, cores=3) == [None] * 3
    assert worker_slots(CPU, 5, 1, cores=3) == [None] * 5


def test_gpu_share_on_the_cpu_is_refused(tmp_path):
    with (
        pytest.raises(UsageError, match="`gpu_share` is for runs on GPUs"),
        open_session(tmp_path / "r.db", SweepOptions(device="cpu", jobs=2, gpu_share=2)),
    ):
        pass


def test_exit_code_is_described():
    assert describe_exit(-signal.SIGABRT) == "killed by signal 6 (Aborted)"
    assert describe_exit(0) == "its process ended with exit code 0"


def test_terminal_shows_running_and_ended_runs(tmp_path, tiny, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    here = session(tmp_path)
    first = here.job(resolve(Catalog(), "adding", "rnn", tiny), "run 0")
    with here.store, SideBySide(2) as display:
        with display.open_sink("run 0") as sink, display.open_sink("run 1"):
            train_job(first, sink)
            rows = [(row.description, row.completed, row.total) for row in display.bar.tasks]
            assert rows == [("all runs", 0, 2), ("run 0", 12, 12), ("run 1", 0, None)]
            assert display.bar.tasks[1].fields["result"].startswith("loss ")
        display.print_line("[1/2] ended")
        assert [row.fields["position"] for row in display.bar.tasks] == ["2 of 2 ended"]
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "[1/2] ended" in printed
    assert re.search(r"run 0: epoch 3\.0\s+[0-9.]+ it/s\s+loss [0-9.]+\s+mse [0-9.]+", printed)


# What the user or the system stops


def workers(parent: int) -> list[psutil.Process]:
    return [worker for server in fork_servers(parent) for worker in server.children()]


def fork_servers(parent: int) -> list[psutil.Process]:
    return [
        child for child in psutil.Process(parent).children() if "orthobench.executors.preload" in str(child.cmdline())
    ]


def wait_until(condition, process=None, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it"
        assert process is None or process.poll() is None, "the command ended"
        time.sleep(0.05)


def logged(database: Path) -> int:
    """How many runs have logged something after their start."""
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            query = "SELECT count(DISTINCT run_id) FROM metric WHERE iteration > 0"
            return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def sweep_of(settings: dict[str, str], *more: str) -> list[str]:
    options = [option for name, value in settings.items() for option in ("-s", f"{name}={value}")]
    return ["sweep", "adding", "--models", "rnn", "--seeds", "3", "-j", "2", *options, *more]


def start_sweep(start, folder: Path, command: list[str]):
    """A sweep with two runs under way, and their processes."""
    process = start(command)
    wait_until(lambda: logged(folder / "results.db") == 2, process)
    under_way = workers(process.pid)
    assert len(under_way) == 2
    return process, under_way


def statuses(database: Path) -> list[str]:
    with open_store(str(database)) as store:
        return [run.status for run in store.runs()]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signal_stops_every_run_at_its_next_iteration(how, start, tmp_path, tiny):
    endless = tiny | {"train_size": "4000", "epochs": "1000", "evaluate_every": "50"}
    process, under_way = start_sweep(start, tmp_path, sweep_of(endless, "--checkpoint-every", "1000"))
    process.send_signal(how)
    assert process.wait(60) == 130
    assert not any(worker.is_running() for worker in under_way)
    assert statuses(tmp_path / "results.db") == ["interrupted"] * 2
    assert len(list((tmp_path / "results.db.checkpoints").glob("*/checkpoint.pt"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_interrupted_sweep_ends_with_the_numbers_of_an_uninterrupted_one(how, start, tmp_path, tiny):
    """The supervisor's own death stops its runs, too: nothing trains on unseen."""
    long = sweep_of(tiny | {"train_size": "4000", "evaluate_every": "50"}, "--checkpoint-every", "0")
    assert start([*long, "--db", "uncut.db"]).wait(300) == 0
    process, under_way = start_sweep(start, tmp_path, long)
    process.send_signal(signal.SIGINT if how == "stopped" else signal.SIGKILL)
    process.wait(30)
    wait_until(lambda: not any(worker.is_running() for worker in under_way))
    assert set(statuses(tmp_path / "results.db")) <= {"interrupted", "finished"}
    assert start(long).wait(300) == 0
    assert statuses(tmp_path / "results.db") == statuses(tmp_path / "uncut.db") == ["finished"] * 3
    assert rows(tmp_path / "results.db") == rows(tmp_path / "uncut.db")


@pytest.mark.slow
def test_second_signal_kills(start, tmp_path, tiny):
    (tmp_path / "stuck.py").write_text(
        "import time\nfrom orthobench.models.rnn import RNN\n"
        "class Stuck(RNN):\n"
        "    title, steps = 'x', 0\n"
        "    def after_step(self):\n"
        "        self.steps += 1\n"
        "        if self.steps == 3:\n"
        "            time.sleep(3600)\n"
    )
    command = sweep_of(tiny, "--plugin", "stuck.py")
    command[command.index("rnn")] = "stuck"
    process, under_way = start_sweep(start, tmp_path, command)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not any(worker.is_running() for worker in under_way)
    assert statuses(tmp_path / "results.db") == ["interrupted"] * 2


@pytest.mark.slow
def test_failing_supervisor_lets_runs_write_checkpoints(tmp_path, tiny):
    here = session(tmp_path)
    endless = tiny | {"train_size": "4000", "epochs": "1000", "evaluate_every": "100000"}
    job = here.job(resolve(Catalog(), "adding", "rnn", endless), "endless")

    @contextmanager
    def watch(_):
        class Failing(EventSink):
            def on_iteration(self, iteration):  # by then the run has something to lose
                raise ArithmeticError("on purpose")

        yield Failing()

    with here.store, pytest.raises(ArithmeticError):
        list(ProcessExecutor(here.store, [None], 1, watch, here.stop, print).run([job]))
    assert statuses(tmp_path / "r.db") == ["interrupted"]
    assert CheckpointFolder(here.checkpoints, job.spec.key).exists()


@pytest.mark.slow
def test_two_sweeps_of_the_same_runs_share_them(start, tmp_path, tiny):
    command = sweep_of(tiny | {"train_size": "2000"})
    first, second = start(command), start(command)
    assert sorted((first.wait(300), second.wait(300))) in ([0, 0], [0, 3])  # the first to end leaves runs to the other
    assert start(command).wait(300) == 0
    with open_store(str(tmp_path / "results.db")) as store:
        assert [run.status for run in store.runs()] == ["finished"] * 3
        for run in store.runs():
            assert len(store.metrics([run.id], "test")) == 1 + run.iterations // 2
