"""A metric over length: from a run's vectors to the API, the command line, the page, pictures and CSV."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import support.lengths
from typer.testing import CliRunner

import orthobench as ob
from orthobench.analysis.by_length import length_curve
from orthobench.analysis.conditions import collect
from orthobench.analysis.logged import Vectors
from orthobench.cli import app
from orthobench.errors import UsageError
from orthobench.reporting.figures.length_figures import BASELINE, BEST_MEANS, MEANS, OVER_LENGTH, SHADED, over_length
from orthobench.reporting.figures.stills import compose, same_everywhere
from orthobench.reporting.figures.study_figures import lengths
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.run_records import run_details
from orthobench.reporting.tables.curve_tables import records_of
from orthobench.sinks.run_record import read_points
from orthobench.store import Store, open_store

PLUGIN = Path(support.lengths.__file__)
SETTINGS = {"train_size": 40, "test_size": 60, "batch_size": 10, "epochs": 3, "hidden_size": 8, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> str:
    """Runs of two models with two seeds each, and one of a task without a metric over length."""
    folder = tmp_path_factory.mktemp("lengths")
    plugin = folder / "sums.py"
    text = PLUGIN.read_text("utf-8")
    plugin.write_text(text[: text.index("class RunningSums")] + text[text.index("class SumsSplit") :], "utf-8")
    db = str(folder / "runs.db")
    for model in ("lstm", "rnn"):
        for seed in (0, 1):
            ob.run("sums", model, seed=seed, settings=SETTINGS, db=db, options=ob.RunOptions(plugins=(plugin,)))
    ob.run("adding", "rnn", settings={"sequence_length": 10, **SETTINGS}, db=db)
    return db


@pytest.fixture
def store(database):
    with open_store(database) as opened:
        yield opened


def condition_of_sums(store: Store):
    return next(condition for condition in collect(store) if condition.task == "sums")


def last_by_hand(store: Store, model: str) -> dict[int, list[float]]:
    """The last values of a model's seeds at every length."""
    values: dict[int, list[float]] = {}
    for run in store.runs():
        if (run.task, run.model) == ("sums", model):
            vectors = {t.name: t.values for t in store.traces([run.id], iteration=run.iterations)}
            assert vectors["by_length/trained"] == list(support.lengths.TRAINED)
            for length, value in zip(vectors["by_length/lengths"], vectors["by_length/accuracy"], strict=True):
                values.setdefault(int(length), []).append(value)
    return dict(sorted(values.items()))


def test_curve_is_the_median_over_seeds_in_a_band(store):
    for variant in condition_of_sums(store).variants:
        curve, values = length_curve(variant), last_by_hand(store, variant.run.model)
        assert curve.x.tolist() == list(values) == list(range(3, support.lengths.LONGEST + 1))
        np.testing.assert_allclose(curve.median, [np.median(each) for each in values.values()])
        np.testing.assert_allclose(curve.low, [min(each) for each in values.values()])
        np.testing.assert_allclose(curve.high, [max(each) for each in values.values()])


def test_length_that_one_seed_lacks_uses_the_others(store):
    variant = condition_of_sums(store).variants[0]
    traces, first = dict(variant.traces), variant.runs[0].id
    for name in ("by_length/lengths", "by_length/accuracy"):
        own = traces[name]
        shorter = [v[:-1] if run == first else v for run, v in zip(own.run, own.numbers(), strict=True)]
        traces[name] = Vectors.of([*zip(own.run, own.epoch, own.iteration, shorter, strict=True)])
    curve, whole = (length_curve(each) for each in (replace(variant, traces=traces, cache={}), variant))
    other = last_by_hand(store, variant.run.model)[support.lengths.LONGEST][1]
    assert curve.x.tolist() == whole.x.tolist()
    assert curve.median[:-1].tolist() == whole.median[:-1].tolist()
    assert (curve.low[-1], curve.median[-1], curve.high[-1]) == (other, other, other)
    assert curve.losses == ()


