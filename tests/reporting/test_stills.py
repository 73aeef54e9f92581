"""Still pictures: the places of lines, symbols, error bars and ticks, next to the figure's numbers."""

from __future__ import annotations

import html
import re
from itertools import pairwise, product
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from orthobench.reporting.figures.drawing import empty_figure
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.stills import MARKERS, compose, data_hash, draw_still, same_everywhere, svg
from orthobench.reporting.figures.styles import ALL_SYMBOLS

COLOR = "#123456"


def figure_of(*traces, **layout) -> Figure:
    figure = empty_figure("x", "y")
    figure.update_yaxes(rangemode="normal")
    figure.update_layout(**layout)
    figure.data += [{"type": "scatter", "mode": "markers", "name": "a", **trace} for trace in traces]
    return figure


def composed(*panels: Figure, inches: float = 6.75):
    """Return the picture of these panels, laid out."""
    with same_everywhere():
        still = compose([("", panel) for panel in panels], inches, 3, 2.0)
        still.canvas.draw()
    return still


def panel_of(*traces, **layout):
    return composed(figure_of(*traces, **layout)).axes[0]


def marker(symbol: str = "circle", **more):
    return {"symbol": symbol, "color": COLOR, "size": 8, **more}


def test_every_symbol_has_its_own_marker():
    assert {symbol.removesuffix("-open") for symbol in ALL_SYMBOLS} < set(MARKERS)
    assert len(set(MARKERS.values())) == len(MARKERS)


@pytest.mark.parametrize("symbol", ["square", "square-open", "x-thin-open"])
def test_open_symbols_are_lines_and_filled_ones_areas(symbol):
    axes = panel_of({"x": [1, 2], "y": [1, 2], "marker": marker(symbol)})
    (points,) = axes.collections
    assert [tuple(point) for point in points.get_offsets()] == [(1, 1), (2, 2)]
    assert [tuple(color) for color in points.get_edgecolor()] == [to_rgba(COLOR)]
    assert (len(points.get_facecolor()) == 0) == (symbol == "square-open")


def test_marks_of_one_trace_have_their_own_symbols_sizes_and_opacity():
    marks = marker(symbol=["x-thin-open", "square", "square"], size=[13, 9, 18], opacity=[1, 1, 0.2])
    cross, squares = panel_of({"x": [1, 2, 3], "y": [1, 2, 3], "marker": marks}).collections
    assert cross.get_offsets().tolist() == [[1, 1]]
    assert squares.get_offsets().tolist() == [[2, 2], [3, 3]]
    small, large = squares.get_sizes()
    assert large / small == pytest.approx(4)
    np.testing.assert_allclose(squares.get_facecolor(), [to_rgba(COLOR, 1), to_rgba(COLOR, 0.2)])


def test_error_bars_surround_their_points():
    axes = panel_of({"x": [1, 3], "y": [10, 20], "error_y": {"array": [5, 1]}, "marker": marker()})
    (bars,) = axes.containers
    assert [segment.tolist() for segment in bars[2][0].get_segments()] == [[[1, 5], [1, 15]], [[3, 19], [3, 21]]]


def test_symbols_at_the_ends_of_the_axes_are_not_cut_off():
    axes = panel_of({"x": [1, 2], "y": [5, 6], "marker": marker()})
    frame = axes.get_window_extent()
    for point in axes.transData.transform([(1, 5), (2, 6)]):
        assert frame.x0 + 10 < point[0] < frame.x1 - 10
        assert frame.y0 + 5 < point[1] < frame.y1 - 5


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 1.5, ["1", "2", "5", "10", "20"]),
        (4.9182, 4.92, ["82,900", "83,000", "83,100"]),
        (3.9, 5.1, ["10,000", "20,000", "50,000", "100,000"]),
    ],
)
def test_logarithmic_axis_has_round_ticks_that_do_not_overlap(low, high, texts):
    trace = {"x": [10**low, 10**high], "y": [1, 2], "marker": marker()}
    axes = panel_of(trace, xaxis={"type": "log", "range": [low, high]})
    labels = [label for label in axes.get_xticklabels(which="both") if label.get_text()]
    shown = [label for label in labels if low <= np.log10(label.get_position()[0]) <= high]
    assert [label.get_text() for label in shown] == texts
    boxes = [label.get_window_extent() for label in shown]
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes))


