"""Every table is complete and readable in ASCII and on a terminal without any control."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import call_here

from orthobench.store import open_store

SETTINGS = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]
SWEEP = ["sweep", "adding", "--models", "rnn,lstm", "--grid", "n=4,5", "--seeds", "2", *SHORT]
PLAIN = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "40"}
TABLES = {
    "ls": (["ls"], ["run", "adding", "rnn", "mse", "finished", "näme".encode("ascii", "replace").decode()]),
    "show": (["show", "KEY"], ["status", "finished", "hidden_size", "test/mse"]),
    "compare": (["compare", "model=rnn", "model=lstm"], ["mse", "model=rnn", "hidden_size", "is lower in"]),
    "plugins": (["plugins"], ["scornn", "built in", "GORU"]),
    "plugins NAME": (["plugins", "scornn"], ["hidden_size (n) = 170", "values:"]),
    "plugins --params": (["plugins", "--params"], ["published", "counted", "scornn"]),
    "db info": (["db", "info"], ["runs: 8 (8 finished)", "integrity: ok"]),
    "data list": (["data", "list"], ["mnist", "licence", "no"]),
    "sweep": (SWEEP, ["finished", "end: median [95 %]", "lstm", "n=4"]),
    "sweep --dry-run": ([*SWEEP, "--dry-run", "--no-profile"], ["finished", "state", "n=5"]),
    "report": (["report", "--format", "markdown"], ["adding", "MSE", "| "]),
    "report csv": (["report", "--format", "csv"], ["adding", "mse"]),
}


@pytest.fixture(scope="module")
def results(prepared) -> Path:
    """A folder with the runs of a sweep, which have a tag that is not ASCII."""
    folder = prepared(SWEEP)
    with open_store(str(folder / "results.db")) as store:
        store.tag([run.key for run in store.runs()], ["näme"])
    return folder


def check(table: str, code: int, output: bytes, errors: bytes) -> None:
    printed = output.decode("ascii")
    assert code == 0, errors
    assert "\x1b" not in printed
    assert "Traceback" not in errors.decode("ascii")
    assert [text for text in TABLES[table][1] if text not in printed] == [], printed


@pytest.mark.parametrize("table", TABLES)
def test_table_is_readable_in_ascii_on_a_plain_terminal(table, results, monkeypatch):
    """With streams as Python opens them in this environment; the next test has the environment alone."""
    with open_store(str(results / "results.db")) as store:
        key = store.runs()[0].key
    words = [key if word == "KEY" else word for word in TABLES[table][0]]
    for name, value in (PLAIN | {"ORTHOBENCH_DATA": str(results / "data"), "ORTHOBENCH_JOBS": "0"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(results)
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii", handling) for handling in ("strict", "backslashreplace")]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    code = call_here(monkeypatch, words)
    for stream in streams:
        stream.flush()
    check(table, code, *(stream.buffer.getvalue() for stream in streams))


def test_encoding_and_terminal_come_from_the_environment(results):
    command = [sys.executable, "-m", "orthobench", *TABLES["ls"][0]]
    done = subprocess.run(command, cwd=results, env=os.environ | PLAIN, capture_output=True, check=False)
    check("ls", done.returncode, done.stdout, done.stderr)
