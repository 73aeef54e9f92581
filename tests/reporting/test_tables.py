"""Measured next to published values: which runs stand in a paper's table, which value of them, and the verdict."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
from contextlib import closing

import pandas as pd
import pytest
from support.claims import stated
from support.databases import LUCKY, RunDatabase, experiment, paper
from support.pages import block
from support.third_party import installed
from typer.main import get_command

from orthobench.analysis.aggregates import Basis
from orthobench.analysis.conditions import collect
from orthobench.analysis.paper_tables import TOLERANCE
from orthobench.cli import app
from orthobench.errors import UsageError
from orthobench.metric import Metric
from orthobench.papers import Aggregation, Artifact, Experiment, Printed, find_paper
from orthobench.reporting import paper_table
from orthobench.reporting.account.paper_views import group_of
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.figures import SEVERAL_PLACES
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.condition_tables import FACTS, condition_table
from orthobench.reporting.tables.paper_tables import paper_tables, verdict_text
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.reporting.tables.table import Table, table_of, write
from orthobench.store import MetricRow, Status, open_store
from orthobench.store.result import SEVERAL_MACHINES

SCORED = """
from orthobench.task import Metric
from orthobench.tasks.adding import Adding


class Scored(Adding):
    title = "scored"
    metrics = (Metric("accuracy", "max", is_fraction=True),)
"""


def cell(view):
    (only,) = view.artifacts[0].table.cells
    return only


@pytest.mark.parametrize(
    ("selection", "split", "expected"),
    [("last", "test", 0.4), ("best_test", "test", 0.1), ("best_valid", "test", 0.3), ("best_valid", "valid", 0.05)],
)
def test_papers_rule_selects_the_value(database, selection, split, expected):
    rnn_experiment = experiment("rnn", selection, [Printed(metric="mse", split=split, value=0.25)])
    database.run(rnn_experiment, 0, test=[0.5, 0.1, 0.3, 0.4], valid=[0.6, 0.2, 0.05, 0.3])
    assert cell(database.view(paper(rnn_experiment))).measured.value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.1, 0.3, 0.48], "too wide to say"),
        ([0.3, 0.4, 0.36], "undecided"),
        ([0.2, 0.3, 0.28], "agrees"),
        ([0.251], "undecided"),
        ([0.25, 0.25], "undecided"),
        ([0.1, 0.101, 0.102], "differs, better"),
        ([0.4, 0.401, 0.402], "differs, worse"),
    ],
)
def test_verdict_on_each_kind_of_cell(database, values, verdict):
    """The tolerance of an error that spans decades is a factor of 1.5."""
    database.baseline = 100.0
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    for seed, value in enumerate(values):
        database.run(rnn_experiment, seed, test=[1.0, value])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.words, table_cell.measured.n) == (verdict, len(values))
    assert table_cell.verdict == verdict.split(",")[0]
    within = sum(0.25 / 1.5 <= value <= 0.25 * 1.5 for value in values)
    assert f"seeds within: {within} of {len(values)}" in table_cell.reason
    assert table_cell.difference == pytest.approx(sum(values) / len(values) - 0.25)


def test_nonstandard_settings_have_no_verdict(database):
    database.baseline = 100.0
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    rnn_experiment = rnn_experiment.model_copy(update={"own_settings": True})
    for seed in range(3):
        database.run(rnn_experiment, seed, test=[1.0, 0.9])
    view = database.view(paper(rnn_experiment))
    assert (cell(view).words, cell(view).measured.n) == ("settings not published", 3)
    assert (group_of(cell(view)), view.verdicts["unpublished"], view.compared) == ("unpublished", 1, 0)


@pytest.mark.parametrize(
    ("printed", "words", "group"),
    [(0.973, "too wide to say", "too_wide"), (0.8, "too wide to say", "too_wide")],
)
def test_wide_spread_neither_supports_nor_refutes_a_number(tmp_path, printed, words, group):
    """Three accuracies of the papers' MNIST, of deviation 0.0118: 90 % of such runs spread over 7.8 tolerances."""
    (tmp_path / "scored.py").write_text(SCORED)
    single = Printed(metric="accuracy", value=printed, aggregation=Aggregation(over="mean", seeds=1))
    rnn_experiment = experiment("rnn", "last", [single]).model_copy(update={"task": "scored"})
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store, [tmp_path / "scored.py"])
        for seed, value in enumerate((0.9694, 0.9703, 0.9494)):
            database.run(rnn_experiment, seed, test=[0.1, value])
        view = database.view(paper(rnn_experiment))
    assert (cell(view).words, group_of(cell(view))) == (words, group)
    assert (view.verdicts[group], view.compared) == (1, int(group != "too_wide"))
    assert not cell(view).is_settled


