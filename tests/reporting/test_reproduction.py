"""The report of a reproduction: published next to measured values, claims and hours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.claims import stated
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.papers import Printed, find_study
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.figures.drawing import MEANINGS, remarks
from orthobench.reporting.figures.paper_figures import panel_figures
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.reproduction import (
    WITHOUT_RESULT,
    everything_measured,
    figure_curves,
    reproduction,
)
from orthobench.reporting.write import write_report
from orthobench.store import Benchmark, MetricRow, Status, open_store


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def test_published_and_measured_numbers_with_missing_ones_listed(database):
    database.baseline = 100.0
    tried = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    untried = experiment("lstm", "last", [Printed(metric="mse", value=0.1)])
    for seed, value in enumerate((0.05, 0.05, 0.05)):
        database.run(tried, seed, test=[1.0, value])
    database.run(tried, 0, test=[1.0, 0.5], epochs=2)
    text = reproduction(collect(database.store), [database.view(paper(tried, untried))], [])
    assert "Published results measured: 1 of 2" in text
    assert (
        "| mse | 0.25 |  | 0.05 \\[0.05, 0.05\\] | 3 of 3 | differs, better | -4 | 90 % interval of the mean: 0.05"
        in text
    )
    assert "seeds within: 0 of 3; last tests within: 0% |" in text
    assert "Not measured: lstm, n = 8 (T = 10)" in text
    assert "| a CPU | 2 |  | 4 | 0.13 |" in text  # four runs of 120 seconds
    _, _, others = text.partition("## Without published results to compare")
    assert "epochs=2" in others


def test_curves_of_permuted_pixels_are_called_so(database):
    database.run(experiment("rnn", "last", []), 0, test=[0.5] * 4)
    (condition,) = collect(database.store)
    for settings, title in (({}, "adding, T = 10"), ({"permuted": True}, "permuted adding, T = 10")):
        panel = replace(condition, settings=condition.settings | settings)
        assert f"**{title} (baseline 0.2)**" in figure_curves(panel)


def test_interrupted_run_is_reported_as_interrupted(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", outcome="falls")], "figure 1")
    database.run(rnn_experiment, 0, test=[1.0, 0.01])
    assert WITHOUT_RESULT not in reproduction(collect(database.store), [], [])
    database.run(rnn_experiment, 1, test=[1.0, 0.5], status=Status.INTERRUPTED)
    text = reproduction(collect(database.store), [], [])
    assert f"## {WITHOUT_RESULT}\n" in text
    assert "| 1 | interrupted |  | 1 of 4 | mse | 0.5 | 0.5 | 0.033 |" in text


def test_failed_run_is_reported_with_its_cause(database):
    run = database.run(experiment("rnn", "last", []), 0, test=[1.0, 0.5], status=Status.FAILED)
    database.store.log(run.id, [], [], {"message": "RuntimeError: no room\nfor a tensor"})
    text = reproduction(collect(database.store), [], [])
    assert "| 0 | failed | RuntimeError: no room for a tensor | 1 of 4 | mse |" in text


def test_report_of_papers_leaves_other_runs_and_studies_out(database):
    own = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(own, 0, test=[1.0, 0.25])
    database.run(own, 1, test=[1.0, 0.5], status=Status.INTERRUPTED)
    for seed, status in enumerate((Status.FINISHED, Status.INTERRUPTED)):
        database.run(experiment("lstm", "last", []), seed, test=[1.0, 0.5], status=status)
    conditions, views = collect(database.store), [database.view(paper(own))]
    studies = [StoredStudy(find_study("sizes"), Benchmark(name="study sizes", results={"preset": "paper"}), [])]
    whole = reproduction(conditions, views, studies)
    assert "| a CPU | 2 |  | 4 | 0.13 |" in whole
    assert "## Studies" in whole
    assert "## Without published results to compare" in whole
    text = reproduction(conditions, views, studies, only_papers=True)
    assert "| a CPU | 2 |  | 2 | 0.067 |" in text
    assert "| mse | 0.25 |" in text
    assert text.count("| interrupted |") == 1
    assert "lstm" not in text
    assert "## Studies" not in text
    assert "## Without published results to compare" not in text


def test_file_of_a_paper_has_only_its_runs(database, tmp_path):
    database.run(experiment("rnn", "last", []), 0, test=[1.0, 0.5])
    for key, count in ((None, 1), ("helfrich2018", 0)):
        (file,) = write_report(database.store, "reproduction", Scope(paper=key), {}, tmp_path / f"{key}.md")
        assert file.read_text("utf-8").count("| a CPU |") == count


def test_stopped_trial_of_a_search_is_not_reported_as_interrupted(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", outcome="falls")], "figure 1")
    database.run(rnn_experiment, 0, test=[1.0, 0.5], status=Status.INTERRUPTED, judged_by="validation_only")
    assert WITHOUT_RESULT not in reproduction(collect(database.store), [], [])


def test_claims_of_a_figure_are_reported_with_their_measurement(database):
    rnn_experiment = experiment("rnn", "last", [Printed(metric="mse", outcome="falls")], "figure 1")
    database.run(rnn_experiment, 0, test=[1.0, 0.01])
    claims = [stated("ends_below", text="It falls", share=0.5), stated("best", "lstm", text="So?")]
    unrun = experiment("lstm", "last", [Printed(metric="mse", outcome="falls")], "figure 1")
    figure = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    whole = paper(rnn_experiment, unrun, artifacts=[figure])
    text = reproduction(collect(database.store), [database.view(whole)], [])
    assert (
        "| It falls | held (1 seed), not counted: fewer than three seeds | "
        "end: 0.01; limit: 0.1; share of the last tests below it: 1 |"
    ) in text
    assert "So?" not in text
    against = "1 of 1 seeds, all of the last tests"
    assert f"| 0.01 | 0.01 | 0.01 | 1 of 1 | {against} |" in text
    assert "Without published results" not in text


def test_paper_without_runs_is_left_out(database):
    assert reproduction([], [database.view(paper(experiment("rnn", "last", [])))], []).count("##") == 1


def test_opening_table_has_every_number_and_decided_claim(database):
    database.baseline = 100.0
    numbers = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    curves = experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], "figure 1")
    for seed, value in enumerate((0.05, 0.05, 0.05)):
        database.run(numbers, seed, test=[1.0, value])
    for seed in range(4):
        database.run(curves, seed, test=[1.0, 0.01 if seed else 90.0])
    claims = [stated("ends_below", "lstm", text="It falls", share=0.5), stated("best", "gru", text="So?")]
    unrun = experiment("gru", "curve", [Printed(metric="mse", outcome="falls")], "figure 1")
    whole = paper(
        numbers, curves, unrun, artifacts=[{"name": "figure 1", "shows": "learning_curves", "claims": claims}]
    )
    lines = everything_measured([database.view(whole)]).splitlines()
    assert len(lines) == 4
    assert sorted(lines[2:]) == [
        "| k | figure 1 | It falls | end: 0.01 to 90; limit: 50; share of the last tests below it: 0.75 "
        "| 4 | depends on the seed (3 of 4 seeds) |",
        "| k | table 1: rnn, n = 8, mse | 0.25 | 0.05 \\[0.05, 0.05\\] | 3 | differs, better |",
    ]
    assert everything_measured([]) == "Nothing is measured yet.\n"


def test_run_shared_by_two_figures_of_a_study_counts_once(database):
    rnn_experiment = experiment("rnn", "curve", [])
    database.run(rnn_experiment, 0, test=[1.0, 0.01])
    database.run(rnn_experiment, 1, test=[1.0, 0.5], status=Status.DIVERGED)
    keys = [run.key for run in database.store.runs()]
    results = {"preset": "paper", "figures": {"figure 6": keys, "figure 7": keys}}
    study = find_study("sizes")
    record = Benchmark(name=study.record, results=results)
    conditions = collect(database.store)
    study_result = StoredStudy(
        study, record, [(figure, condition) for figure in results["figures"] for condition in conditions]
    )
    assert "| whole | 2 | 0.067 |" in reproduction([], [], [study_result])
    assert study_result.progress == (2, 2)  # diverging is an end
    assert study_result.progress_words == "runs finished: 1 of 2, diverged: 1"


def test_figure_of_orthogonality_says_where_the_back_end_changes(database, tmp_path):
    """The score grows on the GPU until iteration 15 and stands still on the CPU; the page marks the place as well."""
    rnn_experiment = experiment("rnn", "last", [Printed(metric="orthogonality", outcome="grows")], "figure 4")
    parts = [("cuda", {"accelerator": "a GPU"})] * 15 + [("cpu", {})]
    run = database.run(rnn_experiment, 0, test=[0.1] * 4, parts=parts)
    scores = enumerate([1e-7, 1e-4, 1.5e-4, 1.5e-4])
    rows = [MetricRow("probe", "orthogonality/W", step, 10 * step, score) for step, score in scores]
    database.store.log(run.id, rows, [], {})
    note = "Rounding depends on the back end."
    figure = {"name": "figure 4", "shows": "orthogonality", "notes": [note]}
    view = database.view(paper(rnn_experiment, artifacts=[figure]))
    text = reproduction(collect(database.store), [view], [])
    words = "on cuda, then on cpu from iteration 15 on"
    assert f"| rnn, n = 8, W | 1e-07 | 0.00015 | 1 | {words} |" in text
    assert note in text
    ((_caption, drawn),) = panel_figures(view.artifacts[0], view.artifacts[0].panels[0], Styles([])).values()
    (mark,) = (trace for trace in drawn.data if words in (trace.get("text") or ()))
    at = mark["text"].index(words)
    assert (mark["x"][at], mark["y"][at]) == (1.5, pytest.approx(1.25e-4))
    assert MEANINGS["line-ns-open"] in remarks(drawn)[1]
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert MEANINGS["line-ns-open"] in page
