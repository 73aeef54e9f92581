"""Measured beside printed: which runs stand in a paper's table, which value of them, and the verdict."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Claim, Printed, find_paper
from orthobench.reporting import paper_table
from orthobench.reporting.pages import leaderboard
from orthobench.store import MetricRow, Status, open_store


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def cell(view):
    (only,) = view.artifacts[0].table.cells
    return only


@pytest.mark.parametrize(
    ("selection", "split", "expected"),
    [("last", "test", 0.4), ("best_test", "test", 0.1), ("best_valid", "test", 0.3), ("best_valid", "valid", 0.05)],
)
def test_the_papers_rule_selects_the_value(database, selection, split, expected):
    rnn_experiment = experiment("rnn", selection, [Printed(metric="mse", split=split, value=0.25)])
    database.run(rnn_experiment, 0, test=[0.5, 0.1, 0.3, 0.4], valid=[0.6, 0.2, 0.05, 0.3])
    assert cell(database.view(paper(rnn_experiment))).measured.mean == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.2, 0.3, 0.28], "within the interval"),
        ([0.251], "within the tolerance"),
        ([0.2], "better"),
        ([0.3], "worse"),
    ],
)
def test_verdicts(database, values, verdict):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    for seed, value in enumerate(values):
        database.run(rnn_experiment, seed, test=[1.0, value])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.verdict, table_cell.measured.n) == (verdict, len(values))
    assert table_cell.difference == pytest.approx(sum(values) / len(values) - 0.25)


def test_what_is_not_measured_says_how(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.verdict, table_cell.measured) == ("not measured", None)
    assert table_cell.command == "orthobench reproduce k --table 1 --models rnn --seeds 3"


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"sequence_length": 12}, {"learning_rate": 0.5}])
def test_other_settings_are_never_the_papers(database, changes):
    """Among them settings that the paper's record does not name."""
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn_experiment, 0, test=[1.0, 0.25], **changes)
    assert cell(database.view(paper(rnn_experiment))).verdict == "not measured"


def test_diverged_and_unfinished_runs_give_no_number(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn_experiment, 0, test=[1.0, 0.2], status=Status.DIVERGED)
    assert cell(database.view(paper(rnn_experiment))).verdict == "diverged"
    database.run(rnn_experiment, 1, test=[1.0, 0.2], status=Status.RUNNING)
    assert cell(database.view(paper(rnn_experiment))).measured is None


def test_times_are_told_without_a_verdict(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="minutes_per_epoch", split="train", value=5.0)])
    database.run(rnn_experiment, 0, test=[1.0])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.mean, table_cell.verdict) == (0.5, "another machine")  # 120 s for four epochs


FALLS, STAYS = [0.2, 0.15, 0.05, 0.01], [0.21, 0.2, 0.19, 0.198]


@pytest.mark.parametrize(
    ("check", "factor", "curves", "holds"),
    [
        ("ends_below", 0.1, {"rnn": FALLS}, True),
        ("ends_below", 0.1, {"rnn": STAYS}, False),
        ("ends_above", 0.1, {"rnn": STAYS}, True),
        ("ends_above", 0.1, {"rnn": FALLS}, False),
        ("stays_above", 0.9, {"rnn": STAYS}, True),
        ("stays_above", 0.9, {"rnn": [0.2, 0.1, 0.2]}, False),
        ("first", 0.5, {"rnn": FALLS, "lstm": [0.2, 0.2, 0.2, 0.05]}, True),
        ("first", 0.5, {"rnn": FALLS, "lstm": [0.2, 0.05, 0.05, 0.05]}, False),
        ("first", 0.5, {"rnn": STAYS, "lstm": STAYS}, False),
        ("returns", 0.8, {"rnn": [0.2, 0.1, 0.19]}, True),
        ("returns", 0.8, {"rnn": FALLS}, False),
        ("returns", 0.8, {"rnn": STAYS}, False),
        ("returns", 0.8, {"rnn": [0.2, 0.2, 0.1]}, False),
        ("best", 0.5, {"rnn": FALLS, "lstm": STAYS}, True),
        ("best", 0.5, {"rnn": STAYS, "lstm": FALLS}, False),
        ("worst", 0.5, {"rnn": STAYS, "lstm": FALLS}, True),
        ("worst", 0.5, {"rnn": FALLS, "lstm": STAYS}, False),
        ("first", 0.5, {"rnn": FALLS}, None),
    ],
)
def test_claims(database, check, factor, curves, holds):
    """The baseline is 0.2."""
    outcome = [Printed(metric="mse", outcome="")]
    both = [experiment(model, "curve", outcome, "figure 1") for model in ("rnn", "lstm")]
    for compared in both:
        if compared.model in curves:
            database.run(compared, 0, test=curves[compared.model])
    claims = [Claim(text="", check=check, model="rnn", factor=factor, others=["lstm"] * (check in ("first", "best")))]
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    view = database.view(paper(*both, artifacts=[artifact]))
    (finding,) = view.claim_results
    assert finding.holds is holds
    assert finding.reason
    assert view.coverage == (len(curves), 2)


