"""A drawn curve falls where the stored one does: on the page, in stills, in every export, at any number of tests."""

from __future__ import annotations

import csv
import io
import json
from decimal import Context

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from support.databases import RunDatabase, experiment
from support.pages import figures, waiting

from orthobench.analysis.conditions import collect
from orthobench.reporting.account.names import name_of
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.figure_json import figure_json
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import learning_curves
from orthobench.reporting.figures.stills import compose, same_everywhere
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page import drawings
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.curve_tables import records_of
from orthobench.store import MetricRow, open_store

BASELINE = 0.2
LEVELS = [2 * BASELINE, BASELINE, 0.9 * BASELINE, 0.5 * BASELINE, 0.1 * BASELINE]
"""The levels of the papers' claims."""
COUNTS = (201, 1_500, 5_000, 10_000)
MANY = 200
"""Runs of a large page."""
LINES = ("median", "lowest seed", "highest seed")


def falling(count: int, seed: int, start: float) -> list[float]:
    """Tests of a run: far off, then a steep fall to a noisy plateau at the baseline, then another fall."""
    draw = np.random.default_rng(seed)
    share = np.linspace(0, 1, count)
    pace = 0.9 + 0.1 * seed
    early = 7 * np.exp(-share / (start * pace))
    late = 1.05 * BASELINE / (1 + np.exp((share - 0.5 * pace) / 0.02))
    return ((early + late + 0.002) * draw.uniform(0.97, 1.03, count)).tolist()


def fill(database: RunDatabase, count: int) -> None:
    """Store three seeds of two models, of which one falls much earlier than the other."""
    for model, start in (("lstm", 0.004), ("rnn", 0.0012)):
        for seed in range(3):
            database.run(experiment(model, "last", []), seed, test=falling(count, seed, start))


@pytest.fixture(scope="module", params=COUNTS)
def stored(request, tmp_path_factory):
    """A database of curves with this many tests, the condition and its figure."""
    folder = tmp_path_factory.mktemp("curves")
    with open_store(str(folder / "made.db"), create=True) as store:
        fill(RunDatabase(store), request.param)
        (condition,) = collect(store)
    return condition, learning_curves(condition, Styles([condition]), x="iteration")


def curves(condition) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Return x and y of each model's median and extremes, computed from the stored rows alone."""
    result = {}
    for variant in condition.variants:
        logged = variant.series("test", "mse")
        rows = pd.DataFrame({"run": logged.run, "iteration": logged.iteration, "value": logged.value})
        table = rows.pivot_table(index="iteration", columns="run", values="value")
        for name, values in zip(LINES, (table.median(axis=1), table.min(axis=1), table.max(axis=1)), strict=True):
            result[variant.run.model, name] = table.index.to_numpy(float), values.to_numpy(float)
    return result


def first_below(x, y, level: float) -> float:
    """Return where a line first is below a level, between two of its points; infinity where it never is."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    below = np.flatnonzero(y < level)
    if not len(below):
        return np.inf
    at = int(below[0])
    if at == 0:
        return float(x[0])
    return float(x[at - 1] + (x[at] - x[at - 1]) * (y[at - 1] - level) / (y[at - 1] - y[at]))


def lines_of(traces) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Return x and y of each model's drawn median and of the edges of its band."""
    result = {}
    for trace in traces:
        model = (trace.get("meta") or {}).get("model")
        if model and "lines" in trace["mode"]:
            is_edge = trace["line"]["width"] == 0
            name = ("lowest seed" if trace.get("fill") else "highest seed") if is_edge else "median"
            result[model, name] = np.array(trace["x"], dtype=float), np.array(trace["y"], dtype=float)
    return result


def assert_same_crossings(drawn, whole) -> None:
    """A line crosses each level where the data do; values have five digits, so a level has that width."""
    assert drawn.keys() == whole.keys()
    for name, (x, y) in whole.items():
        for level in LEVELS:
            earliest, latest = (first_below(x, y, level * (1 + error)) for error in (6e-5, -6e-5))
            found = first_below(drawn[name][0], drawn[name][1], level)
            assert earliest - 1e-6 <= found <= latest + 1e-6, (name, level)


