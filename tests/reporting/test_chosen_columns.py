"""Tables with chosen columns, and the best values in bold."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from support.databases import experiment

import orthobench as ob
from orthobench.analysis.conditions import collect
from orthobench.papers import Printed
from orthobench.reporting.account import leaderboards
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.condition_tables import condition_tables
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.reporting.tables.table import write
from orthobench.store import Status

ENDS = {"rnn": [0.03, 0.04, 0.05], "lstm": [0.01, 0.02, 0.06]}


@pytest.fixture
def conditions(database):
    for model, ends in ENDS.items():
        trained = experiment(model, "last", [Printed(metric="mse", value=0.01)])
        for seed, end in enumerate(ends):
            database.run(trained, seed, test=[0.2, min(ends) / 2 if model == "rnn" else 0.2, end])
    return collect(database.store)


def text(conditions, form, *columns, bold_best=False):
    return write(form, condition_tables(conditions, columns, bold_best))


def test_tables_open_on_the_condition_with_most_models_and_seeds(database):
    """A probe with two seeds of one model was trained first, and a quick preset has most models."""
    planted = {12: (("rnn", 2),), 11: (("rnn", 1), ("lstm", 1)), 10: (("rnn", 1), ("lstm", 2))}
    for length, models in planted.items():
        for model, seeds in models:
            for seed in range(seeds):
                database.run(experiment(model, "last", []), seed, test=[0.1] * 4, sequence_length=length)
    for model in ("rnn", "lstm", "gru"):
        quick = database.run(experiment(model, "last", []), 0, test=[0.1] * 4, sequence_length=9)
        database.store.update(quick.id, {"preset": "quick"})
    conditions = collect(database.store)
    order = ["T = 10", "T = 11", "T = 12", "T = 9"]
    for form in ("latex", "markdown"):
        assert re.findall(r"adding, (T = \d+)", text(conditions, form)) == order
    account = reproduction(conditions, [], []).partition("## Without published results")[2]
    assert re.findall(r"adding, (T = \d+)", account) == order


@pytest.mark.parametrize(("tuned", "first"), [({"rnn", "lstm"}, "T = 12"), ({"rnn"}, "T = 10")])
def test_models_tuned_alike_go_before_more_models_in_tables_and_tabs(database, monkeypatch, tmp_path, tuned, first):
    """Adding opened on a condition with one model more than the tuned one. A single tuned model has no rivals."""
    for model, length in (("rnn", 10), ("lstm", 10), ("gru", 10), ("rnn", 12), ("lstm", 12)):
        for seed in range(3):
            database.run(experiment(model, "last", []), seed, test=[0.1] * 4, sequence_length=length)

    def judged(condition, variant):
        is_tuned = condition.settings["sequence_length"] == 12 and variant.run.model in tuned
        return "tuned" if is_tuned else "own"

    monkeypatch.setattr(leaderboards, "how_judged", judged)
    assert re.findall(r"adding, (T = \d+)", text(collect(database.store), "latex"))[0] == first
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert re.findall(r'class="filtered" data-task="adding" data-label="adding, (T = \d+)"', page)[0] == first


def test_columns_are_those_of_the_user_in_this_order(conditions):
    written = text(conditions, "csv", "mse", "model", "n", "learning_rate", "final")
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [*rows[0]][2:] == [
        *("mse_median", "mse_median_low", "mse_median_high", "model", "hidden_size", "learning_rate"),
        *("final_median", "final_median_low", "final_median_high"),
    ]
    assert [row["model"] for row in rows] == ["lstm", "rnn"]  # the best first
    for row in rows:
        for name in ("mse", "final"):
            assert float(row[f"{name}_median"]) == np.median(ENDS[row["model"]])
    (table,) = json.loads(text(conditions, "json", "hidden_size", "clip_norm", "shuffle", "forget_bias"))
    rnn = {"hidden_size": 8, "clip_norm": None, "shuffle": False, "forget_bias": None}
    assert [{name: row[name] for name in rnn} for row in table["rows"]][1] == rnn


def test_latex_has_the_best_median_of_each_metric_in_bold(conditions):
    latex = text(conditions, "latex", "model", "parameters", "end", "best", bold_best=True)
    lstm, rnn = [line.split(" & ") for line in latex.splitlines() if line.startswith(("lstm", "rnn"))]
    assert lstm[2] == r"\bfseries 0.02"
    assert rnn[3].startswith(r"\bfseries 0.015")
    assert latex.count(r"\bfseries") == 2
    assert "text-series-to-math = true" in latex
    assert r"\toprule" in latex
    assert r"\bfseries" not in text(conditions, "latex", "model", "end")


def test_highest_median_is_the_best_of_a_metric_that_is_maximised(conditions):
    (condition,) = conditions
    maximised = replace(condition, metric=replace(condition.metric, goal="max"))
    (sheet,) = condition_tables([maximised], ["model", "end"], bold_best=True)
    ((row, column),) = sheet.bold
    assert (sheet.rows[row][0], sheet.headings[column]) == ("rnn", "MSE, end: median")


def test_diverged_and_equal_values(database):
    for model in ("rnn", "lstm"):
        trained = experiment(model, "last", [Printed(metric="mse", value=0.01)])
        database.run(trained, 0, test=[0.2, 0.1])
    database.run(experiment("gru", "last", [Printed(metric="mse", value=0.01)]), 0, [0.2], status=Status.DIVERGED)
    markdown = text(collect(database.store), "markdown", "model", "end", "final", bold_best=True)
    rows = {line.split(" | ")[0].strip("| "): line for line in markdown.splitlines() if line.startswith("| ")}
    assert rows["rnn"].count("**0.1**") == rows["lstm"].count("**0.1**") == 2
    assert rows["gru"] == "| gru | diverged | diverged |"


def test_survivor_among_diverged_seeds_is_never_the_best(database):
    """It may be the lowest of all runs; the median of its model is that of a run which diverged."""
    for model, ends, diverged in (("lstm", [0.1, 0.12], 0), ("gru", [0.01], 3), ("rnn", [0.2, 0.3], 0)):
        trained = experiment(model, "last", [Printed(metric="mse", value=0.01)])
        for seed, end in enumerate(ends):
            database.run(trained, seed, [end])
        for seed in range(len(ends), len(ends) + diverged):
            database.run(trained, seed, [0.2], status=Status.DIVERGED)
    markdown = text(collect(database.store), "markdown", "end", "mse", "model", bold_best=True)
    lines = [line.split(" | ") for line in markdown.splitlines() if line.startswith("| ")][-3:]
    assert [line[2].strip(" |") for line in lines] == ["lstm", "rnn", "gru"]
    assert lines[0][0].startswith("| **0.11")
    assert [cell.strip("| ") for cell in lines[2][:2]] == ["diverged"] * 2
    (condition,) = collect(database.store)
    (gru,) = (variant for variant in condition.variants if variant.run.model == "gru")
    assert str(gru.against_baseline).startswith("1 of 4 seeds")


def test_unknown_column_gets_the_nearest(conditions):
    for name, meant in (("modle", "model"), ("hidden_sizes", "hidden_size"), ("lr", "learning_rate")):
        with pytest.raises(ob.UsageError, match=f"unknown column '{name}': did you mean {meant}"):
            condition_tables(conditions, ["model", name], bold_best=False)


def test_command_writes_the_table_and_refuses_other_forms(orthobench, after, tiny_options):
    after(("sweep", "adding", "--models", "rnn,lstm", *tiny_options))
    table = orthobench("report", "--format", "latex", "--columns", "model,end", "--columns", "n", "--bold-best")
    assert table.err == ""
    assert r"model & {\shortstack{{MSE, end:}\\{median}}} & {hidden\_size} \\" in table.out
    assert ob.report("results.db", form="latex", columns=["model", "end", "n"], bold_best=True) == table.out
    for words in (
        ["--html", "--columns", "model"],
        ["--format", "csv", "--bold-best"],
        ["--format", "latex", "--paper", "helfrich2018", "--bold-best"],
        ["--format", "latex", "--columns", "model,"],
    ):
        refused = orthobench("report", *words)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
