"""Figures show what the database holds: medians, ends, cut curves, gaps, captions, and panels that are not measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from support.databases import RunDatabase, experiment, paper
from support.records import run_record

from orthobench.analysis.conditions import NearestExperiment, collect
from orthobench.analysis.curves import Curve
from orthobench.metric import run_columns
from orthobench.papers import Printed
from orthobench.plugins import Catalog
from orthobench.reporting.account.captions import BAND, BASELINE_WORDS, Caption, caption
from orthobench.reporting.figures.drawing import (
    BEST_WORDS,
    GAP,
    MEANINGS,
    PUBLISHED_SYMBOL,
    PUBLISHED_WORDS,
    add_curve,
    empty_figure,
    is_published,
    remarks,
    show_gaps,
)
from orthobench.reporting.figures.figure_json import figure_json
from orthobench.reporting.figures.figures import (
    CARRIED,
    LOST,
    SEVERAL_PLACES,
    UNDERFLOW,
    _without_outliers,
    condition_figures,
    gradient_norms,
    learning_curves,
    solved_share,
)
from orthobench.reporting.figures.paper_figures import NEAR_MISSES, panel_figures, printed_panels
from orthobench.reporting.figures.stills import compose, same_everywhere
from orthobench.reporting.figures.styles import GREY, PALETTE, Style, Styles
from orthobench.reporting.page.run_records import points_for, run_details
from orthobench.reporting.tables.curve_tables import records_of
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, open_store
from orthobench.store.result import UNTIMED

FALLS = [0.2, 0.15, 0.05, 0.01, 0.005]


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def drawn(database, **options):
    (condition,) = collect(database.store)
    return condition, learning_curves(condition, Styles([condition]), **options).to_plotly()


def texts(figure) -> list[str]:
    """The words of the marks, without the empty ones; the drawing itself has no text."""
    assert not any("text" in (trace.mode or "") for trace in figure.data)
    return [word for trace in figure.data for word in (trace.text or ()) if word]


def test_curve_that_ends_early_states_the_reason_at_its_end(database):
    lstm = experiment("lstm", "last", [])
    for seed, (values, status) in enumerate(
        ((FALLS, "finished"), (FALLS, "finished"), (FALLS[:3], "diverged"), (FALLS[:2], "interrupted"))
    ):
        database.run(lstm, seed, test=values, status=Status(status))
    database.run(experiment("rnn", "last", []), 0, test=FALLS[:3], status=Status.DIVERGED)
    _, figure = drawn(database)
    assert texts(figure) == ["3 of 4 seeds left: 1 interrupted", "2 of 4 seeds left: 1 diverged", "diverged"]
    first, second = (trace for trace in figure.data if trace.mode == "markers")
    assert list(first.x) == [1, 2, 4]  # epochs; at the end the model's own symbol
    assert list(first.y) == pytest.approx([0.15, 0.05, 0.005])
    assert list(first.marker.symbol)[:2] == ["line-ns-open", "x-thin-open"]
    assert (list(second.x), list(second.marker.symbol)) == ([2], ["x-thin-open"])


def test_remarks_explain_the_marks_of_seeds_that_end_early(database):
    for seed, status in enumerate(("finished", "diverged")):
        database.run(experiment("lstm", "last", []), seed, test=FALLS, status=Status(status))
    (condition,) = collect(database.store)
    assert remarks(learning_curves(condition, Styles([condition])))[1] == [MEANINGS["x-thin-open"]]


def test_solved_share_is_a_step_curve_over_all_seeds(database):
    """The baseline is 0.2, so 0.01 and below solve it; an end above does not count, however good a test before it."""
    lstm = experiment("lstm", "last", [])
    for seed, values in enumerate(([0.2, 0.01, 0.05, 0.005], [0.2, 0.2, 0.2, 0.005], [0.2, 0.01, 0.2, 0.2, 0.2, 0.2])):
        database.run(lstm, seed, test=[*values, *[values[-1]] * 6])
    database.run(lstm, 3, test=[0.2, 0.01], status=Status.DIVERGED)
    database.run(experiment("rnn", "last", []), 0, test=[0.2] * 10)
    (condition,) = collect(database.store)
    figure = solved_share(condition, Styles([condition]))
    (line,) = figure.data
    assert list(zip(line["x"], line["y"], strict=True))[1:5] == [(1, 0), (1, 0.25), (3, 0.25), (3, 0.5)]
    assert (line["y"][-1], condition.variants[0].solved.reached) == (0.5, 2)


def test_graded_metric_has_no_value_that_solves_the_task(database):
    for seed in (0, 1):
        database.run(experiment("lstm", "last", []), seed, test=[0.2, 0.01])
        run = database.store.runs()[-1]
        graded = {name: {**record, "is_graded": name == run.metric} for name, record in run.metrics.items()}
        database.store.update(run.id, {"metrics": graded})
    (condition,) = collect(database.store)
    (variant,) = condition.variants
    assert (variant.solved, variant.solved_from, variant.fails) == (None, [], False)
    assert "solved" not in condition_figures(condition, Styles([condition]))


def test_figures_of_ends_show_every_seed_and_the_diverged_ones(database):
    lstm = experiment("lstm", "last", [Printed(metric="mse", value=0.07)])
    for seed, end in enumerate((0.1, 0.05, 0.06)):
        database.run(lstm, seed, test=[0.2, end])
    database.run(lstm, 3, test=[0.2, 0.1], status=Status.DIVERGED)
    database.run(experiment("rnn", "last", []), 0, test=[0.2, 0.3])
    (condition,) = collect(database.store)
    lstms = replace(condition.variants[0], comparison=NearestExperiment(lstm, {}))
    condition = replace(condition, variants=[lstms, condition.variants[1]])
    drawn = condition_figures(condition, Styles([condition]))
    for name, axis in (("seeds", "x"), ("parameters", "y")):
        own = [trace for trace in drawn[name][1].data if trace.get("meta", {}).get("label") == "lstm"]
        dots, lost, middle, *printed = [[round(value, 12) for value in trace[axis]] for trace in own]
        assert (dots, lost, middle) == ([0.1, 0.05, 0.06], [0.3], [0.08])  # lost: at the worst end, that of the rnn
        assert printed == ([[0.07]] if name == "seeds" else [])
        assert LOST in drawn[name][0].notes
    low, high = drawn["parameters"][1].layout["xaxis"]["range"]
    assert high - low == pytest.approx(np.log10(5))  # equal sizes do not fill the axis
    curves = drawn["curves"][1].data
    (mark,) = filter(is_published, curves)
    assert (mark["x"], mark["y"], mark["meta"]["label"]) == ([1], [0.07], "lstm")
    assert all(PUBLISHED_WORDS in drawn[name][0].notes for name in ("curves", "seeds"))


def axis_of(database):
    """The type of the y axis, the ends of its range without margins, and the figure's remarks."""
    condition, figure = drawn(database)
    axis = figure.layout.yaxis
    if axis.range is None:
        return axis.type, None, ""
    margin = (axis.range[1] - axis.range[0]) * 0.04 / 1.08
    ends = [axis.range[0] + margin, axis.range[1] - margin]
    words = remarks(learning_curves(condition, Styles([condition])))
    return axis.type, [10**end for end in ends] if axis.type == "log" else ends, words


