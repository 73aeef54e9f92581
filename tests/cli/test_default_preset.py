"""The preset of a command that names none: quick with code from outside, and else the paper's settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import orthobench as ob
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

CELL = """
import torch

class Cell(torch.nn.RNN):
    pass
"""
TASK = """
from orthobench.tasks.adding import Adding

class Mine(Adding):
    name = "mine"
    quick = {"sequence_length": 7}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cell.py").write_text(CELL)
    Path("task.py").write_text(TASK)


SMALL = ("-s", "epochs=1", "-s", "train_size=40", "-s", "test_size=20", "-s", "batch_size=20", "-s", "hidden_size=4")


def planned(orthobench, *words):
    """The keys of the runs that a command would train."""
    outcome = orthobench(*words, "--dry-run", "--no-profile", "--json")
    assert outcome.code == 0, outcome.err
    return {run["run"] for run in json.loads(outcome.out)}


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        (["adding", "--models", "torch.nn:GRU"], "quick"),
        (["adding", "--models", "./cell.py:Cell"], "quick"),
        (["adding", "--models", "lstm,torch.nn:GRU"], "quick"),
        (["mine", "--models", "lstm", "--plugin", "task.py"], "quick"),
        (["adding", "--models", "lstm,rnn"], "paper"),
    ],
    ids=str,
)
def test_preset_follows_from_where_the_code_is(orthobench, files, words, preset):
    given = {name: planned(orthobench, "sweep", *words, "--preset", name) for name in ("paper", "quick")}
    assert given["paper"].isdisjoint(given["quick"])
    assert planned(orthobench, "sweep", *words) == given[preset]


def test_first_line_names_the_preset_and_the_key_is_that_of_the_explicit_one(orthobench, files):
    first = orthobench("run", "adding", "./cell.py:Cell", *SMALL)
    assert first.code == 0, first.err
    assert first.err.splitlines()[0].endswith(", cpu, preset quick")
    key = re.match(r"run ([0-9a-f]{16}) ", first.out).group(1)
    again = orthobench("run", "adding", "./cell.py:Cell", *SMALL, "--preset", "quick")
    assert (again.out, again.err) == (first.out, "")
    assert f"run {key}" not in orthobench("run", "adding", "./cell.py:Cell", *SMALL, "--preset", "paper").out
    (run,) = [run for run in ob.open_results("results.db").store.runs() if run.key == key]
    assert run.preset == "quick"
    assert run.spec["task_settings"]["sequence_length"] == 100


def test_key_of_an_explicit_preset_is_that_of_the_settings(orthobench, files):
    for preset in ("paper", "quick"):
        own = resolve(Catalog(), "adding", "torch.nn:GRU", {}, preset).spec.key
        assert planned(orthobench, "sweep", "adding", "--models", "torch.nn:GRU", "--preset", preset) == {own}