@pytest.mark.parametrize(
    ("printed", "words"),
    [(0.3, "within the spread of our runs"), (30.0, "outside the spread of our runs, better")],
)
def test_published_single_run_is_inside_or_outside_the_spread_of_ours(database, printed, words):
    database.baseline = 100.0
    single = Printed(metric="mse", value=printed, aggregation=Aggregation(over="mean", seeds=1))
    rnn_experiment = experiment("rnn", "last", [single])
    for seed, value in enumerate((0.25, 0.28, 0.31, 0.33)):
        database.run(rnn_experiment, seed, test=[1.0, value])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert table_cell.words == words
    assert table_cell.reason.startswith(Basis.ONE_RUN)


def test_tolerance_of_a_negative_number_is_positive():
    """A segmental signal-to-noise ratio in dB can be negative."""
    printed = Printed(metric="segsnr_db", value=-2.0)
    target = TOLERANCE.target(printed, [-2.1, -1.9], Metric("segsnr_db", "max"), False)
    assert (target.margin, target.units(-1.96), target.low) == (pytest.approx(0.04), pytest.approx(1.0), -math.inf)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([-2.01, -2.0, -1.99], "agrees"),
        ([-2.5, -2.51, -2.5], "differs, worse"),
        ([-1.5, -1.51, -1.5], "differs, better"),
    ],
)
def test_negative_published_value_has_a_margin_on_both_sides(database, values, verdict):
    """A segmental SNR below 0 dB: the tolerance is 2 % of 2 dB."""
    decibels = Metric("segsnr_db", "max", "dB", "segmental SNR")
    rnn_experiment = experiment("rnn", "final", [Printed(metric=decibels.name, value=-2.0)])
    for seed, value in enumerate(values):
        database.run(rnn_experiment, seed, test=[1.0, 0.9])
        (run,) = (run for run in database.store.runs() if run.seed == seed)
        database.store.log(run.id, [MetricRow("test", decibels.name, 2, 40, value)], [], {})
        database.store.update(run.id, {"metrics": run.metrics | {decibels.name: decibels.record()}})
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert table_cell.words == verdict
    within = sum(abs(value + 2.0) <= 0.04 for value in values)
    assert f"seeds within: {within} of 3" in table_cell.reason


def test_unmeasured_cell_names_its_command(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.verdict, table_cell.measured) == ("not measured", None)
    assert table_cell.command == "orthobench reproduce k --table 1 --models rnn --seeds 3"


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"sequence_length": 12}, {"learning_rate": 0.5}])
def test_runs_with_other_settings_do_not_count_for_the_paper(database, changes):
    """Among them settings that the paper's record does not name."""
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn_experiment, 0, test=[1.0, 0.25], **changes)
    assert cell(database.view(paper(rnn_experiment))).verdict == "not measured"


def test_diverged_and_unfinished_runs_have_no_number(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn_experiment, 0, test=[1.0, 0.2], status=Status.DIVERGED)
    assert cell(database.view(paper(rnn_experiment))).verdict == "diverged"
    database.run(rnn_experiment, 1, test=[1.0, 0.2], status=Status.RUNNING)
    assert cell(database.view(paper(rnn_experiment))).measured is None


def test_times_are_reported_without_a_verdict(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="minutes_per_epoch", split="train", value=5.0)])
    database.run(rnn_experiment, 0, test=[1.0])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.value, table_cell.verdict) == (0.5, "another machine")  # 120 s for four epochs


