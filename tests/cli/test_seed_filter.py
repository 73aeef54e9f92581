"""All commands with filters select runs by --seed, as by the other columns."""

from __future__ import annotations

import json

import pytest
from support.pages import add_run

from orthobench.store import open_store


@pytest.fixture
def keys() -> list[str]:
    """The keys of three seeds in the database."""
    with open_store("results.db", create=True) as store:
        return [add_run(store, "rnn", seed) for seed in range(3)]


def test_ls_lists_the_runs_of_several_seeds(orthobench, keys):
    listed = json.loads(orthobench("ls", "--seed", "0", "--seed", "2", "--json").out)
    assert [run["run"] for run in listed] == [keys[0], keys[2]]


@pytest.mark.parametrize("command", [("ls",), ("delete", "--yes"), ("report", "--format", "json")])
def test_seed_that_is_no_number_is_refused(orthobench, keys, command):
    done = orthobench(*command, "--seed", "0", "--seed", "x")
    assert (done.code, done.err) == (2, "error: --seed 0,x: give a number, or several as 0,2\n")
    assert len(json.loads(orthobench("ls", "--json").out)) == 3


def test_other_commands_select_by_seed(orthobench, keys, tmp_path):
    assert orthobench("db", "export", "tables", "--seed", "1").out.startswith("1 run in ")
    assert keys[1] in (tmp_path / "tables" / "runs.csv").read_text()
    assert len(json.loads(orthobench("report", "--format", "json", "--seed", "1").out)) == 1
    assert "1 run deleted" in orthobench("delete", "--seed", "1", "--yes").out
    assert [run["seed"] for run in json.loads(orthobench("ls", "--json").out)] == [0, 2]
