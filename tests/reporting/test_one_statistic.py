"""Every table shows the median over seeds, and a test that the validation data chose has its own name."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from support.databases import experiment

import orthobench as ob
from orthobench.analysis.conditions import collect
from orthobench.analysis.summary import summary
from orthobench.cli import records
from orthobench.papers import Printed
from orthobench.reporting.account.leaderboards import leaderboard
from orthobench.reporting.tables.condition_tables import condition_table, condition_tables
from orthobench.reporting.tables.table import write
from orthobench.store import Status

TESTS = {"rnn": [0.1, 0.11, 0.9], "lstm": [0.2, 0.21, 0.22], "gru": [0.05, None, None]}
"""The end of each seed; None diverges. The mean puts the LSTM first, and the mean of finished seeds the GRU."""
MEDIANS = {"rnn": "0.11", "lstm": "0.21", "gru": "diverged"}


@pytest.fixture
def condition(database):
    for model, ends in TESTS.items():
        trained = experiment(model, "last", [Printed(metric="mse", value=0.01)])
        for seed, end in enumerate(ends):
            status = Status.FINISHED if end is not None else Status.DIVERGED
            database.run(trained, seed, [0.5, 0.04 if end is None else end], status=status)
    (condition,) = collect(database.store)
    return condition


def cells(sheet, heading):
    """The cells of a column by model, in the order of the rows."""
    named = {name: column for column, name in enumerate(sheet.headings)}
    return {row[named["model"]]: row[named[heading]] for row in sheet.rows}


def test_all_tables_have_the_same_end_and_winner(condition, database, capsys):
    order = [*MEDIANS.items()]
    assert [row.variant.label for row in leaderboard(condition)] == [*MEDIANS]
    assert [*cells(condition_table(condition, [condition]), "MSE, end: median").items()] == order
    (chosen,) = condition_tables([condition], ["model", "end", "mse"], bold_best=True)
    assert [*cells(chosen, "MSE, end: median").items()] == [*cells(chosen, "MSE: median").items()] == order
    assert chosen.bold == {(0, 1), (0, 2)}
    (latex,) = (line for line in write("latex", [chosen]).splitlines() if line.startswith("rnn"))
    assert re.findall(r"\\bfseries ([\d.]+)", latex) == ["0.11", "0.11"]
    for sheet in (chosen, condition_table(condition, [condition])):
        rows = list(csv.DictReader(io.StringIO(write("csv", [sheet]))))
        assert [row["model"] for row in rows] == [*MEDIANS]
        assert [row["end_median"] for row in rows] == ["0.11", "0.21", "inf"]
    records.print_summary(summary(database.store, database.store.runs()))
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [tuple(words) for words in printed if words and words[0] in MEDIANS] == order


def test_best_is_never_worse_than_final_and_end(condition):
    (sheet,) = condition_tables([condition], ["model", "end", "final", "best", "at_best_validation"], bold_best=False)
    assert sheet.headings == ("model", *(f"MSE, {name}: median" for name in ("end", "final", "best")))
    for variant in condition.variants:
        best, others = variant.best.value, (variant.final.value, variant.median.value)
        assert all(best <= other for other in others), variant.label


def test_test_at_the_best_validation_has_its_own_name_everywhere(orthobench, tiny_options, tmp_path):
    """LinOSS had "best" 0.1612 and final 0.1597: of a run that validation data judge, the last test may be better."""
    judged = ("-s", "judged_by=validation", "-s", "validation_size=10")
    for words in (("rnn", *judged), ("lstm",)):
        assert orthobench("run", "adding", *words, *tiny_options).code == 0
    assert {"best", "at_best_validation"} <= set(orthobench("ls").out.splitlines()[0].split())
    runs = {run["model"]: run for run in json.loads(orthobench("ls", "--json").out)}
    assert (runs["rnn"]["best"], runs["lstm"]["at_best_validation"]) == (None, None)
    assert runs["lstm"]["best"] <= runs["lstm"]["final"]
    shown = {model: json.loads(orthobench("show", run["run"], "--json").out) for model, run in runs.items()}
    tests = {point["iteration"]: point["value"] for point in shown["rnn"]["metrics"]["test/mse"]}
    judging = {point["iteration"]: point["value"] for point in shown["rnn"]["metrics"]["valid/mse"]}
    expected = tests[min(judging, key=judging.__getitem__)]
    assert shown["rnn"]["at_best_validation"] == expected
    assert f"at the best validation {expected:.4g}" in orthobench("run", "adding", "rnn", *judged, *tiny_options).out
    with ob.open_results("results.db") as results:
        table = results.runs().set_index("model")
    assert table.loc["rnn", "at_best_validation"] == expected
    assert table["best"].isna().to_dict() == {"rnn": True, "lstm": False}
    markdown = orthobench("report", "--format", "markdown").out
    assert "at best validation: median" in markdown
    mixed = orthobench("compare", "model=rnn", "model=lstm", "--value", "best")
    assert (mixed.code, mixed.out, mixed.err.count("\n")) == (2, "", 1)
    assert "is judged by validation data: give --value at_best_validation" in mixed.err