def test_times_of_two_machines_are_not_averaged(database):
    """A GPU's seed next to three of a CPU: the cell and the condition's table show the time on the CPU."""
    rnn_experiment = experiment("rnn", "last", [Printed(metric="minutes_per_epoch", split="train", value=5.0)])
    for seed, (machine, seconds) in enumerate([("a GPU", 2.4), ("a CPU", 120.0), ("a CPU", 120.0), ("a CPU", 120.0)]):
        database.run(rnn_experiment, seed, test=[1.0], seconds=seconds, cpu=machine)
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.value, table_cell.measured.n) == (0.5, 3)
    assert table_cell.reason == "measured on a CPU"
    (variant,) = collect(database.store)[0].variants
    assert (variant.seconds_per_epoch.mean, variant.seconds_per_epoch.n) == (30.0, 3)


def test_headings_of_times_name_cpu_time(database, tmp_path):
    """Two runs on a busy machine, of one thread each; a third of two threads has another clock."""
    for model, cpu in (("rnn", 30.0), ("lstm", 60.0)):
        run = database.run(experiment(model, "last", []), 0, test=[1.0], parts=[("cpu", {"threads": 1})])
        database.store.update(run.id, {"seconds": {"train": 120.0, "cpu": cpu}})

    def shown() -> tuple[Table, str, str]:
        (condition,) = collect(database.store)
        page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
        return condition_table(condition, [condition]), reproduction([condition], [], []), page

    sheet, report, page = shown()
    assert [row[sheet.headings.index("CPU s / epoch [95 %]")] for row in sheet.rows] == ["7.5", "15"]
    assert "| CPU hours |" in report
    assert "| 0.025 |" in report  # 90 seconds
    assert '<th scope="col">CPU s / epoch [95 %]</th>' in page
    assert block(page, f"figures-{collect(database.store)[0].key}")["figures"]["seconds"]["layout"]["xaxis"][
        "title"
    ] == {"text": "CPU seconds of training"}
    assert "Measured on" not in page
    database.run(experiment("gru", "last", []), 0, test=[1.0], parts=[("cpu", {"threads": 2})])
    sheet, report, page = shown()
    times = [[row[sheet.headings.index(name)] for name in ("s / epoch [95 %]", "timed on")] for row in sheet.rows]
    assert sorted(times) == [["15", "a CPU, CPU time"], ["30", "a CPU"], ["7.5", "a CPU, CPU time"]]
    assert "| hours, CPU time if known |" in report
    assert '<th scope="col">s / epoch [95 %]</th>' in page
    assert SEVERAL_PLACES in page


def test_number_and_time_of_a_run_of_two_machines(database):
    """The number says which back ends computed it, and there is no time, neither here nor among the claims."""
    printed = [Printed(metric="mse", value=1.0), Printed(metric="minutes_per_epoch", split="train", value=5.0)]
    both = [experiment(model, "last", printed) for model in ("rnn", "lstm")]
    database.run(both[0], 0, test=[1.0], parts=[("cuda", {"accelerator": "a GPU"}), ("cpu", {})])
    database.run(both[1], 0, test=[1.0])
    claim = stated("ratio", "rnn", ratio=1.0, metric="minutes_per_epoch", split="train", others=["lstm"])
    view = database.view(paper(*both, artifacts=[{"name": "table 1", "claims": [claim]}]))
    number, time = view.artifacts[0].table.rows[0].cells.values()
    assert "trained on cuda, then cpu" in verdict_text(number)
    assert (time.measured, time.verdict, time.reason) == (None, "not measured", SEVERAL_MACHINES)
    assert [result.is_decided for result in view.claim_results] == [False]


def test_value_measured_once_at_the_end_needs_no_selection(database):
    rnn_experiment = experiment("rnn", "best_valid", [Printed(metric="snr", value=3.0)])
    database.run(rnn_experiment, 0, test=[0.5, 0.1, 0.3], valid=[0.6, 0.05, 0.3])
    database.store.log(database.store.runs()[0].id, [MetricRow("test", "snr", 2, 20, 3.01)], [], {})
    assert cell(database.view(paper(rnn_experiment))).measured.value == 3.01


def test_verdict_uses_the_last_tenth_and_final_is_kept(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.01)])
    for seed in range(3):
        database.run(rnn_experiment, seed, test=LUCKY)
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.value, table_cell.final.mean) == (pytest.approx(0.3), pytest.approx(0.01))
    assert table_cell.words == "differs, worse"
    assert table_cell.reason.endswith("seeds within: 0 of 3; last tests within: 33%")
    (condition,) = collect(database.store)
    (variant,) = condition.variants
    assert (variant.median.value, variant.final.value) == (pytest.approx(0.3), pytest.approx(0.01))
    assert str(variant.against_baseline) == "0 of 3 seeds, 33 % of the last tests"