def test_legend_has_what_is_in_the_frame_and_all_baselines_in_one_entry():
    line = {"mode": "lines", "x": [0, 1, 2]}
    frame = {"title": {"text": "test cross-entropy (nats)"}, "range": [1, 2]}
    first, second = (
        figure_of(
            {**line, "y": [0, 0, 0.5], "name": "below"},
            {**line, "y": [0, 3, 3], "name": "through"},
            {**line, "y": [1.5] * 3, "name": f"baseline {value}"},
            yaxis=frame,
        )
        for value in (0.25, 0.5)
    )
    still = composed(first, second)
    assert [text.get_text() for text in still.legends[0].get_texts()] == ["through", "baseline 0.25, 0.5"]
    assert still.axes[0].get_ylabel() == "test cross-entropy (nats)"


@pytest.mark.parametrize("inches", [3.25, 6.75])
def test_nothing_leaves_the_picture(inches):
    """Not the last number of an axis, long names of rows, titles or the legend."""
    names = [f"gated_deltanet negative_eigenvalues={value}, a very long name of a curve" for value in range(9)]
    curves = [
        {"x": [0, 500_000], "y": [0, 1], "mode": "lines+markers", "name": name, "marker": {"symbol": "star"}}
        for name in names
    ]
    long = {"title": {"text": "test mean squared error over all steps of the sequence (dB)"}}
    rows = {"tickvals": [0, 1], "ticktext": ["lstm", "gated_deltanet beta=2"]}
    still = composed(
        figure_of(*curves, xaxis={**long, "range": [0, 500_000]}, yaxis=long),
        figure_of(*curves[:1], yaxis=rows),
        inches=inches,
    )
    renderer = still.canvas.get_renderer()
    whole = still.bbox
    assert [text.get_text().replace("\n", " ") for text in still.legends[0].get_texts()] == names
    for artist in (*still.axes, *still.legends):
        box = artist.get_tightbbox(renderer)
        assert box.x0 >= whole.x0 - 1
        assert box.y0 >= whole.y0 - 1
        assert box.x1 <= whole.x1 + 1
        assert box.y1 <= whole.y1 + 1
    assert min(axes.get_window_extent().height for axes in still.axes) > 0.5 * still.dpi


def test_panels_share_one_legend_in_as_many_columns_as_fit():
    first = figure_of({"x": [1, 2], "y": [1, 2], "mode": "lines", "line": {"color": COLOR, "dash": "dash"}})
    second = figure_of(
        {"x": [1, 2], "y": [1, 2], "mode": "lines", "line": {"color": COLOR}},
        {"x": [1], "y": [1], "name": "b &lt; c", "marker": marker("square")},
    )
    still = composed(first, second)
    (legend,) = still.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b < c"]
    line, symbol = legend.get_lines()
    assert (symbol.get_marker(), symbol.get_linestyle()) == ("s", "None")
    assert line.get_color() == COLOR
    assert legend._ncols == 2


def test_files_have_the_bands_of_all_curves():
    edge = {"mode": "lines", "line": {"width": 0}, "x": [0, 1], "showlegend": False}
    bands = [
        trace
        for number in range(6)
        for trace in (
            {**edge, "y": [2, 2], "legendgroup": str(number)},
            {**edge, "y": [1, 1], "legendgroup": str(number), "fill": "tonexty", "fillcolor": "rgba(1,2,3,0.2)"},
        )
    ]
    axes = panel_of(*bands)
    assert len(axes.collections) == 6
    assert not axes.lines
    assert [tuple(color) for color in axes.collections[0].get_facecolor()] == [(1 / 255, 2 / 255, 3 / 255, 0.2)]
    assert {tuple(point) for point in axes.collections[0].get_paths()[0].vertices} == {*product((0, 1), (1, 2))}


def test_logarithmic_axis_leaves_zero_out():
    """matplotlib drops what a transformed axis masks: one line is left, from the third point to the fourth."""
    axes = panel_of({"mode": "lines", "x": [0, 1, 2, 3], "y": [1, 0, 0.1, 0.2]}, yaxis={"type": "log"})
    (line,) = axes.lines
    drawn = axes.transData.transform_path(line.get_path())
    assert np.isfinite(drawn.vertices).all(axis=1).tolist() == [True, False, True, True]


def test_named_ticks_are_at_their_places():
    axis = {"range": [0, 2], "tickvals": [0, 2], "ticktext": ["T", "4T"]}
    axes = panel_of({"x": [0, 2], "y": [1, 2], "marker": marker()}, xaxis=axis)
    assert [(label.get_position()[0], label.get_text()) for label in axes.get_xticklabels()] == [(0, "T"), (2, "4T")]


