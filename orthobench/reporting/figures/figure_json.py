"""Convert figures to JSON for the page, with as many digits of their numbers as a reader can see."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from orthobench.reporting.figures.decimate import thinned
from orthobench.reporting.figures.figure_record import Figure, FigureRecord

DIGITS, CHART_DIGITS, PLACE_DIGITS = 5, 3, 9
"""Significant digits of a curve's values, far below the spread over seeds; of those of a curve without all its points,
as many as a chart shows; and of places on the x axis, such as iterations. The exponents in a map have as many as
places, because a reader computes powers of ten from them."""
SIMPLE = str, int, bool, type(None)
LARGEST = 2**53
"""The first whole number after which float64 leaves some out."""


def figure_json(figure: Figure, points: int | None = None) -> dict[str, Any]:
    """Return a figure as Plotly's JSON.

    Args:
        points: the most points of a line, with `CHART_DIGITS`; None: all, because the page also exports them. If a line
            has more, `longest` is the number of points of the longest one.
    """
    counts = [len(trace["y"]) for trace in figure.data if "lines" in trace.get("mode", "")]
    longest = max(counts, default=0)
    if points is None or longest <= points:
        data, digits, left_out = figure.data, DIGITS, {}
    else:
        data, digits = [_thinned(trace, points) for trace in figure.data], CHART_DIGITS
        left_out = {"longest": longest}
    traces = [
        {name: plain(value, digits if name == "y" else PLACE_DIGITS) for name, value in trace.items()} for trace in data
    ]
    return {"data": traces, "layout": plain(figure.layout, PLACE_DIGITS), **left_out}


def _thinned(trace: FigureRecord, points: int) -> FigureRecord:
    if "lines" not in trace.get("mode", ""):
        return trace
    x, y = np.asarray(trace["x"]), np.asarray(trace["y"], dtype=float)
    kept = thinned(y, points)
    return trace | {"x": x[kept], "y": y[kept]}


def plain(value: Any, digits: int) -> Any:
    """Return a value made up of lists, arrays, dictionaries, text and numbers as JSON has it.

    Floats are rounded to this number of significant digits; those that are not finite become None.
    """
    if type(value) in SIMPLE:
        return value
    if isinstance(value, dict):
        return {name: plain(part, digits) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and (np.abs(value) < LARGEST).all():
        whole = value.astype(np.int64)
        if (whole == value).all():
            return whole.tolist()  # 400 is shorter than 400.0, and exact
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        shown = f"%.{digits}g"
        # Most floats without a call, because a page has millions of them.
        return [float(shown % x) if type(x) is float and isfinite(x) else plain(x, digits) for x in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if isfinite(value) else None
    return value
