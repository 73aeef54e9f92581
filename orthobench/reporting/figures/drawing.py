"""Draw curves over seeds so that nothing is hidden: bands, marks where curves end, gaps, and axes that show the result.

There is no text between the axes: `remarks` says what marks mean, and which curves are beyond the axis.
Figures have no background colour, because the page gives them its light or dark one. They hold all points in double
precision.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orthobench.analysis.curves import FLOAT32_TINY, Curve
from orthobench.reporting.figures.figure_record import Figure, FigureRecord
from orthobench.reporting.figures.styles import GREY, Style
from orthobench.store import Status

GAP = "gaps: 0, or too small for float32"
OUTCOME_SYMBOLS = {
    Status.DIVERGED: "x-thin-open",
    Status.FAILED: "x-thin-open",
    Status.FINISHED: "x-thin-open",
    Status.INTERRUPTED: "line-ns-open",
    Status.RUNNING: "triangle-right-open",
}
"""Symbols for places where seeds drop out, by the status of their runs."""
BASELINE = "baseline"
"""The first word of the name of a baseline's line."""
NAMED = 6
"""The most names in a list of a remark."""
SWITCH_SYMBOL = "line-ns-open"
"""The symbol for a place where a seed was interrupted and goes on with another back end."""
SOLVED_SYMBOL = "pentagon-open"
"""The symbol for a place where seeds stop because the task is solved."""
MEANINGS = {
    "x-thin-open": "Crosses: seeds that diverged, failed, or have no finite value from there on.",
    "line-ns-open": "Bars: seeds that were interrupted, or go on with another back end.",
    "triangle-right-open": "Triangles: seeds that are still running.",
    SOLVED_SYMBOL: "Pentagons: seeds that solved the task, and stay in the curve with their last value.",
}
"""What the symbols of marks mean. The table of a figure's points has the numbers of seeds."""
PUBLISHED_SYMBOL = "circle-x-open"
"""The symbol of a published value; no symbol above, nor this one, is that of a curve (`styles.ALL_SYMBOLS`)."""
PUBLISHED_WORDS = "Crossed circles: published."
BEST_WORDS = "Dotted lines: published as the best of all epochs, so of no epoch in particular."


def add_curve(figure: Figure, curve: Curve, x: ArrayLike, label: str, style: Style, plain: bool = False) -> None:
    """Add the median over seeds, the band from the lowest to the highest seed, and marks where seeds end.

    Another mark shows where a seed goes on with another back end.

    Args:
        x: the positions of the points on the x axis.
        plain: whether to draw a thin line without symbols, for the state before training.
    """
    if not len(curve):
        return
    # Escaped, because Plotly reads tags in names.
    name, x = html.escape(label), np.asarray(x, dtype=float)
    group: dict[str, Any] = {"showlegend": False, "legendgroup": name}
    if (curve.high > curve.low).any():
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", **group}
        # The upper edge first, because tonexty fills up to the trace before.
        figure.add_scatter(x=x, y=curve.high, **edge)
        figure.add_scatter(x=x, y=curve.low, fill="tonexty", fillcolor=style.band, **edge)
    figure.add_scatter(
        x=x,
        y=curve.median,
        mode="lines" if plain else "lines+markers",
        marker=None if plain else {"symbol": style.symbol, "size": 7, "maxdisplayed": 9},
        name=name,
        legendgroup=name,
        line={"color": style.color, "dash": style.dash, "width": 1 if plain else 2},
    )
    indices = {iteration: index for index, iteration in enumerate(curve.x)}
    marks = [
        (float(np.interp(switch.iteration, curve.x, x)), switch.value, SWITCH_SYMBOL, 13, switch.words)
        for switch in curve.switches
    ]
    marks += [
        (
            x[indices[loss.iteration]],
            loss.value,
            SOLVED_SYMBOL if loss.solved else OUTCOME_SYMBOLS[loss.outcome],
            13,
            loss.words,
        )
        for loss in curve.losses
    ]
    if not plain and not (marks and marks[-1][0] == x[-1]):
        marks.append((x[-1], curve.median[-1], style.symbol, 9, ""))
    if marks:
        figure.add_scatter(
            x=[mark[0] for mark in marks],
            y=[mark[1] for mark in marks],
            mode="markers",
            marker={
                "symbol": [mark[2] for mark in marks],
                "size": [mark[3] for mark in marks],
                "color": style.color,
                "opacity": 1,
                "line": {"width": [2 if str(mark[2]).endswith("-open") else 0 for mark in marks]},
            },
            text=[mark[4] for mark in marks],
            hoverinfo="skip",
            cliponaxis=False,
            **group,
        )


