"""A report's filters act on everything that it shows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.databases import RunDatabase, experiment, paper
from support.pages import block

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Printed
from orthobench.reporting.account.scope import Scope
from orthobench.settings.filters import parse_conditions
from orthobench.store import open_store

RNN, LSTM, GRU = (
    experiment(model, "last", [Printed(metric="mse", value=value)])
    for model, value in (("rnn", 0.1), ("lstm", 0.2), ("gru", 0.3))
)


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        database = RunDatabase(store)
        database.run(RNN, 0, test=[1.0, 0.1])
        database.run(RNN, 1, test=[1.0, 0.2])
        database.run(LSTM, 0, test=[1.0, 0.2])
        yield database


def rows(database: RunDatabase, *conditions: str) -> dict[str, str]:
    """The rows of the paper's only table in scope, with their verdicts."""
    scope = Scope(parse_conditions(conditions))
    (view,) = scope.restrict([database.view(paper(RNN, LSTM, GRU))])
    table = view.artifacts[0].table
    assert table is not None
    return {row.model: cell.verdict for row in table.rows for cell in row.cells.values()}


def test_conditions_select_the_rows_of_a_paper_table(database):
    assert list(rows(database)) == ["rnn", "lstm", "gru"]
    assert list(rows(database, "model=rnn,gru")) == ["rnn", "gru"]
    assert rows(database, "task=adding", "model=gru") == {"gru": "not measured"}
    assert list(rows(database, "n=8")) == ["rnn", "lstm", "gru"]
    assert list(rows(database, "tag=night")) == ["rnn", "lstm"]  # only measured rows can have a tag
    assert Scope(parse_conditions(["n=9"])).restrict([database.view(paper(RNN))]) == []


def test_coverage_counts_the_shown_rows(database):
    whole = database.view(paper(RNN, LSTM, GRU))
    (view,) = Scope(parse_conditions(["model=rnn"])).restrict([whole])
    assert (whole.coverage, view.coverage) == ((2, 3), (1, 1))
    assert view.artifacts[0].command == ""


def test_conditions_select_runs(database):
    scope = Scope(parse_conditions(["model=rnn", "seed=1"]))
    runs, _ = scope.select(scope.current_runs(database.store))
    (condition,) = collect(database.store, runs)
    assert [(run.model, run.seed) for variant in condition.variants for run in variant.runs] == [("rnn", 1)]


def test_run_that_a_process_has_left_has_its_current_status(database):
    scope = Scope(status_of=lambda run: "interrupted" if run.seed == 1 else run.status)
    current = {run.seed: run.status for run in scope.current_runs(database.store)}
    assert (current[0], current[1]) == ("finished", "interrupted")


def test_table_or_figure_selects_one_of_its_paper(database):
    view = database.view(paper(RNN, experiment("gru", "last", [Printed(metric="mse", value=0.3)], "figure 2")))
    (restricted_view,) = Scope(paper="k", figure="2").restrict([view])
    assert [part.artifact.name for part in restricted_view.artifacts] == ["figure 2"]
    with pytest.raises(UsageError, match="k has no table 7; it has table 1, figure 2"):
        Scope(paper="k", table="7").restrict([view])
    with pytest.raises(UsageError, match="add `paper`"):
        Scope(table="1")
    with pytest.raises(UsageError, match="give one of them"):
        Scope(paper="k", table="1", figure="1")


def test_page_shows_selected_runs_only(orthobench, database):
    database.run(experiment("rnn", "last", []), 5, test=[1.0, 0.4], sequence_length=12)

    def page(*filters: str) -> str:
        outcome = orthobench("report", "--html", *filters)
        assert outcome.code == 0, outcome.err
        return Path(outcome.out.strip()).read_text("utf-8")

    assert 'data-model="lstm"' in page()
    filtered = page("--model", "rnn", "--where", "sequence_length=12")
    assert 'data-model="lstm"' not in filtered
    assert len(block(filtered, "index")["rows"]) == 1
    assert 'id="overview"' in filtered
    assert '<table class="board">' in filtered

    records = list(csv.DictReader(io.StringIO(orthobench("report", "--format", "csv", "--where", "seed=1").out)))
    assert [(record["model"], record["seeds"]) for record in records] == [("rnn", "1")]


def test_table_and_filter_restrict_the_page(orthobench, database):
    page = Path(orthobench("report", "--html", "--paper", "helfrich2018", "--table", "1").out.strip()).read_text(
        "utf-8"
    )
    assert "<h3>Table 1" in page
    assert "<h3>Figure 1" not in page
    only = ("--format", "json", "--paper", "helfrich2018", "--table", "1", "--model", "lstm")
    outcome = orthobench("report", *only)
    assert outcome.code == 0
    tables = json.loads(outcome.out)
    assert {row["model"] for table in tables for row in table["rows"]} == {"lstm"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "rrnn"), "unknown model 'rrnn': did you mean rnn"),
        (("--tag", "night"), "no run has tag=night; runs have tag none"),
        (("--where", "sed=1"), "unknown column or setting 'sed': did you mean seed?"),
        (("--where", "seed"), "'seed' is not a condition: write KEY=VALUE"),
        (("--status", "done"), "unknown status 'done'"),
        (("--paper", "helfrich2081"), "unknown paper 'helfrich2081': did you mean helfrich2018"),
    ],
)
def test_invalid_filter_names_the_fix(orthobench, database, arguments, message):
    refused = orthobench("report", "--html", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert refused.err.count("\n") == 1