def test_page_has_the_crossings_of_the_data(stored):
    condition, figure = stored
    assert_same_crossings(lines_of(figure_json(figure)["data"]), curves(condition))


def test_numbers_have_five_digits_and_places_nine():
    draw = np.random.default_rng(0)
    y = np.concatenate([10 ** draw.uniform(-300, 300, 5_000) * draw.choice([-1, 1], 5_000), [0.0, 5e-324, 99999.5]])
    x = np.arange(len(y)) + 123_456_789.25
    figure = Figure({"xaxis": {"range": [0, np.float64(1 / 3)]}})
    figure.add_scatter(x=x, y=y, mode="lines")
    figure.add_scatter(x=list(range(4)), y=[np.nan, np.inf, 1 / 3, 123_456_789], mode="lines")
    figure.add_heatmap(x=[1, 2], y=[3], z=np.array([[np.nan, 2 / 3]]))
    shown = json.loads(json.dumps(figure_json(figure), allow_nan=False))
    first, second, heat = shown["data"]
    assert first["y"] == [float(Context(prec=5).create_decimal_from_float(value)) for value in y.tolist()]
    assert first["x"] == [float(Context(prec=9).create_decimal_from_float(value)) for value in x.tolist()]
    assert (second["x"], second["y"]) == ([0, 1, 2, 3], [None, None, 0.33333, 123_456_789])
    assert heat["z"] == [[None, 0.666666667]]
    assert shown["layout"]["xaxis"]["range"] == [0, 0.333333333]


def test_whole_numbers_are_exact_and_written_without_a_point():
    figure = Figure({})
    figure.add_scatter(x=np.array([1.0, 1_234_567_890.0]), y=np.array([0.0, -3.0]), mode="lines")
    (trace,) = figure_json(figure)["data"]
    assert json.dumps([trace["x"], trace["y"]]) == "[[1, 1234567890], [0, -3]]"