def add_absence(figure: Figure, label: str, style: Style) -> None:
    """Add a legend entry for a curve without any finite value."""
    line = {"color": style.color, "dash": style.dash, "width": 2}
    figure.add_scatter(x=[], y=[], mode="lines", name=f"{html.escape(label)}: without a finite value", line=line)


def add_baseline(figure: Figure, ends: Sequence[float], baseline: float, axis: str = "y") -> None:
    """Add the result of the best predictor without memory as a dashed line, if the frame shows it.

    A line outside the frame would be an entry of the legend alone, so `remarks` says where it would lie.

    Args:
        ends: of the line, along the other axis.
        axis: that of the values, "x" or "y".
    """
    if side := _side(figure, baseline, axis):
        figure.layout.setdefault("meta", {})["baseline"] = f"{side} the frame: {BASELINE}, {baseline:.3g}"
        return
    line = [[*ends], [baseline] * len(ends)]
    figure.add_scatter(
        x=line[axis == "x"],
        y=line[axis == "y"],
        mode="lines",
        name=f"{BASELINE} {baseline:.4g}",
        line={"dash": "dash", "width": 1.5, "color": GREY},
    )


def has_baseline(figure: Figure) -> bool:
    """Return whether a figure shows a baseline."""
    return any(str(trace.get("name", "")).startswith(BASELINE) for trace in figure.data)


def frame(figure: Figure, axis: str, low: float, high: float, words: str = "") -> None:
    """End an axis a little beyond two values; on a logarithmic axis both are positive.

    Args:
        axis: "x" or "y".
        words: what the axis shows, for the tool that shows the full range.
    """
    own = figure.layout[f"{axis}axis"]
    if own.get("type") == "log":
        low, high = float(np.log10(low)), float(np.log10(high))
    margin = 0.04 * (high - low)
    own["range"] = [low - margin, high + margin]
    figure.layout["meta"] = {"words": words}


def remarks(figure: Figure) -> tuple[list[str], list[str]]:
    """Return the caption's facts and notes on what leaves the frame and on the symbols of marks."""
    marks = {
        symbol
        for trace in figure.data
        if is_mark(trace)
        for symbol, words in zip(trace["marker"]["symbol"], trace["text"], strict=True)
        if words
    }
    return _beyond_frame(figure), [meaning for symbol, meaning in MEANINGS.items() if symbol in marks]


def _beyond_frame(figure: Figure) -> list[str]:
    """Say which curves end below or above the frame, and where, and where a baseline outside it lies."""
    curves = {
        trace["meta"].get("name", trace["meta"]["label"]): end
        for trace in figure.data
        if "lines" in trace.get("mode", "") and not is_edge(trace) and "model" in (trace.get("meta") or {})
        if (end := end_of(figure, trace["y"])) is not None
    }
    baseline = figure.layout.get("meta", {}).get("baseline", "")
    facts = [
        f"ends {side} the frame: {first_names(names)}"
        for side in ("below", "above")
        if (names := [f"{label} at {end:.3g}" for label, end in curves.items() if _side(figure, end) == side])
    ]
    return [*facts, *filter(None, [baseline])]


def first_names(names: Sequence[str]) -> str:
    """Return at most `NAMED` names, and the number of the others."""
    return ", ".join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def is_published(trace: FigureRecord) -> bool:
    """Return whether a trace shows published values; its symbol alone does not say so."""
    return bool((trace.get("meta") or {}).get("published"))


def published_notes(figure: Figure) -> list[str]:
    """Say how a figure of learning curves shows published values; nothing if it has none."""
    modes = {trace["mode"] for trace in figure.data if is_published(trace)}
    notes = {PUBLISHED_WORDS: modes & {"markers", "lines+markers"}, BEST_WORDS: modes & {"lines"}}
    return [note for note, shown in notes.items() if shown]


def end_of(figure: Figure, values: ArrayLike) -> float | None:
    """Return the last value of a curve that the y axis can show; None without any."""
    is_log, finite = figure.layout["yaxis"].get("type") == "log", np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite) & ((finite > 0) | (not is_log))]
    return float(finite[-1]) if len(finite) else None


def beyond_frame(figure: Figure, values: ArrayLike) -> str:
    """Say on which side a curve leaves the y axis, "ends below the frame"; "" if it ends within.

    Without the value, so that curves of one name have one entry in the legend of several panels.
    """
    end = end_of(figure, values)
    side = "" if end is None else _side(figure, end)
    return f"ends {side} the frame" if side else ""


def _side(figure: Figure, value: float, axis: str = "y") -> str:
    """Return whether a value is "below" or "above" what an axis shows; "" if it is within, or all is shown."""
    own = figure.layout[f"{axis}axis"]
    if "range" not in own:
        return ""
    low, high = (10**bound if own.get("type") == "log" else bound for bound in own["range"])
    return "" if low <= value <= high else "below" if value < low else "above"


