"""Still pictures: the places of symbols, error bars and ticks, next to the figure's numbers."""

from __future__ import annotations

import re

import pytest

from orthobench.reporting.stills import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, still
from orthobench.reporting.styles import ALL_SYMBOLS
from orthobench.reporting.symbols import STROKES, outline

NUMBER = r"-?\d+(?:\.\d+)?"


def corners(shape: str) -> list[tuple[float, float]]:
    """Return the corners of a path of relative lines that begins at the origin."""
    at, result = (0.0, 0.0), []
    for right, down in re.findall(rf"[ml]({NUMBER}) ?({NUMBER})", shape):
        at = at[0] + float(right), at[1] + float(down)
        result.append(at)
    return result


def scatter(**trace):
    return {"type": "scatter", "mode": "markers", "name": "a", **trace}


def drawn(*traces, **layout) -> str:
    return str(still({"data": list(traces), "layout": layout}))


def paths_of(picture: str) -> list[str]:
    """Return the paths of the picture itself, without frame, grid and legend."""
    return re.findall(r"<path (?!class)[^>]*>", picture.partition("<ul>")[0])


def test_every_symbol_has_its_own_shape():
    shapes = {outline(symbol, 20) for symbol in ALL_SYMBOLS if not symbol.endswith("-open")}
    assert len(shapes) == len(ALL_SYMBOLS) / 2


@pytest.mark.parametrize(
    "symbol", [name.removesuffix("-open") for name in ALL_SYMBOLS[1:6]] + ["triangle-right", "arrow-up", *STROKES]
)
def test_symbol_surrounds_its_point(symbol):
    across, down = zip(*corners(outline(symbol, 20)), strict=True)
    assert min(down) < 0 < max(down)
    assert max(map(abs, across + down)) <= 14
    assert symbol == "line-ns" or min(across) < 0 < max(across)


def test_open_symbols_are_lines_and_filled_ones_areas():
    [full] = paths_of(drawn(scatter(x=[1, 2], y=[1, 2], marker={"symbol": "square", "color": "#123456"})))
    [hollow] = paths_of(drawn(scatter(x=[1, 2], y=[1, 2], marker={"symbol": "square-open", "color": "#123456"})))
    assert 'fill="#123456"' in full
    assert 'fill="none"' in hollow
    assert 'stroke="#123456"' in hollow


def test_marks_of_one_trace_have_their_own_symbols_and_no_text():
    marker = {"symbol": ["x-thin-open", "square"], "size": [13, 9], "color": "#123456"}
    trace = scatter(x=[1, 2], y=[1, 2], marker=marker, text=["2 of 3 seeds left", ""])
    picture = drawn(trace)
    assert len(paths_of(picture)) == 2
    assert "2 of 3 seeds left" not in picture


def test_symbols_and_error_bars_are_at_their_axis_positions():
    trace = scatter(x=[1, 3], y=[10, 20], error_y={"array": [5, 0]}, marker={"symbol": "diamond", "color": "#123456"})
    bars, symbols = paths_of(drawn(trace, xaxis={"range": [0, 4]}, yaxis={"range": [0, 30]}))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    spots = [tuple(map(int, spot)) for spot in re.findall(r"M(\d+) (\d+)m", symbols)]
    assert spots == [
        (round(LEFT + width / 4), round(TOP + height * 2 / 3)),
        (round(LEFT + width * 3 / 4), round(TOP + height / 3)),
    ]
    first = re.search(r"M(\d+) (\d+)V(\d+)", bars)
    assert first is not None
    assert [int(part) for part in first.groups()] == [
        spots[0][0],
        round(TOP + height * 5 / 6),
        round(TOP + height / 2),
    ]


def test_symbols_at_the_ends_of_the_axes_are_not_clipped():
    [symbols] = paths_of(drawn(scatter(x=[1, 2], y=[5, 6], marker={"symbol": "circle"})))
    spots = re.findall(r"M(\d+) (\d+)", symbols)
    assert len(spots) == 2
    for across, down in spots:
        assert LEFT + 20 < int(across) < WIDTH - RIGHT - 20
        assert TOP + 20 < int(down) < HEIGHT - BOTTOM - 20


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 6, ["1e0", "1e2", "1e4", "1e6"]),
        (0, 1.5, ["1", "2", "5", "10", "20"]),
        (4.9182, 4.92, ["82900", "83000", "83100"]),
    ],
)
def test_logarithmic_axis_has_round_ticks_at_any_range(low, high, texts):
    ticks = Axis(low, high, logarithmic=True, start=0, end=100).ticks()
    assert [text for _, text in ticks] == texts
    assert all(0 <= spot <= 100 for spot, _ in ticks)