@pytest.mark.parametrize(
    ("curves", "statuses", "holds"),
    [
        ([FALLS, FALLS], [Status.FINISHED, Status.FINISHED], True),
        ([FALLS, STAYS], [Status.FINISHED, Status.FINISHED], False),
        ([FALLS, STAYS], [Status.FINISHED, Status.INTERRUPTED], True),
        ([FALLS, FALLS], [Status.FINISHED, Status.DIVERGED], None),
    ],
)
def test_every_seed_has_to_agree_and_none_to_diverge(database, curves, statuses, holds):
    rnn_experiment = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
    for seed, (curve, status) in enumerate(zip(curves, statuses, strict=True)):
        database.run(rnn_experiment, seed, test=curve, status=status)
    claim = Claim(text="", check="ends_below", model="rnn", factor=0.1)
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [claim]}
    (finding,) = database.view(paper(rnn_experiment, artifacts=[artifact])).claim_results
    assert finding.holds is holds
    assert ("1 of 2 runs diverged" in finding.reason) == (Status.DIVERGED in statuses)


def test_what_is_measured_after_the_last_iteration_alone_needs_no_choice(database):
    rnn_experiment = experiment("rnn", "best_valid", [Printed(metric="snr", value=3.0)])
    database.run(rnn_experiment, 0, test=[0.5, 0.1, 0.3], valid=[0.6, 0.05, 0.3])
    database.store.log(database.store.runs()[0].id, [MetricRow("test", "snr", 2, 20, 3.01)], [], {})
    assert cell(database.view(paper(rnn_experiment))).measured.mean == 3.01


@pytest.mark.parametrize(("selection", "holds"), [("last", False), ("best_test", True), ("best_valid", True)])
def test_the_best_is_told_by_the_papers_own_rule(database, selection, holds):
    printed = [Printed(metric="mse", value=0.1)]
    first, second = (experiment(model, selection, printed) for model in ("rnn", "lstm"))
    database.run(first, 0, test=[0.2, 0.1, 0.19], valid=[0.2, 0.1, 0.19])
    database.run(second, 0, test=[0.2, 0.15, 0.15], valid=[0.2, 0.15, 0.15])
    claim = Claim(text="", check="best", model="rnn", others=["lstm"])
    artifact = {"name": "table 1", "shows": "table", "claims": [claim]}
    (finding,) = database.view(paper(first, second, artifacts=[artifact])).claim_results
    assert finding.holds is holds


def test_probes_carry_claims(database):
    rnn_experiment = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
    database.run(rnn_experiment, 0, test=FALLS)
    run = database.store.runs()[0]
    rows = [MetricRow("probe", "drift", i, 10 * i, 10.0**-6 * (1 + 50 * i)) for i in range(3)]
    database.store.log(run.id, rows, [], {})
    claims = [
        Claim(text="", check="grows", model="rnn", factor=100, metric="drift"),
        Claim(text="", check="grows", model="rnn", factor=102, metric="drift"),
        Claim(text="", check="stays_below", model="rnn", factor=2e-4, metric="drift"),
        Claim(text="", check="stays_below", model="rnn", factor=1e-4, metric="drift"),
    ]
    artifact = {"name": "figure 1", "shows": "orthogonality", "claims": claims}
    view = database.view(paper(rnn_experiment, artifacts=[artifact]))
    assert [finding.holds for finding in view.claim_results] == [True, False, True, False]


def test_the_leaderboard_is_ordered_and_knows_what_is_efficient(database):
    small, large = (experiment(model, "last", []) for model in ("rnn", "lstm"))
    database.run(small, 0, test=[1.0, 0.3])
    database.run(large, 0, test=[1.0, 0.1])
    database.run(large, 1, test=[1.0, 0.5], epochs=2)  # beaten by the smaller one
    (condition,) = collect(database.store)
    assert [(row.variant.run.model, row.efficient) for row in leaderboard(condition)] == [
        ("lstm", True),
        ("rnn", True),
        ("lstm", False),
    ]