def is_mark(trace: FigureRecord) -> bool:
    """Return whether a trace marks the places where seeds end."""
    return trace.get("mode") == "markers" and "text" in trace and "legendgroup" in trace


def is_edge(trace: FigureRecord) -> bool:
    """Return whether a trace is the edge of a band over seeds."""
    return trace.get("mode") == "lines" and trace.get("line", {}).get("width") == 0 and "legendgroup" in trace


def show_gaps(figure: Figure) -> None:
    """On a logarithmic axis, leave a gap where a value is below float32's range, and say so in a line below.

    Such a value becomes 0, which is drawn as a gap. An area has no gaps, so the edges of bands are drawn at the line;
    `without_floor` restores their values.
    """
    floor = floor_of(figure)
    figure.data = [trace for trace in figure.data if trace.get("name") != GAP]
    lines = [trace for trace in figure.data if "lines" in trace["mode"]]
    values = [without_floor(trace["y"], floor) for trace in lines]
    values = [np.where(y < FLOAT32_TINY, 0, y) for y in values]
    if not any((y == 0).any() for y in values):
        return
    lowest = min((float(y[y > 0].min()) for y in values if (y > 0).any()), default=1.0)
    floor = max(FLOAT32_TINY, lowest / 10)
    for trace, y in zip(lines, values, strict=True):
        is_edge = trace["line"]["width"] == 0
        trace["y"] = np.where(y == 0, floor, y) if is_edge else y
    for trace in figure.data:
        if is_mark(trace):
            trace["y"] = [value if value >= FLOAT32_TINY else floor for value in trace["y"]]
    ends = [float(end) for trace in lines for end in (np.min(trace["x"]), np.max(trace["x"]))]
    figure.add_scatter(
        x=[min(ends), max(ends)],
        y=[floor, floor],
        mode="lines",
        name=GAP,
        hoverinfo="skip",
        line={"color": GREY, "dash": "dot", "width": 1},
    )


def floor_of(figure: Figure) -> float:
    """Return the height at which `show_gaps` draws values below float32's range; 0 if there are none."""
    return next((float(trace["y"][0]) for trace in figure.data if trace.get("name") == GAP), 0.0)


def without_floor(y: ArrayLike, floor: float) -> NDArray[np.float64]:
    """Return the values of a line, with 0 where it is drawn at the floor."""
    values = np.asarray(y, dtype=float)
    return np.where((values > 0) & (values <= floor), 0, values)


def flat_words(figure: Figure) -> str:
    """Say that all curves stay at the baseline, or at zero without one, because the chart would be empty; else "".

    A value counts as at the baseline within a thousandth of it.
    """
    known = [trace for trace in figure.data if str(trace.get("name", "")).startswith(BASELINE)]
    level = float(known[0]["y"][0]) if known else 0.0
    curves = [
        trace for trace in figure.data if "lines" in trace.get("mode", "") and "meta" in trace and len(trace["y"])
    ]
    values = np.concatenate([np.asarray(trace["y"], dtype=float) for trace in curves]) if curves else np.array([])
    if not np.isfinite(values).all() or not len(values) or not np.allclose(values, level, rtol=1e-3, atol=0):
        return ""
    return "no curve leaves the baseline" if known else "no curve leaves 0"


def span_a_decade(figure: Figure) -> None:
    """Let a logarithmic y axis show at least a decade, because a shorter one magnifies the noise of rounding."""
    axis = figure.layout["yaxis"]
    values = [np.asarray(trace["y"], dtype=float) for trace in figure.data if len(trace["y"])]
    positive = [value[(value > 0) & np.isfinite(value)] for value in values]
    if axis.get("type") != "log" or "range" in axis or not any(map(len, positive)):
        return
    low, high = (
        float(np.log10(each(value)))
        for each, value in ((np.min, np.concatenate(positive)), (np.max, np.concatenate(positive)))
    )
    if high - low < 1:
        middle = (low + high) / 2
        axis["range"] = [middle - 0.5, middle + 0.5]


def empty_figure(x_title: str, y_title: str, logarithmic: bool = False) -> Figure:
    """Return a figure with these axes; `logarithmic` refers to the y axis."""
    y_axis = {"title": {"text": y_title}, "exponentformat": "power", "automargin": True}
    if logarithmic:
        y_axis["type"] = "log"
    else:
        y_axis["rangemode"] = "tozero"
    return Figure(
        layout={
            "xaxis": {"title": {"text": x_title}, "automargin": True},
            "yaxis": y_axis,
            "hovermode": "x unified",
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "showlegend": True,
            "margin": {"l": 60, "r": 16, "t": 24, "b": 48},
        }
    )
