"""Commands whose standard streams are closed, as by `>&-` or in a daemon, work without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orthobench.store import open_store

TINY = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1,hidden_size=8"
RUN = ["run", "adding", "rnn", *(word for setting in TINY.split(",") for word in ("-s", setting))]


def call(folder: Path, closed: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that closes streams."""
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "orthobench", *words]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(prepared) -> Path:
    return prepared(RUN)


@pytest.mark.parametrize(
    "closed", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("2>&-", "<&- >&-")), ">&-", "<&- >&- 2>&-"]
)
def test_list_of_runs_needs_no_stream(closed, folder):
    done = call(folder, closed, "ls")
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_run_trains_without_any_stream(folder):
    """The database must not get the descriptor of a stream, because a message would overwrite it."""
    done = call(folder, "<&- >&- 2>&-", *RUN, "--seed", "1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with open_store(str(folder / "results.db")) as store:
        assert [run.status for run in store.runs()] == ["finished"] * 2


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_error_keeps_its_exit_code(closed, folder):
    done = call(folder, closed, "ls", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert ("nonsense" in done.stderr) == (closed == ">&-")


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("plugins", "--json"),
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (("db", "query", "SELECT * FROM metric"), ("--help",))
        ),
    ],
)
def test_reader_that_leaves_early_is_no_error(words, folder):
    """As `orthobench plugins | head` does; the exit code is that of a program which the signal of a pipe ends."""
    command = [sys.executable, "-m", "orthobench", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