def test_interrupted_seed_is_named_at_the_end(store):
    variant = condition_of_sums(store).variants[0]
    shorter = {
        name: logged.at((logged.run != variant.runs[1].id) | (logged.iteration <= 4))
        for name, logged in variant.traces.items()
    }
    curve = length_curve(replace(variant, traces=shorter, cache={}))
    assert [loss.left for loss in curve.losses] == [1]


def test_figure_has_curves_baseline_and_the_shaded_range(store):
    condition = condition_of_sums(store)
    words, figure = over_length(condition, Styles([condition]))
    figure.to_plotly()  # refuses unknown properties
    assert words.what == OVER_LENGTH
    assert words.notes[-2:] == (BASELINE, SHADED)
    named = {trace["name"]: trace for trace in figure.data if trace.get("name")}
    assert list(named) == ["trained on 2 to 4", "lstm", "rnn", "baseline 0.3333"]
    edges = [trace for trace in figure.data if trace.get("fillcolor", "").startswith("rgba(136")]
    assert [(list(trace["x"]), list(trace["y"])) for trace in edges] == [([2.0, 4.0], [0, 0])]
    assert named["baseline 0.3333"]["y"] == [1 / 3, 1 / 3]
    assert (
        named["lstm"]["line"]["color"] != named["rnn"]["line"]["color"] or named["lstm"]["line"] != named["rnn"]["line"]
    )
    assert figure.layout["xaxis"]["range"][1] == support.lengths.LONGEST
    with same_everywhere():
        still = compose([("", figure)], 3.25, 1, 2.0)
    (axes,) = still.axes
    shades = [area for area in axes.collections if tuple(area.get_facecolor()[0]) == (*[136 / 255] * 3, 0.16)]
    assert {x for x, _ in shades[0].get_paths()[0].vertices} == {2, 4}
    assert [text.get_text() for text in still.legends[0].get_texts()] == list(named)
    points = [record for record in records_of(figure) if record["curve"] == "lstm"]
    assert [point["x"] for point in points] == list(range(3, support.lengths.LONGEST + 1))
    assert points[0]["x_axis"] == "length of the test sequence"


def test_study_of_many_models_draws_the_best(store, monkeypatch):
    condition = condition_of_sums(store)
    means = {variant.label: length_curve(variant).median.mean() for variant in condition.variants}
    (_, both), *_ = lengths("sums", condition, Styles([condition])).values()
    assert {"lstm", "rnn"} <= {trace.get("name") for trace in both.data}
    monkeypatch.setattr("orthobench.reporting.figures.study_figures.MOST", 1)
    (words, figure), *_ = lengths("sums", condition, Styles([condition])).values()
    assert {"lstm", "rnn"} & {trace.get("name") for trace in figure.data} == {max(means, key=means.get)}
    assert words.notes[-1] == BEST_MEANS


def test_points_of_a_study_are_means_over_lengths(store, monkeypatch):
    condition = condition_of_sums(store)
    values = last_by_hand(store, "lstm")  # by length, one value a seed
    assert list(values) == list(range(3, 10))
    means = [np.mean([values[length] for length in part], 0) for part in ((3, 4), (5, 6), (7, 8), (9,))]
    variant = next(variant for variant in condition.variants if variant.label == "lstm")
    curve = length_curve(variant, 2)
    assert curve.x.tolist() == [3.5, 5.5, 7.5, 9]
    np.testing.assert_allclose(curve.median, [np.median(each) for each in means])
    np.testing.assert_allclose(curve.high, [max(each) for each in means])

    monkeypatch.setattr("orthobench.reporting.figures.study_figures.BIN", 2)
    (words, figure), *_ = lengths("sums", condition, Styles([condition])).values()
    assert MEANS in words.notes
    (drawn,) = [trace for trace in figure.data if trace.get("name") == "lstm"]
    assert list(drawn["x"]) == [3.5, 5.5, 7.5, 9]
    monkeypatch.setattr(
        "orthobench.reporting.figures.study_figures.BIN", 3
    )  # seven lengths are less than three bins of three
    (words, _), *_ = lengths("sums", condition, Styles([condition])).values()
    assert MEANS not in words.notes