def test_page_of_many_runs_has_the_crossings_of_the_data(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        fill(database, 201)
        for seed in range(MANY):
            database.run(experiment("gru", "last", []), seed, test=[0.1, 0.1])
        (condition,) = collect(store)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    traces = figures(page.read_text("utf-8"))[condition.key]["curves"]["data"]
    drawn = {name: (x * 10, y) for name, (x, y) in lines_of(traces).items() if name[0] != "gru"}  # 10 tests an epoch
    assert_same_crossings(drawn, {name: line for name, line in curves(condition).items() if name[0] != "gru"})


@pytest.mark.browser
def test_page_of_many_variants_keeps_extremes_and_saves_no_points(tmp_path, chromium, monkeypatch):
    monkeypatch.setattr(drawings, "MANY_VARIANTS", 2)
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        fill(RunDatabase(store), 201)
        (condition,) = collect(store)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    drawn = lines_of(figures(page.read_text("utf-8"))[condition.key]["curves"]["data"])
    for name, (x, y) in curves(condition).items():
        shown_x, shown_y = drawn[name]
        assert 10 < len(shown_x) <= drawings.FEW_POINTS
        assert set(shown_x * 10) <= set(x)
        assert (shown_y.min(), shown_y.max()) == pytest.approx((y.min(), y.max()), rel=5e-3)
    chromium.get(f"{page.as_uri()}#measured")
    plot = "const plot = document.querySelector('#measured [data-figure=curves]');"
    wait = waiting(chromium, 30).until
    wait(lambda _: chromium.execute_script(f"{plot} plot.scrollIntoView(); return plot.drawn"))
    tools = wait(
        lambda _: chromium.execute_script(f"{plot} return plot.closest('figure').querySelector('.tools')?.textContent")
    )
    assert "does not have all points" in tools
    assert "CSV" not in tools


def test_exported_table_has_the_crossings_of_the_data(stored):
    condition, figure = stored
    whole = curves(condition)
    records = records_of(figure)
    for variant in condition.variants:
        own = [record for record in records if record["curve"] == variant.label]
        for name, column in zip(LINES, ("y", "low", "high"), strict=True):
            x, y = whole[variant.run.model, name]
            assert [record["x"] for record in own] == x.tolist()
            np.testing.assert_allclose([record[column] for record in own], y, rtol=1e-12)


def test_still_picture_has_the_crossings_of_the_data(stored):
    condition, figure = stored
    with same_everywhere():
        (axes,) = compose([("", figure)], 6.75, 1, 2.0).axes
    colors = {
        trace["line"]["color"]: trace["meta"]["model"]
        for trace in figure.data
        if "maxdisplayed" in trace.get("marker", {})
    }
    drawn = {(colors[line.get_color()], "median"): line.get_data() for line in axes.lines if line.get_color() in colors}
    shades = {to_rgba(color, 0.18): model for color, model in colors.items()}
    for area in axes.collections:
        model = shades.get(tuple(area.get_facecolor()[0]))
        if model:
            x, y = area.get_paths()[0].vertices.T
            turn = int(np.argmax(x))  # one edge to the right, the other one back
            edges = [(x[1 : turn + 1], y[1 : turn + 1]), (x[:turn:-1], y[:turn:-1])]
            names = ("lowest seed", "highest seed")
            drawn |= {
                (model, name): edge
                for name, edge in zip(names, sorted(edges, key=lambda edge: edge[1].sum()), strict=True)
            }
    assert_same_crossings(drawn, curves(condition))


SAVED_AS_CSV = """
const plot = document.querySelector('#measured [data-figure=curves]');
const done = arguments[0], saved = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then(done); return saved.call(URL, blob); };
[...plot.closest('figure').querySelectorAll('button')].find((node) => node.textContent === 'CSV').click();
"""


@pytest.mark.browser
@pytest.mark.slow
def test_browser_draws_and_saves_every_test(tmp_path, chromium):
    """The curves of 10,000 tests as Plotly draws them, and the CSV file."""
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        fill(RunDatabase(store), COUNTS[-1])
        (condition,) = collect(store)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    chromium.get(f"{page.as_uri()}#measured")
    plot = "const plot = document.querySelector('#measured [data-figure=curves]');"
    wait = waiting(chromium, 30).until
    wait(lambda _: chromium.execute_script(f"{plot} plot.scrollIntoView(); return plot.drawn"))
    wait(lambda _: chromium.execute_script(f"{plot} return plot.closest('figure').querySelector('.tools button')"))
    traces = chromium.execute_script(
        f"{plot} return plot._fullData.map(({{ mode, line, fill, meta, x, y }}) => "
        "({ mode, line: { width: line?.width }, fill: fill === 'tonexty', meta, x: Array.from(x), y: Array.from(y) }))"
    )
    chromium.set_script_timeout(30)
    text = chromium.execute_async_script(SAVED_AS_CSV)
    whole = curves(condition)
    assert_same_crossings({name: (x * 10, y) for name, (x, y) in lines_of(traces).items()}, whole)
    assert any(trace["mode"] == "markers" for trace in traces)  # arrows at the frame, which are no points
    saved: dict[str, list[list[float]]] = {}
    for label, x, y in [*csv.reader(io.StringIO(text))][1:]:
        saved.setdefault(label, []).append([float(x), float(y)])
    for variant in condition.variants:
        for name in LINES:
            points = saved.pop(", ".join([name_of(variant.run.model), *([name] if name != "median" else [])]))
            x, y = whole[variant.run.model, name]
            np.testing.assert_allclose(points, np.stack([x / 10, y], axis=1), rtol=5e-5, atol=1e-12)
    assert list(saved) == ["baseline 0.2"]
    run = condition.variants[0].run
    chromium.get(f"{page.as_uri()}#run-{run.key}")
    plot = "const plot = document.querySelector('#run .plot'), figure = plot?.closest('figure');"
    wait(lambda _: chromium.execute_script(f"{plot} return plot?.drawn"))
    caption = chromium.execute_script(f"{plot} return figure.querySelector('figcaption').textContent")
    assert f"of up to {COUNTS[-1]}" in caption
    chromium.execute_script(f"{plot} figure.querySelector('.tools').open = true")
    wait(lambda _: "db export" in chromium.execute_script(f"{plot} return figure.querySelector('.tools').textContent"))
    buttons = "[...figure.querySelectorAll('.tools button')].map((node) => node.textContent)"
    assert not {"CSV", "SVG", "PNG"} & set(chromium.execute_script(f"{plot} return {buttons}"))


@pytest.mark.browser
def test_zeros_on_a_logarithmic_axis_are_gaps_and_are_saved(tmp_path, chromium):
    values = [1.0, 0.5, 0.0, 0.1, 0.01]
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        RunDatabase(store).run(experiment("lstm", "last", []), 0, test=values)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
        (condition,) = collect(store)
    figure = learning_curves(condition, Styles([condition]))
    figure.update_yaxes(type="log")
    chromium.get(f"{page.as_uri()}#measured")
    wait = waiting(chromium, 30).until
    plot = "const plot = document.querySelector('#measured [data-figure=curves]');"
    wait(lambda _: chromium.execute_script(f"{plot} plot.scrollIntoView(); return plot.drawn"))
    wait(lambda _: chromium.execute_script(f"{plot} return plot.closest('figure').querySelector('.tools button')"))
    drawn = f"{plot} return Array.from(plot._fullData[0].y, (value) => value ?? null)"
    assert chromium.execute_script(drawn) == pytest.approx(values)
    chromium.execute_script(f"{plot} plot.closest('figure').querySelector('.tools [type=checkbox]').click()")
    wait(lambda _: chromium.execute_script(f"{plot} return plot.layout.yaxis.type") == "log")
    assert chromium.execute_script(drawn) == [1.0, 0.5, None, 0.1, 0.01]
    text = chromium.execute_async_script(SAVED_AS_CSV)
    assert [float(y) for label, _, y in [*csv.reader(io.StringIO(text))][1:] if label == "LSTM"] == values


SMOOTHED = """
const plot = document.querySelector("#measured [data-figure=curves]");
const tools = plot.closest("figure").querySelector(".tools");
const [unit, smooth] = tools.querySelectorAll("select"), log = tools.querySelector("input[type=checkbox]");
if (log.checked !== arguments[1]) log.click();
smooth.value = arguments[0];
smooth.dispatchEvent(new Event("change"));
return [[...unit.options].map((option) => option.text), unit.value, [...smooth.options].map((option) => option.text)];
"""


@pytest.mark.browser
def test_smoothing_covers_a_range_of_x_independent_of_the_tests_in_it(tmp_path, chromium):
    """Most tests lie in the first tenth: there a stretch of x holds twenty times as many."""
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        database.run(experiment("lstm", "last", []), 0, test=[1.0])
        run = store.runs()[0]
        iterations = [*range(1, 101), *range(110, 1001, 20)]
        rows = [MetricRow("test", "mse", i, i, 10.0 ** -(i > 200)) for i in iterations]
        store.log(run.id, rows, [], {"iterations": 1000})
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    chromium.get(f"{page.as_uri()}#measured")
    plot = "const plot = document.querySelector('#measured [data-figure=curves]');"
    wait = waiting(chromium, 30).until
    wait(lambda _: chromium.execute_script(f"{plot} plot.scrollIntoView(); return plot.drawn"))
    wait(lambda _: chromium.execute_script(f"{plot} return plot.closest('figure').querySelector('.tools button')"))
    for is_log, middle in ((False, 0.55), (True, 10**-0.5)):
        units, unit, widths = chromium.execute_script(SMOOTHED, "20 epochs", is_log)
        kind = "log" if is_log else "linear"
        assert (units, unit) == (["epoch", "iteration", "seconds"], "epoch")
        lines = wait(
            lambda _, kind=kind: chromium.execute_script(
                f"{plot} const lines = plot._fullData.filter(({{ mode }}) => mode.includes('lines'));"
                f"return lines.length === 3 && plot.layout.yaxis.type === '{kind}' && "
                "lines.map(({ x, y }) => [Array.from(x), Array.from(y)])"
            )
        )
        assert widths == ["nothing", "2 epochs", "5 epochs", "20 epochs"]
        _, (x, y), _ = lines
        assert y[0] == 1.0
        at_the_step = np.interp(20.0, x, y)  # the value falls between the tests at 19 and 21 epochs
        assert at_the_step == pytest.approx(middle, abs=0.02)
