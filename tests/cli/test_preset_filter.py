"""A run keeps the preset of the command that started it, and commands select runs by it."""

from __future__ import annotations

import json

import pytest

from orthobench.store import open_store

SETTINGS = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]


@pytest.fixture
def two_presets(after):
    """A database with a run of each preset, one of them trained by a worker; returns their keys by preset."""
    paper = ["run", "adding", "rnn", "-s", "n=4"]
    quick = ["sweep", "adding", "--models", "rnn", "-s", "n=5", "--preset", "quick", "-j", "1"]
    after([*paper, *SHORT], [*quick, *SHORT])
    with open_store("results.db") as store:
        return {run.preset: run.key for run in store.runs()}


@pytest.mark.parametrize("option", [["--preset", "quick"], ["--where", "preset=quick"]])
def test_ls_filters_by_preset(option, two_presets, orthobench):
    assert two_presets.keys() == {"paper", "quick"}
    (listed,) = json.loads(orthobench("ls", *option, "--json").out)
    assert listed["run"] == two_presets["quick"]


def test_delete_filters_by_preset(two_presets, orthobench):
    assert "1 run deleted" in orthobench("delete", "--preset", "paper", "--yes").out
    (left,) = json.loads(orthobench("ls", "--json").out)
    assert left["run"] == two_presets["quick"]


def test_export_compare_and_report_filter_by_preset(two_presets, orthobench, tmp_path):
    assert orthobench("db", "export", "tables", "--preset", "quick").out.startswith("1 run in ")
    assert two_presets["quick"] in (tmp_path / "tables" / "runs.csv").read_text()
    compared = orthobench("compare", "preset=paper", "preset=quick", "--json")
    assert compared.code == 0, compared.err
    assert orthobench("report", "--format", "csv", "--preset", "quick").code == 0


def test_preset_none_selects_runs_without_one_and_a_typo_is_an_error(two_presets, orthobench):
    with open_store("results.db") as store:
        store.update(store.get(two_presets["paper"]).id, {"preset": None})
    (listed,) = json.loads(orthobench("ls", "--preset", "none", "--json").out)
    assert listed["run"] == two_presets["paper"]
    refused = orthobench("ls", "--preset", "quik")
    assert (refused.code, refused.err) == (2, "error: unknown preset 'quik': did you mean quick?\n")


def test_preset_is_not_part_of_the_key(orthobench):
    """All settings that the preset sets are given: both commands mean one run."""
    words = [*SHORT, "-s", "n=4", "-s", "evaluate_every=2", "-s", "learning_rate=0.01"]
    keys = set()
    for preset in ("paper", "quick"):
        with open_store("results.db", create=True) as store:
            for run in store.runs():
                store.delete(run.id)
        done = orthobench("run", "adding", "rnn", *words, "--preset", preset)
        assert done.code == 0, done.err
        with open_store("results.db") as store:
            (run,) = store.runs()
            assert run.preset == preset
            keys.add(run.key)
    assert len(keys) == 1
