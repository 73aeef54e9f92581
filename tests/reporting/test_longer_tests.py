"""Scores at multiples of the trained length, against the numbers of the stored runs."""

from __future__ import annotations

from statistics import median

import pytest

import orthobench as ob
from orthobench.analysis.by_length import scores_at
from orthobench.analysis.conditions import collect
from orthobench.papers import find_study
from orthobench.reporting.account.matrix import compute_matrix
from orthobench.reporting.account.studies import EARLIER, find_result
from orthobench.reporting.figures.drawing import remarks
from orthobench.reporting.figures.drawn_studies import draw_study
from orthobench.reporting.figures.length_figures import longer_tests
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.tables.study_tables import study_tables
from orthobench.store import MetricRow, open_store

TINY = {"sequence_length": 10, "train_size": 60, "test_size": 30, "epochs": 1, "hidden_size": 8, "longer_tests": True}


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    """The study's figures and tables with two seeds of two models, and the scores by model and metric."""
    db = str(tmp_path_factory.mktemp("longer") / "runs.db")
    keys = [
        ob.run("adding", model, db=db, settings=TINY, seed=seed).key for model in ("irnn", "gru") for seed in (0, 1)
    ]
    with open_store(db) as store:
        study = find_study("longer-sequences")
        facts = store.runs()[0].environment
        store.add_benchmark(study.record, {"preset": "paper", "figures": {"adding": keys}}, facts.facts)
        result = find_result(store, study)
        values: dict[tuple[str, str], list[float]] = {}
        for run in store.runs():
            for name in ("mse", "mse_2t", "mse_4t", "mse_8t"):
                share = store.metrics([run.id], "test", name)[-1].value / run.baselines[name]
                values.setdefault((run.model, name), []).append(max(1 - share, -1))
        styles = Styles([condition for _, condition in result.conditions])
        drawn = draw_study(result, styles)
        store.add_benchmark(study.record, {"preset": "paper", "figures": {"gone": keys}}, facts.facts)
        earlier = find_result(store, study)
    assert (EARLIER in result.remarks, EARLIER in earlier.remarks) == (False, True)
    return drawn, study_tables(result), values


def test_table_has_the_median_score_at_each_multiple(section):
    _, (table,), values = section
    assert table.headings == ("model", "adding 1T", "adding 2T", "adding 4T", "adding 8T")
    for label, *cells in table.rows:
        for name, cell in zip(("mse", "mse_2t", "mse_4t", "mse_8t"), cells, strict=True):
            assert cell == f"{100 * median(values[label.lower(), name]):.0f}"


def test_figure_has_a_curve_over_the_multiples(section):
    drawn, _, values = section
    (_, figure) = drawn["0 adding"]
    curves = {trace["name"]: trace for trace in figure.data if trace.get("name") in ("GRU", "IRNN")}
    assert set(curves) == {"GRU", "IRNN"}
    for model, trace in curves.items():
        assert list(trace["x"]) == [1, 2, 4, 8]
        expected = [median(values[model.lower(), name]) for name in ("mse", "mse_2t", "mse_4t", "mse_8t")]
        assert list(trace["y"]) == pytest.approx([100 * each for each in expected])
    assert figure.layout["xaxis"]["ticktext"] == ["1T", "2T", "4T", "8T"]
    figure.to_plotly()


def test_curve_that_falls_below_guessing_says_how_far(tmp_path):
    """The frame begins at 0, the score of a guess. MSEs of 0.17 at T and of 0.3 beyond are worse than one."""
    db = str(tmp_path / "runs.db")
    for model in ("irnn", "gru"):
        ob.run("adding", model, db=db, settings=TINY)
    with open_store(db) as store:
        for run in store.runs():
            beyond = 0.3 if run.model == "irnn" else 0.01
            store.rewind(run.id, -1, "t")
            values = {"mse": 0.001, "mse_2t": beyond, "mse_4t": beyond, "mse_8t": beyond}
            rows = [MetricRow("test", name, 1, run.total_iterations, value) for name, value in values.items()]
            store.log(run.id, rows, [], {"final_value": 0.001})
        (condition,) = collect(store)
        guess = condition.variants[0].run.baselines["mse_8t"]
        ((_, figure),) = longer_tests("adding", condition, Styles([condition])).values()
    assert remarks(figure)[0] == [f"ends below the frame: irnn at {100 * (1 - 0.3 / guess):.3g}"]


def test_runs_on_other_data_have_a_figure_whose_name_says_so(tmp_path):
    db = str(tmp_path / "runs.db")
    keys = [ob.run("adding", "irnn", db=db, settings=TINY | more).key for more in ({}, {"marker_layout": "halves"})]
    with open_store(db) as store:
        study = find_study("longer-sequences")
        facts = store.runs()[0].environment.facts
        store.add_benchmark(study.record, {"preset": "paper", "figures": {"adding": keys}}, facts)
        result = find_result(store, study)
        names = list(draw_study(result, Styles([condition for _, condition in result.conditions])))
    assert [name.partition(" (")[0] for name in names] == ["0 adding", "1 adding"]
    assert len({name.partition(" (")[2] for name in names}) == 2


def test_all_multiples_have_the_score_of_one_metric(tmp_path):
    """Copying is judged by the cross-entropy, and at multiples of T by the recall."""
    db = str(tmp_path / "runs.db")
    ob.run("copying", "irnn", db=db, settings=TINY | {"hidden_size": 16})
    with open_store(db) as store:
        (run,) = store.runs()
        ((variant,),) = (condition.variants for condition in collect(store))
        expected = {}
        for multiple, name in {1: "recall", 2: "recall_2t", 4: "recall_4t", 8: "recall_8t"}.items():
            guess = run.baselines[name]
            expected[multiple] = [max((store.metrics([run.id], "test", name)[-1].value - guess) / (1 - guess), -1)]
        found = scores_at(variant)
    assert list(found) == [1, 2, 4, 8]
    assert [found[each] for each in found] == [pytest.approx(expected[each]) for each in found]


@pytest.mark.parametrize(
    ("at_t", "beyond", "loses"), [(0.001, 0.26, True), (0.001, 0.05, True), (0.001, 0.002, False), (0.12, 0.3, False)]
)
def test_cell_that_holds_the_trained_length_alone_is_marked(tmp_path, at_t, beyond, loses):
    """With MSEs of 0.17 for a guess; LEM had 0.0003 at T and 0.26 at 2T, and 0.05 is a score of 70.

    A cell that fails at T as well has no mark.
    """
    db = str(tmp_path / "runs.db")
    ob.run("adding", "irnn", db=db, settings=TINY)
    with open_store(db) as store:
        (run,) = store.runs()
        store.rewind(run.id, -1, "t")
        values = {"mse": at_t, "mse_2t": beyond, "mse_4t": beyond, "mse_8t": beyond}
        rows = [MetricRow("test", name, 1, run.total_iterations, value) for name, value in values.items()]
        store.log(run.id, rows, [], {"final_value": at_t})
        matrix = compute_matrix(collect(store))
    ((cell,),) = (row.cells for row in matrix.rows)
    assert cell.loses == loses