def test_variant_without_a_finite_value_is_not_among_the_best(store):
    condition = condition_of_sums(store)
    lost, rest = condition.variants
    own = lost.traces["by_length/accuracy"]
    values = [np.full(len(each), np.nan) for each in own.values]
    nothing = Vectors.of([*zip(own.run, own.epoch, own.iteration, values, strict=True)])
    traces = {**lost.traces, "by_length/accuracy": nothing}
    condition = replace(condition, variants=[replace(lost, traces=traces, cache={}), rest])
    _, figure = over_length(condition, Styles([condition]), most=1)
    assert {"lstm", "rnn"} & {trace.get("name") for trace in figure.data} == {rest.label}


def test_other_conditions_have_no_length_figure(store):
    other = next(condition for condition in collect(store) if condition.task == "adding")
    assert over_length(other, Styles([other])) is None


def test_run_page_has_lengths_as_the_axis(store):
    condition = condition_of_sums(store)
    record = next(iter(run_details(condition, 100)["runs"].values()))
    names = [trace["name"] for trace in record["traces"] if trace["name"].startswith("by_length")]
    assert names == ["by_length/accuracy, epoch 0", "by_length/accuracy, epoch 3"]
    assert record["trained"] == (2.0, 4.0)


def test_evaluation_prints_the_metric_over_length(database, store):
    run = next(run for run in store.runs() if run.task == "sums")
    plugin = str(Path(database).with_name("sums.py"))
    outcome = CliRunner().invoke(app, ["evaluate", run.key, "--db", database, "--plugin", plugin])
    heading, columns, *rows = outcome.output.partition("\n\n")[2].splitlines()
    assert heading == "accuracy over length, trained on 2 to 4"
    assert columns.split() == ["length", "value"]
    expected = ob.open_results(database).by_length(run).loc[run.best_iteration]
    shown = {int(length): float(value) for length, value in map(str.split, rows)}
    assert shown == pytest.approx({length: expected[length] for length in shown}, rel=1e-5)
    assert {expected.index.min(), expected.index.max(), 4} <= set(shown)


def test_api_command_and_sinks_report_the_metric_over_length(database, store):
    run = next(run for run in store.runs() if run.task == "sums")
    table = ob.open_results(database).by_length(run)
    expected = last_by_hand(store, run.model)
    assert table.columns.tolist() == list(expected)
    assert table.index.tolist() == [0, 4, 8, 12]
    assert table.loc[12].tolist() == [values[0] for values in expected.values()]
    assert table.attrs == {"metric": "accuracy", "trained": (2, 4)}
    shown = CliRunner().invoke(app, ["show", run.key, "--db", database]).output
    assert "accuracy over length, iteration 12, trained on 2 to 4" in shown
    assert re.search(rf"^ +9 +{table.loc[12, 9]:.4g}$", shown, re.M)
    record = json.loads(CliRunner().invoke(app, ["show", run.key, "--db", database, "--json"]).output)
    assert record["by_length"]["values"]["12"] == {str(length): values[0] for length, values in expected.items()}
    series = {name for name, _ in read_points(store, run)}
    assert "by_length/accuracy/last" in series
    assert not any(name.startswith(("by_length/lengths", "by_length/trained")) for name in series)
    plain = next(run for run in store.runs() if run.task == "adding")
    with pytest.raises(UsageError, match="no metric over length"):
        ob.open_results(database).by_length(plain)


def test_page_has_the_length_figure(database, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", "--html", "--db", database, "--out", str(out)])
    assert result.exit_code == 0, result.output
    text = out.read_text("utf-8")
    assert text.count('data-figure="lengths"') == 1
    assert f'aria-label="{OVER_LENGTH}"' in text
