"""`orthobench compare-databases a.db b.db`: what both have, what changed, and what only one has."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace

import pytest
from scipy.stats import ttest_ind, wilcoxon
from support.records import run_record

import orthobench as ob
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, open_store

BEFORE = [0.30, 0.31, 0.29, 0.33, 0.35, 0.28, 0.32]
AFTER = [0.20, 0.21, 0.19, 0.22, 0.24, 0.17, 0.25]


def add(file, model, values, *, first_seed=0, commit="abc", version=None, **settings):
    with open_store(str(file), create=True) as store:
        for seed, value in enumerate(values, first_seed):
            spec = resolve(Catalog(), "adding", model, settings, seed=seed).spec
            spec = spec if version is None else replace(spec, model_version=version)
            run = store.start(run_record(spec), {"commit": commit, "packages": {"torch": "2"}})
            progress = {"status": Status.FINISHED, "final_value": value, "best_value": value, "iterations": 10}
            rows = [] if value is None else [MetricRow("test", "mse", 1, 10, value)]
            store.log(run.id, rows, [], progress)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A folder with the two databases, for tests to copy."""
    folder = tmp_path_factory.mktemp("both")
    before, after = folder / "before.db", folder / "after.db"
    add(before, "lstm", BEFORE)
    add(after, "lstm", AFTER, commit="def")
    add(before, "rnn", [0.5, 0.6], version="1")
    add(after, "rnn", [0.5, 0.6], version="2")
    add(before, "scornn", [0.1], hidden_size=170)
    add(after, "scornn", [0.1], hidden_size=190)
    add(after, "lstm", [0.2], first_seed=7, commit="def")
    return folder


@pytest.fixture
def databases(both, tmp_path):
    shutil.copytree(both, tmp_path, dirs_exist_ok=True)
    return "before.db", "after.db"


def test_python_compares_the_same_runs(databases, orthobench):
    compared = ob.compare_databases(*databases, model=["lstm", "scornn"])
    (match,) = compared.matches
    shown = json.loads(orthobench("compare-databases", *databases, "--model", "lstm,scornn", "--json").out)
    assert (match.label, match.seeds) == (shown["both"][0]["runs_of"], shown["both"][0]["seeds"])
    assert match.contrast.p == shown["both"][0]["result"]["p_holm"]
    assert [[lone.label for lone in side] for side in compared.alone] == [
        [lone["runs_of"] for lone in shown[side]] for side in ("only_first", "only_second")
    ]


def test_trials_of_a_search_are_not_compared(databases, orthobench):
    """They have no tests."""
    for file in databases:
        add(file, "gru", [None], judged_by="validation_only", validation_size=10)
    done = orthobench("compare-databases", *databases, "--json")
    assert done.code == 0, done.err
    assert [len(match["runs"][0]) for match in json.loads(done.out)["both"]] == [7, 2]  # those of LSTM and RNN alone


