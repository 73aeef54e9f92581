"""Every table is complete and readable in ASCII and on a terminal without any control."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    "plugins --params": (["plugins", "--params"], ["printed", "counted", "scornn"]),
    "db info": (["db", "info"], ["runs: 8 (8 finished)", "integrity: ok"]),
    "data list": (["data", "list"], ["mnist", "licence", "no"]),
    "sweep": (SWEEP, ["finished", "final [95 %]", "lstm", "n=4"]),
    "sweep --dry-run": ([*SWEEP, "--dry-run", "--no-profile"], ["finished", "state", "n=5"]),
    "report": (["report", "--format", "markdown"], ["adding", "mse", "| "]),
    "report csv": (["report", "--format", "csv"], ["adding", "mse"]),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder with the runs of a sweep, which have a tag that is not ASCII."""
    folder = tmp_path_factory.mktemp("plain")
    command = [sys.executable, "-m", "orthobench", *SWEEP, "-j", "0"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    with open_store(str(folder / "results.db")) as store:
        store.tag([run.key for run in store.runs()], ["näme"])
    return folder


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_readable_in_ascii_on_a_plain_terminal(table, results):
    words, expected = TABLES[table]
    with open_store(str(results / "results.db")) as store:
        key = store.runs()[0].key
    command = [sys.executable, "-m", "orthobench", *(key if word == "KEY" else word for word in words)]
    environment = os.environ | PLAIN | {"ORTHOBENCH_DATA": str(results / "data")}
    done = subprocess.run(command, cwd=results, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.decode("ascii")
    assert "\x1b" not in printed
    assert "Traceback" not in done.stderr.decode("ascii")
    assert [text for text in expected if text not in printed] == [], printed
