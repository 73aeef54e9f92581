"""Scores at multiples of the trained length, against the numbers of the stored runs."""

from __future__ import annotations

from statistics import median

import pytest

import orthobench as ob
from orthobench.papers import find_study
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.studies import draw, find_result
from orthobench.store import open_store

TINY = {"sequence_length": 10, "train_size": 60, "test_size": 30, "epochs": 1, "hidden_size": 8, "longer_tests": True}


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    """The study's section with two seeds of two models, and the stored values by model and metric."""
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
                values.setdefault((run.model, name), []).append(store.metrics([run.id], "test", name)[-1].value)
        styles = Styles([condition for _, condition in result.conditions])
        drawn = draw(result, styles)
        store.add_benchmark(study.record, {"preset": "paper", "figures": {"gone": keys}}, facts.facts)
        earlier = draw(find_result(store, study), styles)
    assert ("earlier edition" in drawn.remark, "earlier edition" in earlier.remark) == (False, True)
    return drawn, values


def test_table_has_the_median_score_at_each_multiple(section):
    drawn, values = section
    (table,) = drawn.tables
    assert table.headings == ("model", "adding 1T", "adding 2T", "adding 4T", "adding 8T")
    for label, *cells in table.rows:
        for name, cell in zip(("mse", "mse_2t", "mse_4t", "mse_8t"), cells, strict=True):
            scores = [min(max(1 - 6 * mse, 0), 1) for mse in values[label.lower(), name]]  # the baseline is 1/6
            assert cell == f"{100 * median(scores):.0f}"


def test_figure_has_a_curve_over_the_multiples(section):
    drawn, values = section
    (_, figure) = drawn.figures["0 adding"]
    curves = {trace["name"]: trace for trace in figure.data if trace.get("name") in ("GRU", "IRNN")}
    assert set(curves) == {"GRU", "IRNN"}
    for model, trace in curves.items():
        assert list(trace["x"]) == [1, 2, 4, 8]
        expected = [
            median(min(max(1 - 6 * mse, 0), 1) for mse in values[model.lower(), name])
            for name in ("mse", "mse_2t", "mse_4t", "mse_8t")
        ]
        assert list(trace["y"]) == pytest.approx(expected)
    assert figure.layout["xaxis"]["ticktext"] == ["1T", "2T", "4T", "8T"]
    figure.to_plotly()


def test_runs_on_other_data_have_a_figure_whose_name_says_so(tmp_path):
    db = str(tmp_path / "runs.db")
    keys = [ob.run("adding", "irnn", db=db, settings=TINY | more).key for more in ({}, {"marker_layout": "halves"})]
    with open_store(db) as store:
        study = find_study("longer-sequences")
        facts = store.runs()[0].environment.facts
        store.add_benchmark(study.record, {"preset": "paper", "figures": {"adding": keys}}, facts)
        result = find_result(store, study)
        names = list(draw(result, Styles([condition for _, condition in result.conditions])).figures)
    assert [name.partition(" (")[0] for name in names] == ["0 adding", "1 adding"]
    assert len({name.partition(" (")[2] for name in names}) == 2