def test_databases_may_lie_in_the_home_folder(databases, orthobench, tmp_path, monkeypatch):
    """Shells expand no ~ within quotes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = orthobench("compare-databases", *databases, "--csv")
    there = orthobench("compare-databases", *(f"~/{name}" for name in databases), "--csv")
    assert (there.code, there.out.replace(f"{tmp_path}/", "")) == (0, expected.out)


def test_test_matches_the_statistics_and_commits_are_named(databases, orthobench):
    done = orthobench("compare-databases", *databases, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    (lstm, rnn) = record["both"]
    assert lstm["runs_of"] == "adding lstm"
    assert lstm["seeds"] == list(range(7))
    assert lstm["identical"] == 0
    assert lstm["environment"]["commit"] == [["abc"], ["def"]]
    assert lstm["paired"]
    assert lstm["result"]["difference"] == pytest.approx(sum(BEFORE) / 7 - sum(AFTER) / 7)
    assert lstm["result"]["p"] == pytest.approx(wilcoxon(BEFORE, AFTER, method="exact").pvalue)
    assert (rnn["runs_of"], rnn["settings"]) == ("adding rnn", {"model_version": [["1"], ["2"]]})


def test_runs_of_one_database_alone_are_listed_with_settings(databases, orthobench):
    record = json.loads(orthobench("compare-databases", *databases, "--json").out)
    (scornn,) = record["only_first"]
    assert scornn["runs_of"].startswith("adding scornn")
    assert scornn["settings"]["hidden_size"] == [[170], [190]]
    lstm, other = record["only_second"]
    assert (lstm["runs_of"], lstm["seeds"], lstm["settings"]) == ("adding lstm", [7], {})
    assert other["settings"]["hidden_size"] == [[190], [170]]


def test_identical_runs_are_counted(tmp_path, orthobench):
    for name in ("a.db", "b.db"):
        add(tmp_path / name, "lstm", [0.1, 0.2, 0.3 if name == "a.db" else 0.4])
    (match,) = json.loads(orthobench("compare-databases", "a.db", "b.db", "--json").out)["both"]
    assert (match["seeds"], match["identical"]) == ([0, 1, 2], 2)
    welch = ttest_ind([0.1, 0.2, 0.3], [0.1, 0.2, 0.4], equal_var=False).confidence_interval(0.95)
    half = match["result"]["half_width"]
    assert match["result"]["difference"] + half == pytest.approx(welch.high)


def test_csv_and_text_agree(databases, orthobench):
    rows = list(csv.DictReader(io.StringIO(orthobench("compare-databases", *databases, "--csv").out)))
    assert [(row["where"], row["runs"].split()[1]) for row in rows] == [
        ("both", "lstm"),
        ("both", "rnn"),
        ("before.db", "scornn"),
        ("after.db", "lstm"),
        ("after.db", "scornn"),
    ]
    assert float(rows[0]["difference"]) == pytest.approx(0.1)
    counts = [(row["common_seeds"], row["first_n"], row["second_n"]) for row in rows]
    assert counts == [("7", "7", "7"), ("2", "2", "2"), ("", "1", ""), ("", "", "1"), ("", "", "1")]
    assert "commit abc -> def" in rows[0]["changed"]
    text = orthobench("compare-databases", *databases).out
    assert "7 common seeds" in text
    assert "only in before.db:" in text
    assert "only in after.db:" in text


def test_csv_has_no_difference_that_leaves_out_diverged_runs(tmp_path, orthobench):
    """No seed is in both databases."""
    add(tmp_path / "a.db", "lstm", [0.1, 0.2, 0.3])
    add(tmp_path / "b.db", "lstm", [0.05, 0.06, 0.07], first_seed=3)
    with open_store(str(tmp_path / "b.db")) as store:
        worst = store.runs()[-1]
        store.update(worst.id, {"status": Status.DIVERGED, "final_value": None, "best_value": None})
    done = orthobench("compare-databases", "a.db", "b.db", "--csv")
    assert done.code == 0, done.err
    row, *lone = csv.DictReader(io.StringIO(done.out))
    assert [(each["first_n"], each["second_n"]) for each in lone] == [("3", ""), ("", "3")]
    assert (row["difference"], row["half_width"]) == ("", "")
    assert (row["common_seeds"], row["first_n"], row["second_n"]) == ("0", "3", "3")
    (match,) = json.loads(orthobench("compare-databases", "a.db", "b.db", "--json").out)["both"]
    assert match["result"]["difference"] is None


def test_filters_restrict_both_databases(databases, orthobench):
    record = json.loads(
        orthobench("compare-databases", *databases, "--model", "scornn", "--where", "hidden_size=170", "--json").out
    )
    assert (record["both"], len(record["only_first"]), record["only_second"]) == ([], 1, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["before.db"], "Missing argument 'SECOND'"),
        (["before.db", "./before.db"], "are the same database: name two"),
        (["before.db", "missing.db"], "missing.db"),
        (["before.db", "after.db", "--json", "--csv"], "--json and --csv are different outputs"),
        (["before.db", "after.db", "--where", "seed=77"], "neither before.db nor after.db has runs"),
    ],
)
def test_invalid_command_is_one_line(databases, orthobench, words, message):
    done = orthobench("compare-databases", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