def test_legend_shows_dash_and_symbol():
    trace = scatter(x=[1, 2], y=[1, 2], mode="lines+markers", line={"color": "#123456", "dash": "dash"})
    sample = drawn({**trace, "marker": {"symbol": "square"}}).partition("<ul>")[2]
    assert "stroke-dasharray" in sample
    assert outline("square", 16) in sample


@pytest.mark.parametrize("last", [10, 10_000, 500_000])
def test_last_axis_number_is_not_clipped(last):
    """A digit of system-ui at 26 units is up to 17 units wide."""
    picture = drawn(scatter(x=[0, last], y=[0, 1]), xaxis={"range": [0, last]})
    [place] = re.findall(rf'<text x="({NUMBER})" y="[^"]*" text-anchor="middle">{last}</text>', picture)
    assert float(place) + 17 * len(str(last)) / 2 <= WIDTH


def test_names_of_rows_have_room_next_to_the_axis():
    """Letters of 26 units are about 13 units wide."""
    name = "gated_deltanet beta=2"
    rows = {"tickvals": [0, -1], "ticktext": ["lstm", name], "range": [-1.5, 0.5]}
    picture = drawn(scatter(x=[1, 2], y=[0, -1], marker={"symbol": "circle"}), yaxis=rows)
    [place] = re.findall(rf'<text x="({NUMBER})" y="[^"]*" text-anchor="end"[^>]*>{name}</text>', picture)
    assert float(place) >= 13 * len(name)


def test_picture_has_four_bands():
    edge = {"mode": "lines", "line": {"width": 0}, "x": [0, 1], "showlegend": False}
    bands = [
        trace
        for number in range(6)
        for trace in (
            scatter(**edge, y=[2, 2], legendgroup=str(number)),
            scatter(**edge, y=[1, 1], legendgroup=str(number), fill="tonexty", fillcolor="rgba(1,2,3,0.2)"),
        )
    ]
    assert drawn(*bands).count('fill="rgba(1,2,3,0.2)"') == 4


def test_logarithmic_axis_leaves_zero_out():
    [line] = paths_of(drawn(scatter(mode="lines", x=[0, 1, 2, 3], y=[1, 0, 0.1, 0.2]), yaxis={"type": "log"}))
    assert len(corners(line.partition(' d="')[2])) == 1  # the line from the third point to the fourth


def test_line_from_far_outside_enters_the_frame_at_its_place():
    trace = scatter(x=[0, 10], y=[9.5, -0.5], mode="lines", line={"color": "#123456"})
    [line] = paths_of(drawn(trace, xaxis={"range": [0, 10]}, yaxis={"range": [0, 1]}))
    (x, y), (right, down) = (map(int, re.search(rf"{kind}({NUMBER}) ?({NUMBER})", line).groups()) for kind in "Ml")
    at_the_top = x + right * (TOP - y) / down
    assert at_the_top == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) * 0.85, abs=1)


def test_named_ticks_stand_at_their_places():
    picture = drawn(scatter(x=[0, 2], y=[1, 2]), xaxis={"range": [0, 2], "tickvals": [0, 2], "ticktext": ["T", "4T"]})
    ticks = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)</text>', picture)
    assert [text for _, text in ticks[:2]] == ["T", "4T"]
    assert float(ticks[0][0]) == LEFT


def test_faint_symbols_stay_faint():
    marker = {"symbol": "circle", "color": "#123456", "opacity": [0.2, 0.2, 1]}
    paths = paths_of(drawn(scatter(x=[1, 2, 3], y=[1, 2, 3], marker=marker)))
    assert [re.findall(r'opacity="([^"]*)"', path) for path in paths] == [["0.2"], []]


@pytest.mark.parametrize("height", [1, 10])
def test_axes_with_the_same_scale_draw_circles(height):
    layout = {
        "xaxis": {"range": [-1, 1]},
        "yaxis": {"range": [-height, height], "scaleanchor": "x"},
    }
    square = scatter(x=[-1, 1, 1], y=[-1, -1, 1], mode="lines", line={"color": "#123456"})
    (path,) = paths_of(drawn(square, **layout))
    (_, across, _), (_, _, up) = zip(*re.findall(rf"[ml]({NUMBER}) ?({NUMBER})", path.lower()), strict=True)
    assert float(across) == pytest.approx(-float(up), abs=1.1)


def test_map_has_a_scale_of_its_colours():
    colorbar = {"title": {"text": "log<sub>10</sub>"}}
    trace = {"type": "heatmap", "x": [1, 2], "y": [1, 2], "z": [[-6, -4], [-2, 0]], "zmin": -6, "zmax": 0}
    picture = drawn({**trace, "colorbar": colorbar})
    assert len(re.findall("<image", picture)) == 2
    scale = picture.partition('class="scale"')[2]
    assert re.findall(r">(-?\d+)</text>", scale) == ["-6", "-4", "-2", "0"]
    assert ">log10</text>" in scale