def test_diverged_seed_is_visible_and_decides_nothing(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.01)])
    for seed in range(4):
        database.run(rnn_experiment, seed, test=[0.2, 0.01])
    database.run(rnn_experiment, 4, test=[0.2, 0.19], status=Status.DIVERGED)
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.value, table_cell.verdict) == (pytest.approx(0.01), "undecided")
    assert table_cell.reason.startswith(Basis.DIVERGED)
    assert "seeds within: 4 of 5" in table_cell.reason
    assert (table_cell.median.value, table_cell.median.high) == (0.01, math.inf)
    assert (table_cell.variant.solved.reached, table_cell.variant.solved.seeds) == (4, 5)
    assert "diverged: 1 of 5; median: 0.01" in verdict_text(table_cell)
    (condition,) = collect(database.store)
    sheet = condition_table(condition, [condition])
    assert sheet.rows[0][sheet.headings.index("seeds")] == "4 of 5, 1 diverged"
    assert sheet.rows[0][sheet.headings.index("solved")] == "4 of 5"
    (row,) = json.loads(write("json", [sheet]))[0]["rows"]
    assert (row["diverged"], row["end_median"], row["end_median_high"]) == (1, 0.01, None)


def test_failing_seeds_add_the_median_to_the_mean(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.01)])
    for seed, value in enumerate([0.007, 0.008, 0.009, 0.167, 0.006]):
        database.run(rnn_experiment, seed, test=[0.2, value])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.median.value, table_cell.median.low, table_cell.median.high) == (0.008, 0.006, 0.167)
    assert table_cell.variant.solved.reached == 4
    lstm_experiment = experiment("lstm", "last", [Printed(metric="mse", value=0.01)])
    for seed in range(5):
        database.run(lstm_experiment, seed, test=[0.2, 0.01])
    (_, all_solve) = database.view(paper(rnn_experiment, lstm_experiment)).artifacts[0].table.cells
    assert all_solve.median is None


def test_selection_by_test_shows_the_value_at_the_best_validation(database):
    rnn_experiment = experiment("rnn", "best_test", [Printed(metric="mse", value=0.1)])
    database.run(rnn_experiment, 0, test=[0.5, 0.1, 0.3, 0.4], valid=[0.6, 0.2, 0.05, 0.3])
    table_cell = cell(database.view(paper(rnn_experiment)))
    assert (table_cell.measured.value, table_cell.by_validation.mean) == (0.1, 0.3)
    assert table_cell.rule == "best test, so chosen by the test data"
    assert "chosen by test; best validation: 0.3" in verdict_text(table_cell)
    lstm_experiment = experiment("lstm", "best_test", [Printed(metric="mse", value=0.1)])
    database.run(lstm_experiment, 0, test=[0.5, 0.1])
    assert "chosen by test; without validation" in verdict_text(cell(database.view(paper(lstm_experiment))))