def test_axis_shows_the_best_value_to_the_first_quartile_of_the_course(database):
    """As for bits per character, whose curves are at 1.48 to 1.76 with a baseline of 4.4."""
    for model, end in (("lstm", 1.48), ("rnn", 1.60)):
        key = database.run(experiment(model, "last", []), 0, test=[11.0, 2.0, 1.76, 1.70, end])
        database.store.update(database.store.runs()[-1].id, {"baselines": {"mse": 4.4}})
    assert key
    kind, ends, words = axis_of(database)
    assert (kind, ends) == (None, pytest.approx([1.48, 2.0]))
    assert words == (["above the frame: baseline, 4.4"], [])


def test_curve_that_never_reaches_the_baseline_is_named_and_flattens_nothing(database):
    """The baseline is 0.2."""
    database.run(experiment("rnn", "last", []), 0, test=[1.0, 50.0, 1e9], status=Status.DIVERGED)
    database.run(experiment("lstm", "last", []), 0, test=[7.0, 0.15, 0.12, 0.1, 0.1])
    kind, ends, words = axis_of(database)
    assert (kind, ends) == (None, pytest.approx([0.1, 0.2]))
    assert words == (["ends above the frame: rnn at 1e+09"], [MEANINGS["x-thin-open"]])


def test_no_trace_stands_for_what_is_beyond_the_axis(database):
    database.run(experiment("lstm", "last", []), 0, test=[7.25, *FALLS[1:]])
    _, figure = drawn(database)
    assert all(np.isin(trace.y, [7.25, *FALLS, 0.2]).all() for trace in figure.data)