@pytest.mark.parametrize(("last", "turned"), [("D", False), ("orthogonal cells", True)])
def test_names_of_ticks_that_would_overlap_are_turned(last, turned):
    axis = {"range": [-0.5, 3.5], "tickvals": [0, 1, 2, 3], "ticktext": ["ODE", "gated", "linear", last]}
    panel = figure_of({"x": [0, 3], "y": [1, 2], "marker": marker()}, xaxis=axis)
    axes = composed(panel, panel, panel).axes[0]
    assert {label.get_rotation() > 0 for label in axes.get_xticklabels()} == {turned}
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert turned or all(first.x1 < second.x0 for first, second in pairwise(boxes))


@pytest.mark.parametrize("constrain", ["domain", None])
@pytest.mark.parametrize("height", [1, 10])
def test_axes_with_the_same_scale_draw_circles(height, constrain):
    layout = {"xaxis": {"range": [-1, 1]}, "yaxis": {"range": [-height, height], "scaleanchor": "x"}}
    layout["yaxis"] |= {"constrain": constrain} if constrain else {}
    axes = panel_of({"x": [-1, 1], "y": [-1, 1], "marker": marker()}, **layout)
    (left, bottom), (right, top) = axes.transData.transform([(-1, -1), (1, 1)])
    assert right - left == pytest.approx(top - bottom, rel=1e-6)


def test_map_has_a_scale_of_its_colours_and_gaps():
    figure = figure_of(yaxis={"autorange": "reversed"})
    values = [[-6, float("nan")], [-2, 0]]
    colorbar = {"title": {"text": "log<sub>10</sub>"}}
    figure.add_heatmap(x=[1, 2], y=[1, 2], z=values, zmin=-6, zmax=0, colorscale="Viridis", colorbar=colorbar)
    axes, scale = composed(figure).axes
    (drawn,) = axes.collections
    np.testing.assert_array_equal(np.ma.filled(drawn.get_array(), np.nan), values)
    assert drawn.get_clim() == (-6, 0)
    assert drawn.get_cmap().name == "viridis"
    assert scale.get_ylabel() == "log$_{10}$"
    assert axes.get_ylim() == (2.5, 0.5)


def test_titles_are_written_as_on_the_page():
    title = {"text": "‖∂L/∂h_1<sub>t−1</sub>‖ of a$b &amp; c"}
    axes = panel_of({"x": [1], "y": [1], "marker": marker()}, xaxis={"title": title})
    assert axes.get_xlabel() == r"‖∂L/∂h_1$_{t−1}$‖ of a\$b & c"
    text = svg(figure_of({"x": [1], "y": [1], "marker": marker()}, xaxis={"title": title}), 6.75, 2.0)
    words = re.sub(r"\s+", "", "".join(re.findall(r">([^<>]*)</t(?:ext|span)>", text)))
    assert "a$b&amp;c" in words


def test_lines_of_a_title_end_between_words():
    title = {"title": {"text": "‖∂L/∂s<sub>t</sub>‖, s: c or h or n or z, of W<sub>a b,c</sub>"}}
    axes = panel_of({"x": [1], "y": [1], "marker": marker()}, yaxis=title)
    lines = axes.get_ylabel().split("\n")
    assert len(lines) > 1
    assert " ".join(lines) == "‖∂L/∂s$_{t}$‖, s: c or h or n or z, of W$_{\\text{a\N{NO-BREAK SPACE}b,c}}$"


@pytest.mark.parametrize("name", ["a$b$c", r"$\frac{$", "\\", "x\\$", "<script>", "a\x00b", "a\x1bb", "{_^%#&~", "$"])
def test_any_name_is_drawn(name):
    title = {"text": f"‖W<sub>{html.escape(name)}</sub>‖ of {html.escape(name)}"}
    figure = figure_of({"x": [1, 2], "y": [1, 2], "mode": "lines", "name": html.escape(name)}, xaxis={"title": title})
    root = ElementTree.fromstring(svg(figure, 6.75, 2.0))
    texts = {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert re.sub(r"[\x00\x1b]", "�", name) in texts
    assert draw_still([(name, figure)], "pdf", 3.25, 1, 2.0)


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_files_are_the_same_whatever_the_users_settings(form):
    figure = figure_of({"x": [1, 2], "y": [1, 2], "mode": "lines"})
    plain = draw_still([("", figure)], form, 3.25, 1, 2.0)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black"}):
        assert draw_still([("", figure)], form, 3.25, 1, 2.0) == plain
        assert matplotlib.rcParams["font.size"] == 20


def test_picture_names_its_data():
    figure, other = (figure_of({"x": [1, 2], "y": [1, high], "mode": "lines"}) for high in (2, 3))
    assert data_hash(figure) in svg(figure, 3.25, 2.0)
    assert data_hash(figure) != data_hash(other)