def test_tables_are_exported(orthobench, tiny_options, tmp_path):
    assert orthobench("sweep", "adding", "--models", "rnn,lstm", "--seeds", "2", *tiny_options).code == 0
    records = list(csv.DictReader(io.StringIO(orthobench("report", "--format", "csv").out)))
    assert {record["model"] for record in records} == {"rnn", "lstm"}
    with open_store(str(tmp_path / "results.db")) as store:
        values = [run.final_value for run in store.runs(model="rnn")]
    (rnn,) = (record for record in records if record["model"] == "rnn")
    assert float(rnn["final"]) == pytest.approx(sum(values) / 2)
    assert orthobench("report", "--format", "markdown").out.startswith("**adding, T = 10**\n\n| model |")
    assert "tags" not in orthobench("report", "--format", "markdown").out
    latex = orthobench("report", "--format", "latex", "-o", "table.tex")
    assert latex.out.strip() == str(tmp_path / "table.tex")
    assert r"\toprule" in (tmp_path / "table.tex").read_text("utf-8")
    assert r"$\pm$" in (tmp_path / "table.tex").read_text("utf-8")

    (table,) = json.loads(orthobench("report", "--format", "json", "--paper", "helfrich2018", "--table", "1").out)
    row = table["rows"][0]
    assert (row["row"], row["column"], row["printed"], row["verdict"]) == (
        "scornn, n = 170",
        "MNIST",
        0.973,
        "not measured",
    )


def test_a_papers_table_is_a_data_frame(database):
    """Against values computed by hand: the mean of 0.95 and 0.97, Student's interval, the differences."""
    scornn_paper = find_paper("helfrich2018")
    (first, *_) = [
        table_experiment
        for table_experiment in scornn_paper.experiments_in("table 1")
        if table_experiment.task == "mnist" and table_experiment.model == "scornn"
    ]
    for seed, value in enumerate((0.95, 0.97)):
        database.run(first, seed, test=[0.1, value])
    keys = {first.identity: database.store.runs()[0].variant}
    for name in ("1", "table 1"):
        frame = paper_table(database.store, "helfrich2018", name, keys)
        assert frame.shape[0] == sum(
            len(table_experiment.printed_in("table 1")) for table_experiment in scornn_paper.experiments_in("table 1")
        )
        (row,) = frame[frame["seeds"] > 0].to_dict("records")
        assert (row["row"], row["column"], row["model"]) == (first.label, "MNIST", "scornn")
        assert (row["printed"], row["seeds"]) == (0.973, 2)
        assert row["measured"] == pytest.approx(0.96)
        assert row["measured_half_width"] == pytest.approx(12.7062 * 0.01, rel=1e-5)
        assert row["difference"] == pytest.approx(0.96 - 0.973)
        assert row["verdict"] == "within the interval"
        assert set(frame.loc[frame["seeds"] == 0, "verdict"]) <= {"not measured", "not run here"}
    with pytest.raises(UsageError, match="has no table 9; it has table 1"):
        paper_table(database.store, "helfrich2018", "9", keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which kind of report"),
        (["--html", "--format", "csv"], "--html and --format csv are different reports"),
        (["--csv"], "--csv is now --format csv"),
        (["--reproduction"], "--reproduction is now --format reproduction"),
        (["--format", "cvs"], "'cvs' is not one of 'html', 'csv'"),
        (["--format", "csv", "--table", "1"], "add --paper"),
        (["--html", "--paper", "helfrich2018", "--table", "1", "--figure", "1"], "give one of them"),
        (["--table", "1"], "add --paper"),
        (["--format", "csv", "--paper", "helfrich2018", "--table", "9"], "has no table 9; it has figure 1"),
        (["--html", "--paper", "helfrich"], "unknown paper"),
    ],
)
def test_mistakes_are_told(orthobench, tmp_path, arguments, message):
    with open_store(str(tmp_path / "results.db"), create=True):
        pass
    outcome = orthobench("report", *arguments)
    assert outcome.code == 2
    assert message in outcome.err


def test_exports_escape(database):
    from orthobench.reporting.export import Sheet, write

    nasty = "=1+1 | a_b & <i>$x$</i> \\end{table}"
    sheet = Sheet(nasty, [{"name": nasty}], ["name"], [[nasty]])
    assert write("csv", [sheet]).splitlines()[1].startswith("'=1+1")
    assert r"\| a\_b & \<i\>$x$\</i\>" in write("markdown", [sheet])
    latex = write("latex", [sheet])
    assert r"a\_b \& \textless{}i\textgreater{}\$x\$" in latex
    assert latex.count(r"\end{table}") == 1