def test_interval_has_a_heading_with_its_level(database, tmp_path):
    """And a paper's cell has the one interval that decides, under 90 %, however many numbers it has."""
    rnn_experiment = experiment("rnn", "best_test", [Printed(metric="mse", value=0.1)])
    for seed, worst in enumerate([0.3, 0.36, 0.33, 0.5, 0.31]):
        database.run(rnn_experiment, seed, test=[0.5, 0.1 + 0.01 * seed, worst, 0.4], valid=[0.6, 0.2, 0.05, 0.3])
    database.run(rnn_experiment, 5, test=[0.5, 0.45], status=Status.DIVERGED)
    (condition,) = conditions = collect(database.store)
    view = database.view(paper(rnn_experiment, artifacts=[Artifact(name="table 1", title="t")]))
    (paper_sheet,) = paper_tables(view)
    assert "90 %" in paper_sheet.headings[5]
    (row,) = paper_sheet.rows
    assert ("median: 0.125" in row[7], row[7].count("["), row[5].count("[")) == (True, 0, 1)
    figure = Artifact(name="table 1", shows="learning_curves")
    text = reproduction(conditions, [database.view(paper(rnn_experiment, artifacts=[figure]))], [])
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text("utf-8")
    sheet = condition_table(condition, [condition])
    tables = [(sheet.headings, sheet.rows)]
    for table in re.split(r"\n\n", text):
        lines = [re.split(r" ?\| ?", line)[1:] for line in table.splitlines() if line.startswith("|")]
        tables += [(lines[0], lines[2:])] if lines else []
    for table in page.split("<table")[1:]:
        rows = [re.split(r"<t[hd][ >]", row)[1:] for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
        tables += [(rows[0], rows[1:])] if rows else []
    columns = [
        name
        for header, rows in tables
        for row in rows
        for name, content in zip(header, row, strict=False)
        if re.search(r"\[\d[\d.e-]*, (\d[\d.e-]*|inf|∞)\\?\]", content)
        and not re.search("model|source", name)  # as Mamba [0, 1]
    ]
    assert len(columns) > 10
    assert [name for name in columns if " %" not in name] == []


def test_each_number_of_the_sheet_matches_its_cell(database):
    """Each rule selects another evaluation, and the sheet has the mean over the seeds of each in its own column."""
    rnn_experiment = experiment("rnn", "best_test", [Printed(metric="mse", value=0.1, error=0.01)])
    curves = [[0.5, 0.1, 0.3, 0.4], [0.5, 0.2, 0.36, 0.6], [0.5, 0.12, 0.33, 0.5], [0.5, 0.18, 0.41, 0.7]]
    for seed, test in enumerate(curves):
        database.run(rnn_experiment, seed, test=test, valid=[0.6, 0.2, 0.05, 0.3])
    database.run(rnn_experiment, 4, test=[0.5, 0.45], status=Status.DIVERGED)
    (sheet,) = paper_tables(database.view(paper(rnn_experiment, artifacts=[Artifact(name="table 1", title="t")])))
    expected = {
        "printed": 0.1,
        "printed_error": 0.01,
        "measured": 0.15,
        "tolerances": 1.0,  # a factor of 1.5
        "final": 0.55,
        "at_best_validation": 0.35,
        "difference": 0.05,
        "median": 0.18,  # with the diverged run, which is the worst
        "median_low": 0.1,
        "seeds": 4,
        "diverged": 1,
        "solved": 0,
        "parameters": "",
    }
    (record,) = sheet.frame.to_dict("records")
    assert record["median_high"] == math.inf
    assert {name: record[name] for name in expected} == pytest.approx(expected)
    (row,) = json.loads(write("json", [sheet]))[0]["rows"]
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    (text,) = csv.DictReader(io.StringIO(write("csv", [sheet])))
    numbers = {name: float(text[name]) for name, value in expected.items() if not isinstance(value, str)}
    assert numbers == pytest.approx({name: expected[name] for name in numbers})


def test_mixed_back_ends_are_reported(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", value=0.1)])
    for seed in range(2):
        database.run(rnn_experiment, seed, test=[0.5, 0.1])
    (condition,) = collect(database.store)
    assert "back ends" not in condition_table(condition, [condition]).headings
    database.store.update(database.store.runs()[1].id, {"backend": "reference"})
    pooled = "cpu on cpu; reference on cpu"
    assert f"pooled over back ends: {pooled}" in verdict_text(cell(database.view(paper(rnn_experiment))))
    (condition,) = collect(database.store)
    sheet = condition_table(condition, [condition])
    assert sheet.rows[0][sheet.headings.index("back ends")] == sheet.frame.to_dict("records")[0]["backends"] == pooled


def test_tables_are_exported(orthobench, tiny_options, tmp_path):
    assert orthobench("sweep", "adding", "--models", "rnn,lstm", "--seeds", "2", *tiny_options).code == 0
    records = list(csv.DictReader(io.StringIO(orthobench("report", "--format", "csv").out)))
    assert {record["model"] for record in records} == {"rnn", "lstm"}
    with open_store(str(tmp_path / "results.db")) as store:
        values = [run.final_value for run in store.runs(model="rnn")]
    (rnn,) = (record for record in records if record["model"] == "rnn")
    assert float(rnn["final_median"]) == pytest.approx(sum(values) / 2)
    assert orthobench("report", "--format", "markdown").out.startswith("**adding, T = 10**\n\n| rank | model |")
    assert "tags" not in orthobench("report", "--format", "markdown").out
    latex = orthobench("report", "--format", "latex", "-o", "table.tex")
    assert latex.out.strip() == str(tmp_path / "table.tex")
    assert r"\toprule" in (tmp_path / "table.tex").read_text("utf-8")

    (table,) = json.loads(orthobench("report", "--format", "json", "--paper", "helfrich2018", "--table", "1").out)
    row = table["rows"][0]
    assert (row["row"], row["column"], row["printed"], row["verdict"]) == (
        "scoRNN, n = 170",
        "MNIST",
        0.973,
        "not measured",
    )


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
def test_printed_table_has_no_row_without_a_result(after, tiny_options, tmp_path, status):
    orthobench = after(("sweep", "adding", "--models", "rnn,lstm", *tiny_options))
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        connection.execute("UPDATE run SET status = ? WHERE model = 'lstm'", (status,))
    latex = orthobench("report", "--format", "latex").out
    assert "rnn" in latex.lower()
    assert "lstm" not in latex.lower()
    assert "lstm" in orthobench("report", "--format", "markdown").out.lower()
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        connection.execute("UPDATE run SET status = ?", (status,))
    empty = orthobench("report", "--format", "latex").out
    assert "lstm" not in empty.lower()
    assert "--" not in empty


def test_paper_table_is_a_data_frame(database):
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
        half_width = 6.313752 * 0.01 * 3**0.5  # one printed run: t of 95 % at one degree of freedom
        assert (row["measured_low"], row["measured_high"]) == (pytest.approx(0.96 - half_width, rel=1e-5), 1.0)
        assert row["tolerances"] == pytest.approx(-13 / 5)
        assert row["difference"] == pytest.approx(0.96 - 0.973)
        assert row["verdict"] == "undecided"
        assert set(frame.loc[frame["seeds"] == 0, "verdict"]) <= {"not measured", "not run here"}
    with pytest.raises(UsageError, match="has no table 9; it has table 1"):
        paper_table(database.store, "helfrich2018", "9", keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--html", "--format", "csv"], "--html and --format csv are different reports"),
        (["--format", "cvs"], "'cvs' is not one of 'html', 'csv'"),
        (["--format", "csv", "--table", "1"], "add --paper"),
        (["--html", "--paper", "helfrich2018", "--table", "1", "--figure", "1"], "give one of them"),
        (["--table", "1"], "add --paper"),
        (["--format", "csv", "--paper", "helfrich2018", "--table", "9"], "has no table 9; it has figure 1"),
        (["--html", "--paper", "helfrich"], "unknown paper"),
    ],
)
def test_invalid_arguments_are_one_line(orthobench, tmp_path, arguments, message):
    with open_store(str(tmp_path / "results.db"), create=True):
        pass
    outcome = orthobench("report", *arguments)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_csv_is_a_formula(first):
    """A spreadsheet evaluates a cell that begins with one of these characters, a number apart."""
    frame = pd.DataFrame([{"text": f"{first}1+1", "later": f"1{first}=1", "number": -1.5, "nothing": None}])
    header, *rows = csv.reader(io.StringIO(write("csv", [Table("t", pd.DataFrame(), frame)]), newline=""))
    assert header == ["text", "later", "number", "nothing"]
    shown = first.replace("\r", "\n")  # inside quotes, so that it ends no row
    assert rows == [[f"'{shown}1+1", f"1{shown}=1", "-1.5", ""]]


def test_special_characters_are_escaped_in_exports(database):
    nasty = "=1+1 | a_b & <i>$x$</i> \\end{table}"
    sheet = Table(nasty, table_of("", ["name"], [[nasty]]).shown, pd.DataFrame([{"name": nasty}]))
    assert write("csv", [sheet]).splitlines()[1].startswith("'=1+1")
    assert r"\| a\_b & \<i\>$x$\</i\>" in write("markdown", [sheet])
    latex = write("latex", [sheet])
    assert r"a\_b \& \textless{}i\textgreater{}\$x\$" in latex
    assert latex.count(r"\end{table}") == 1


def test_conditions_of_one_title_show_what_differs(orthobench, tmp_path, monkeypatch, tiny):
    """A task of a stranger: sums modulo 2 and modulo 5 are two problems of one name."""
    with installed(tmp_path / "site", monkeypatch):
        options = [word for name, value in tiny.items() for word in ("-s", f"{name}={value}")]
        for modulus in ("2", "5"):
            run = orthobench("run", "modular_sum", "looped", *options, "-s", f"modulus={modulus}")
            assert run.code == 0, run.err
        for form in ("markdown", "latex"):
            text = orthobench("report", "--format", form).out.replace("\\_", "_")
            assert "modular_sum, T = 10, modulus 2" in text
            assert "modular_sum, T = 10, modulus 5" in text
        tables = json.loads(orthobench("report", "--format", "json").out)
        assert {table["title"]: [row["task_modulus"] for row in table["rows"]] for table in tables} == {
            "modular_sum, T = 10, modulus 2": [2],
            "modular_sum, T = 10, modulus 5": [5],
        }
        columns = next(csv.reader(io.StringIO(orthobench("report", "--format", "csv").out)))
        assert "task_modulus" in columns
        assert orthobench("report", "--html", "-o", "page.html").code == 0
        titles = block((tmp_path / "page.html").read_text("utf-8"), "index")["conditions"]
        assert {title["title"] for title in titles} == {
            "modular_sum, T = 10, modulus 2",
            "modular_sum, T = 10, modulus 5",
        }


def test_published_aggregation_is_applied_to_the_measured_runs(database):
    """The baseline of the made runs is 0.2: (0.6 - 0.2) / (1 - 0.2) is 0.5, of the best of the first three seeds."""
    how = Aggregation(over="best", seeds=3, scaled=True, selection="final")
    table = Artifact(name="table 1", aggregation=how)
    own = experiment("rnn", "curve", [Printed(metric="mse", value=0.5)])
    own = Experiment(**{name: getattr(own, name) for name in own.__class__.model_fields if name != "selection"})
    for seed, value in ((2, 0.6), (0, 0.9), (1, 0.7), (3, 0.1)):
        database.run(own, seed, test=[0.0, value])
    view = database.view(paper(own, artifacts=[table]))
    table_cell = cell(view)
    assert (table_cell.measured.n, table_cell.measured.value) == (3, pytest.approx(0.5))
    assert table_cell.rule == "last test"
    assert verdict_text(table_cell).startswith("best of 3, scaled; ")
    assert table_cell.printed_text == "0.5 (best of 3, scaled)"
    sheet = next(iter(paper_tables(view)))
    (record,) = sheet.frame.to_dict("records")
    assert (record["printed_as"], record["measured_as"]) == ("best of 3, scaled", "best of 3, scaled")
    assert record["measured"] == pytest.approx(0.5)
    assert "| 0.5 | best of 3, scaled |" in write("markdown", [sheet])
    assert "best of 3, scaled" in write("latex", [sheet])
    assert "best of 3, scaled" in write("csv", [sheet])
    assert "best of 3, scaled" in reproduction([], [view], [])


def test_fewer_seeds_than_published_are_named_with_a_sufficient_command(database):
    how = Aggregation(over="mean", seeds=5, deviation="population")
    table = Artifact(name="table 1", aggregation=how)
    own = experiment("rnn", "last", [Printed(metric="mse", value=0.25, error=0.01)])
    assert cell(database.view(paper(own, artifacts=[table]))).command.endswith("--seeds 5")
    for seed, value in enumerate([0.2, 0.3]):
        database.run(own, seed, test=[1.0, value])
    measured = cell(database.view(paper(own, artifacts=[table]))).measured
    assert measured.deviation == pytest.approx(0.05)
    assert measured.words == "mean of 2 (published: mean of 5), population deviation 0.05"


def test_scale_without_a_chance_level_gives_no_number(database):
    how = Aggregation(scaled=True)
    own = experiment("rnn", "last", [Printed(metric="loss", split="train", value=0.25, aggregation=how)])
    database.run(own, 0, test=[1.0, 0.3])
    assert cell(database.view(paper(own))).measured is None


def test_help_names_the_columns_that_a_table_takes():
    """A metric and a setting are columns, too, and are not in this list."""
    (option,) = [each for each in get_command(app).commands["report"].params if each.name == "columns"]
    named = option.help.partition(": ")[2].partition(", metrics and settings")[0].split(", ")
    assert named == list(FACTS)