def test_axis_of_more_than_a_decade_is_logarithmic(database):
    database.run(experiment("lstm", "last", []), 0, test=[5.0, 0.2, 0.1, 1e-3, 1e-4])
    kind, ends, _ = axis_of(database)
    assert (kind, ends) == ("log", pytest.approx([1e-4, 0.2]))


def test_outliers_among_many_curves_without_a_baseline_extend_no_axis():
    values = np.array([50.0, 51, 52, 53, 54, 55, 56, 57, 488])
    assert _without_outliers(values).tolist() == values[:-1].tolist()
    assert _without_outliers(values[-3:]).tolist() == [56, 57, 488]


@pytest.mark.parametrize("end", [0.0, -0.5])
def test_axis_with_zero_or_less_is_linear(database, end):
    database.run(experiment("rnn", "last", []), 0, test=[1e3, 1e3, 1e3, 1e3])
    database.run(experiment("lstm", "last", []), 0, test=[0.2, 0.1, end, end])
    kind, ends, _ = axis_of(database)
    assert (kind, ends) == (None, pytest.approx([end, 0.2]))


def test_non_finite_values_are_gaps_and_mentioned(database):
    nan, inf = float("nan"), float("inf")
    database.run(experiment("rnn", "last", []), 0, test=[nan] * 5)
    database.run(experiment("lstm", "last", []), 0, test=[0.2, nan, 0.1, inf, inf])
    condition, figure = drawn(database)
    lines = {trace.name: trace for trace in figure.data if trace.name}
    assert list(lines) == ["rnn: without a finite value", "lstm"]  # the axis ends below the baseline
    np.testing.assert_array_equal(lines["lstm"].y, [0.2, nan, 0.1])
    assert texts(figure) == ["without a finite value"]
    assert lines["rnn: without a finite value"].meta["model"] == "rnn"
    with same_everywhere():
        (legend,) = compose([("", learning_curves(condition, Styles([condition])))], 3.25, 1, 2.0).legends
    assert "rnn: without a finite value" in {text.get_text() for text in legend.get_texts()}


@pytest.mark.parametrize("baselines", [{}, {"mse": 0.0}])
def test_metric_without_a_baseline_or_with_zero_is_drawn(database, baselines):
    database.run(experiment("lstm", "last", []), 0, test=FALLS)
    database.store.update(database.store.runs()[0].id, {"baselines": baselines})
    condition, figure = drawn(database)
    assert list(figure.data[0].y) == FALLS
    assert figure.layout.yaxis.range[0] < np.log10(min(FALLS)) < figure.layout.yaxis.range[1]
    below, _ = condition_figures(condition, Styles([condition]))["seeds"]
    assert (BASELINE_WORDS in below.notes) == bool(baselines)


def test_axis_follows_the_published_figure(database):
    database.run(experiment("lstm", "last", []), 0, test=FALLS, valid=[0.5, 0.4])
    _, epochs = drawn(database)
    _, iterations = drawn(database, x="iteration")
    assert (epochs.layout.xaxis.title.text, iterations.layout.xaxis.title.text) == ("epoch", "iteration")
    assert (epochs.layout.xaxis.range[1], iterations.layout.xaxis.range[1]) == (4, 40)
    _, valid = drawn(database, name="mse", split="valid")
    assert valid.layout.yaxis.title.text.startswith("validation ")
    np.testing.assert_allclose(valid.data[0].y, [0.5, 0.4])


def log_figure(*curves: Curve):
    figure = empty_figure("step", "norm", logarithmic=True)
    for number, values in enumerate(curves):
        add_curve(figure, values, values.x, f"m{number}", Styles([]).of_model("lstm"))
    show_gaps(figure)
    return figure.to_plotly()


def of(*values: float) -> Curve:
    y = np.array(values)
    return Curve(np.arange(len(y), dtype=float), y, y / 2, y * 2, 3)


def test_value_below_float32_range_is_a_gap_at_a_line():
    figure = log_figure(of(1e-3, 1e-30, 1e-39, 0.0, 1e-2))
    (line,) = (trace for trace in figure.data if trace.name == "m0")
    np.testing.assert_array_equal(line.y, [1e-3, 1e-30, 0, 0, 1e-2])  # a logarithmic axis leaves 0 out
    (gap,) = (trace for trace in figure.data if trace.name == GAP)
    floor = 5e-32  # a tenth of the lowest value, that of the band
    assert list(gap.y) == pytest.approx([floor, floor], rel=1e-6, abs=0)
    assert "float32" in GAP
    (low,) = (trace for trace in figure.data if trace.fill)
    assert min(low.y) == pytest.approx(floor, rel=1e-6, abs=0)  # a band ends at the line
    for trace in figure.data:  # and so does an area, which has no gaps
        assert trace is line or not (np.asarray(trace.y) == 0).any()


def test_export_keeps_values_below_float32_range():
    figure = empty_figure("step", "norm", logarithmic=True)
    values = of(1e-3, 1e-30, 1e-39, 0.0, 1e-2)
    add_curve(figure, values, values.x, "lstm", Styles([]).of_model("lstm"))
    for _ in range(2):  # studies add curves to a figure that has its gaps already
        show_gaps(figure)
        records = records_of(figure)
        assert {record["curve"] for record in records} == {"lstm"}
        for name, expected in (("y", values.median), ("low", values.low), ("high", values.high)):
            np.testing.assert_allclose([record[name] for record in records], expected, rtol=1e-12, atol=1.2e-38)


def test_figure_without_tiny_values_has_no_gap_line():
    assert GAP not in {trace.name for trace in log_figure(of(1e-3, 1e-37)).data}


def with_gradients(database, model: str, seed: int, vectors: dict[int, list[float]], norm: str = "gradient_norm"):
    run = experiment(model, "last", [])
    database.run(run, seed, test=FALLS)
    stored = database.store.runs()[-1]
    traces = [TraceRow(f"{norm}/h", i // 10, i, values) for i, values in vectors.items()]
    database.store.log(stored.id, [], traces, {})


def test_gradients_are_medians_separate_from_the_moments(database):
    """One seed of five far above the others once drew the mean of all: 1.1e-14 where four are at 1e-17."""
    for seed, value in enumerate((1e-17, 2e-17, 5e-18, 1e-17, 5.5e-14)):
        with_gradients(database, "lstm", seed, {0: [1e-2, 1e-2], 40: [value, 1e-3]})
    (condition,) = collect(database.store)
    figure = gradient_norms(condition, Styles([condition])).to_plotly()
    lines = {trace.name: trace for trace in figure.data if trace.name}
    assert list(lines) == ["lstm h, epoch 0", "lstm h, epoch 4"]
    assert lines["lstm h, epoch 4"].y[0] == pytest.approx(1e-17, rel=1e-6, abs=0)
    before, after = lines.values()
    assert (before.line.width, before.mode) == (1, "lines")
    assert (after.line.width, after.mode) == (2, "lines+markers")
    assert before.line.dash == after.line.dash


def test_every_part_of_a_state_is_named_in_a_figure_of_one_moment(database):
    """An LSTM has two curves, of c and of h, which once had the same name."""
    with_gradients(database, "lstm", 0, {40: [1e-5, 1e-3]})
    database.store.log(database.store.runs()[-1].id, [], [TraceRow("gradient_norm/c", 4, 40, [1e-4, 1e-2])], {})
    (condition,) = collect(database.store)
    both, alone = (gradient_norms(condition, Styles([]), (True,), states=states) for states in ((), ("h",)))
    names = [[trace["name"] for trace in each.data if trace.get("name")] for each in (both, alone)]
    assert names == [["lstm c", "lstm h"], ["lstm"]]
    titles = [each.layout["yaxis"]["title"]["text"] for each in (both, alone)]
    assert titles == ["‖∂L/∂s<sub>t</sub>‖, s: c or h", "‖∂L/∂h<sub>t</sub>‖"]


def gradient_paper(*experiments):
    return paper(*experiments, artifacts=[{"name": "figure 5", "shows": "gradient_norms"}])


@pytest.mark.parametrize(
    ("norm", "words"),
    [("gradient_norm", "whole batch's gradient"), ("gradient_norm_per_sample", "a sample's gradient")],
)
def test_gradient_figure_has_two_panels_and_names_the_norm(database, norm, words):
    printed = [Printed(metric="grad_norm", split="train", outcome="falls")]
    lstm = experiment("lstm", "curve", printed, artifact="figure 5")
    with_gradients(database, "lstm", 0, {0: [1e-2, 1e-2], 40: [1e-5, 1e-3]}, norm)
    (part,) = database.view(gradient_paper(lstm)).artifacts
    figures = panel_figures(part, part.panels[0], Styles([]))
    assert list(figures) == ["at the beginning of training", "after training"]
    assert all(moment in below.facts for moment, (below, _) in figures.items())
    assert all(words in below.what for below, _ in figures.values())
    drawn_norms = [figure.data[0]["y"] for _, figure in figures.values()]
    np.testing.assert_allclose(drawn_norms, [[1e-2, 1e-2], [1e-5, 1e-3]], rtol=1e-6)


@pytest.mark.parametrize(("last", "is_said"), [([1e-5, 1e-3], False), ([0.0, 1e-3], True)])
def test_caption_explains_gaps_where_there_are_some(database, last, is_said):
    with_gradients(database, "lstm", 0, {0: [1e-2, 1e-2], 40: last}, "gradient_norm")
    (condition,) = collect(database.store)
    words, _ = condition_figures(condition, Styles([condition]))["gradients"]
    assert (UNDERFLOW in words.notes) == is_said


def test_captions_describe_the_figure(database):
    lstm = experiment("lstm", "last", [])
    database.run(lstm, 0, test=FALLS)
    database.run(lstm, 1, test=FALLS[:2], status=Status.INTERRUPTED)
    (condition,) = collect(database.store)
    facts = ("Figure 1", "adding, T = 10", "batches of 10", "lstm, n = 8: 1 of 2 seeds finished")
    assert caption("Learning curves", "figure 1", condition) == Caption("Learning curves", facts, (BAND,))


def test_caption_says_once_what_all_models_share(database):
    for model in ("lstm", "rnn"):
        for seed in range(2):
            database.run(experiment(model, "last", []), seed, test=FALLS)
    (condition,) = collect(database.store)
    assert caption("Learning curves", "figure 1", condition).facts[3:] == ("n = 8", "2 seeds each")


def test_unmeasured_panel_or_curve_has_its_place_and_command(database):
    printed = [Printed(metric="mse", outcome="falls")]
    short, other = (experiment(model, "curve", printed, artifact="figure 2") for model in ("lstm", "rnn"))
    long = short.model_copy(update={"task_settings": {**short.task_settings, "sequence_length": 20}})
    database.run(short, 0, test=FALLS)
    artifacts = [{"name": "figure 2", "shows": "learning_curves", "x": "iteration"}]
    (part,) = database.view(paper(short, other, long, artifacts=artifacts)).artifacts
    first, second = printed_panels(part)
    assert (first.title, len(first.conditions), first.missing_names) == ("T = 10", 1, "rnn, n = 8")
    assert (second.title, second.conditions, second.missing_names) == ("T = 20", [], "lstm, n = 8")
    assert second.command == "orthobench reproduce k --figure 2 --models lstm --seeds 3"
    assert part.command == "orthobench reproduce k --figure 2 --seeds 3"  # rnn and lstm are all its models
    ((words, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    assert words.facts == (
        "Figure 2",
        "adding, T = 10",
        "batches of 10",
        "lstm, n = 8: 1 seed",
        "not measured: rnn, n = 8",
    )
    assert figure.layout["xaxis"]["title"]["text"] == "iteration"


def test_figure_of_another_metric_draws_it(database):
    valid = [Printed(metric="mse", split="valid", outcome="falls")]
    lstm = experiment("lstm", "curve", valid, artifact="figure 3")
    database.run(lstm, 0, test=FALLS, valid=[0.6, 0.5])
    artifacts = [{"name": "figure 3", "shows": "learning_curves", "metric": "mse", "split": "valid"}]
    (part,) = database.view(paper(lstm, artifacts=artifacts)).artifacts
    ((_, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    assert figure.layout["yaxis"]["title"]["text"].startswith("validation")
    assert list(figure.data[0]["y"]) == [0.6, 0.5]


def test_figures_are_strict_json(database):
    database.run(experiment("lstm", "last", []), 0, test=[float("inf"), 0.1, 0.1])
    (condition,) = collect(database.store)
    figure = learning_curves(condition, Styles([condition]))
    json.dumps(figure_json(figure), allow_nan=False)


@pytest.mark.parametrize("symbol", ["diamond-open", PUBLISHED_SYMBOL])
@pytest.mark.parametrize("value", [None, 0.07])
def test_published_is_said_of_published_values_alone(database, monkeypatch, symbol, value):
    """Whatever the symbol of a curve, in captions and legends."""
    monkeypatch.setattr(Styles, "of", lambda *_: Style(PALETTE[0], "solid", symbol))
    printed = Printed(metric="mse", value=value, outcome="" if value is None else None)
    lstm = experiment("lstm", "curve", [printed], artifact="figure 3")
    for seed in (0, 1):
        database.run(lstm, seed, test=FALLS)
    view = database.view(paper(lstm, artifacts=[{"name": "figure 3", "shows": "learning_curves"}]))
    (part,) = view.artifacts
    ((words, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    assert symbol in {trace["marker"]["symbol"] for trace in figure.data if "maxdisplayed" in trace.get("marker", {})}
    says = value is not None
    assert (PUBLISHED_WORDS in words.notes) == says
    with same_everywhere():
        (legend,) = compose([("", figure)], 3.25, 1, 2.0).legends
    assert ("published" in {text.get_text() for text in legend.get_texts()}) == says


@pytest.mark.parametrize(("selection", "epochs"), [("best_test", [0, 4]), ("last", [4])])
def test_published_best_of_all_epochs_is_not_at_the_last_one(database, selection, epochs):
    """The curves end at the fourth epoch."""
    lstm = experiment("lstm", selection, [Printed(metric="mse", value=0.15)], artifact="figure 3")
    for seed in (0, 1):
        database.run(lstm, seed, test=FALLS)
    (part,) = database.view(paper(lstm, artifacts=[{"name": "figure 3", "shows": "learning_curves"}])).artifacts
    ((words, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    (shown,) = [trace for trace in figure.data if is_published(trace)]
    assert (list(shown["x"]), set(shown["y"])) == (epochs, {0.15})
    is_best = selection == "best_test"
    assert (shown["mode"], PUBLISHED_WORDS in words.notes, BEST_WORDS in words.notes) == (
        "lines" if is_best else "markers",
        not is_best,
        is_best,
    )


@pytest.mark.parametrize(("end", "says"), [(1e-6, ", ends below the frame"), (0.11, "")])
def test_curve_that_leaves_the_frame_says_where_it_ends(database, end, says):
    """The axis is that of the RNN, which counts. The LSTM is a near miss, with fewer sequences than in the paper."""
    printed = [Printed(metric="mse", outcome="falls")]
    rnn, lstm = (experiment(model, "curve", printed, artifact="figure 2") for model in ("rnn", "lstm"))
    more = {"task_settings": {**lstm.task_settings, "train_size": 400}, "training": {**lstm.training, "epochs": 1}}
    database.run(lstm, 0, test=[0.7, 0.3, 0.2, end], train_size=100, epochs=4)
    database.run(rnn, 0, test=[0.7, 0.3, 0.15, 0.1])
    artifacts = [{"name": "figure 2", "shows": "learning_curves", "x": "iteration"}]
    (part,) = database.view(paper(rnn, lstm.model_copy(update=more), artifacts=artifacts)).artifacts
    ((_, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    names = [trace["name"] for trace in figure.data if (trace.get("meta") or {}).get("near_miss")]
    assert names == [f"lstm, n = 8, other data{says}"]
    fact = "ends below the frame: lstm, n = 8, other data at 1e-06"
    assert remarks(figure)[0] == ([fact] if says else [])


def test_baseline_outside_the_frame_is_named_and_not_drawn(database):
    """As on MNIST, whose curves are at 0.94 to 0.97 with a baseline of 0.11. Here the frame ends at 0.4."""
    for seed, end in enumerate((0.3, 0.31, 0.32)):
        database.run(experiment("lstm", "last", []), seed, test=[9.0, 0.4, 0.36, 0.34, end])
        database.store.update(database.store.runs()[-1].id, {"baselines": {"mse": 4.0}})
    (condition,) = collect(database.store)
    drawn = condition_figures(condition, Styles([condition]))
    for name in ("curves", "seeds"):
        words, figure = drawn[name]
        assert not [trace for trace in figure.data if str(trace.get("name")).startswith("baseline")]
        assert remarks(figure)[0] == ["above the frame: baseline, 4"]
        assert BASELINE_WORDS not in words.notes
        figure.to_plotly()


@pytest.mark.parametrize("sizes", [(2100, 2200), (210, 260), (41_000, 47_000), (900, 1100)])
def test_axis_of_costs_has_two_ticks_that_say_thousands(database, sizes):
    """Ticks are at 1, 2 and 5 times powers of ten, and a lone 5 on such an axis says nothing."""
    for model, size in zip(("lstm", "rnn"), sizes, strict=True):
        run = database.run(experiment(model, "last", []), 0, test=[0.2, 0.1])
        database.store.update(run.id, {"parameter_count": size})
    (condition,) = collect(database.store)
    axis = condition_figures(condition, Styles([condition]))["parameters"][1].layout["xaxis"]
    low, high = axis["range"]
    ticks = [power + math.log10(digit) for power in range(6) for digit in (1, 2, 5)]
    assert len([tick for tick in ticks if low <= tick <= high]) >= 2
    assert (axis["dtick"], axis["tickformat"]) == ("D2", "~s")


def test_published_curve_is_drawn_and_listed_next_to_the_measured_one(database):
    """Ten iterations are an epoch of the made runs."""
    log = [Printed(metric="mse", split="valid", curve=[(1, 0.55), (3, 0.2), (9, 0.1)])]
    lstm = experiment("lstm", "curve", log, artifact="figure 3")
    database.run(lstm, 0, test=FALLS, valid=[0.7, 0.6, 0.5, 0.4])
    database.run(lstm, 1, test=FALLS, valid=[0.7, 0.4, 0.5, 0.2])
    artifacts = [{"name": "figure 3", "shows": "learning_curves", "metric": "mse", "split": "valid"}]
    view = database.view(paper(lstm, artifacts=artifacts))
    (part,) = view.artifacts
    ((_, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    drawn = figure.data[-1]
    assert (drawn["name"], list(drawn["x"]), list(drawn["y"])) == (
        "lstm, n = 8, published",
        [1, 3, 9],
        [0.55, 0.2, 0.1],
    )
    assert drawn["line"]["dash"] == "dot"
    assert [is_published(trace) for trace in figure.data] == [False] * (len(figure.data) - 1) + [True]
    text = reproduction([], [view], [])
    assert "| 1 | 0.55 | 0.5 |" in text
    assert "| 3 | 0.2 | 0.3 |" in text
    assert "| 9 | 0.1 |  |" in text


@pytest.mark.parametrize(("published", "kind"), [(0.0005, "log"), (0.05, None)])
def test_published_curve_decades_below_the_rest_has_a_logarithmic_axis(database, published, kind):
    """The baseline is 0.2; on a linear axis up to 0.5 a curve that ends at 0.0005 would lie on its line."""
    log = [Printed(metric="mse", curve=[(1, 0.3), (4, published)])]
    lstm = experiment("lstm", "curve", log, artifact="figure 3")
    database.run(lstm, 0, test=[3.0, 0.3, 0.1, 0.05])
    artifacts = [{"name": "figure 3", "shows": "learning_curves"}]
    (part,) = database.view(paper(lstm, artifacts=artifacts)).artifacts
    ((_, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    assert figure.layout["yaxis"].get("type") == kind
    assert ("range" in figure.layout["yaxis"]) == (kind is None)


def test_vectors_keep_their_shape_on_a_page_of_thousands_of_runs(database):
    """With 24 points, a gradient over 784 steps was a few straight segments."""
    steps = np.arange(784)
    with_gradients(database, "lstm", 0, {40: (2 + np.sin(steps / 20)).tolist()})
    (condition,) = collect(database.store)
    (run,) = run_details(condition, points_for(10_000))["runs"].values()
    (trace,) = run["traces"]
    assert trace["of"] == 784
    assert 60 <= len(trace["y"]) <= 70


@pytest.mark.parametrize(("clock", "known"), [({}, False), ({"clock": "events"}, True)])
def test_seconds_on_a_gpu_are_shown_only_if_events_measured_them(database, clock, known):
    """In 40 iterations, 4 epochs; the time of all phases together is true in either case."""
    times = [Printed(metric="minutes_per_epoch", split="train", value=5.0)]
    lstm, rnn = experiment("lstm", "last", times), experiment("rnn", "last", [])
    for seed in (0, 1):
        run = database.run(lstm, seed, test=FALLS)
        seconds = {"train": 240.0, "test": 60.0, "cpu": 290.0, **clock}
        database.store.update(run.id, {"device": "cuda", "seconds": seconds})
    database.run(rnn, 0, test=FALLS)
    (condition,) = collect(database.store)
    (variant,) = (variant for variant in condition.variants if variant.run.model == "lstm")
    assert variant.run.wall_seconds == 300
    assert variant.run.phases == ({"train": 240, "test": 60} if known else {})
    assert (variant.seconds_per_epoch is not None) == known
    told = [run["untimed"] for run in run_details(condition, points=100)["runs"].values()]
    assert told.count(UNTIMED) == (0 if known else 2)
    drawn = condition_figures(condition, Styles([condition]))
    assert ("seconds" in drawn) == known  # a figure of one model says nothing
    gru = experiment("gru", "last", [])
    database.run(gru, 0, test=FALLS)
    (condition,) = collect(database.store)
    words, figure = condition_figures(condition, Styles([condition]))["seconds"]
    assert ("lstm" in {trace["meta"]["label"] for trace in figure.data}) == known
    assert (UNTIMED in words.notes) != known
    view = database.view(paper(lstm))
    (cell,) = (cell for part in view.artifacts if part.table for cell in part.table.cells)
    assert (cell.measured.value if known else cell.reason) == (1.0 if known else UNTIMED)


def test_seconds_are_those_of_whole_runs_on_one_machine(database):
    """The LSTM's three finished runs took 1,000 s; an interrupted one and one elsewhere took other times."""
    lstm, gru = experiment("lstm", "last", []), experiment("gru", "last", [])
    for seed in range(3):
        database.run(lstm, seed, test=FALLS, seconds=1000.0)
        database.run(gru, seed, test=FALLS, seconds=600.0)
    database.run(lstm, 3, test=FALLS, seconds=10.0, status=Status.INTERRUPTED)
    database.run(lstm, 4, test=FALLS, seconds=9.0, cpu="another CPU")
    (condition,) = collect(database.store)
    words, figure = condition_figures(condition, Styles([condition]))["seconds"]
    shown = {trace["meta"]["label"]: set(map(float, trace["x"])) for trace in figure.data if trace["x"] is not None}
    assert shown == {"lstm": {1000.0}, "gru": {600.0}}
    assert SEVERAL_PLACES not in words.notes


def test_runs_on_fewer_sequences_are_drawn_thin_and_grey(database):
    """Of the same number of iterations: a run that stops earlier, or has another rate, is another experiment."""
    printed = [Printed(metric="mse", outcome="falls")]
    rnn = experiment("rnn", "curve", printed, artifact="figure 2")
    lstm = experiment("lstm", "curve", printed, artifact="figure 2")
    more = {"task_settings": {**lstm.task_settings, "train_size": 400}, "training": {**lstm.training, "epochs": 1}}
    for number, settings in enumerate(({"epochs": 4}, {"epochs": 4, "learning_rate": 0.5}, {"epochs": 2})):
        database.run(lstm, number, test=FALLS, train_size=100, **settings)
    database.run(rnn, 0, test=FALLS)
    artifacts = [{"name": "figure 2", "shows": "learning_curves", "x": "iteration"}]
    (part,) = database.view(paper(rnn, lstm.model_copy(update=more), artifacts=artifacts)).artifacts
    ((words, figure),) = panel_figures(part, part.panels[0], Styles([])).values()
    near = [trace for trace in figure.data if (trace.get("meta") or {}).get("near_miss")]
    assert [(trace["name"], trace["line"]["width"], trace["line"]["color"]) for trace in near] == [
        ("lstm, n = 8, other data", 1, GREY)
    ]
    assert (words.facts[-1], words.notes[-1]) == ("not measured: lstm, n = 8", NEAR_MISSES)
    assert part.coverage == (1, 2)


def test_score_over_the_size_of_the_state_is_drawn_where_the_state_matters(tmp_path):
    """A GRU of 8 and an LSTM of 4 units carry 8 numbers, a GRU of 16 carries 16; a layer's state is unknown."""
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        sizes = {"gru": ("gru", 8), "lstm": ("lstm", 4), "wide": ("gru", 16)}
        for task, values in (("mqar", {"sizes": "single", "pairs": "2"}), ("adding", {})):
            columns = run_columns(Catalog().load("task", task).metrics)
            for number, (model, units) in enumerate(sizes.values()):
                spec = resolve(Catalog(), task, model, {**values, "hidden_size": units}, published=False).spec
                run = store.start(run_record(spec, parameter_count=100 + number, **columns), {"cpu": "a"}, [])
                end = 0.1 * (1 + number)
                rows = [MetricRow("test", "accuracy" if task == "mqar" else "mse", 1, 1, end)]
                store.log(run.id, rows, [], {"status": Status.FINISHED, "final_value": end, "best_value": end})
        conditions = {condition.task: condition for condition in collect(store)}
    drawn = condition_figures(conditions["mqar"], Styles([conditions["mqar"]]))
    words, figure = drawn["state"]
    assert words.what == CARRIED
    assert figure.layout["xaxis"]["title"]["text"] == "size of the state"
    assert sorted({trace["x"][0] for trace in figure.data if "x" in trace}) == [8, 16]
    adding = condition_figures(conditions["adding"], Styles([conditions["adding"]]))
    assert "parameters" in adding
    assert "state" not in adding
