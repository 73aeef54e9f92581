"""Convert figures and arrays with all their points to JSON for the page."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from orthobench.reporting.decimate import is_line
from orthobench.reporting.figure_record import Figure

DIGITS, PLACE_DIGITS = 5, 9
"""Significant digits of a curve's values, whose rounding is far below the spread over seeds, and of its x values."""
POWERS = 10.0 ** np.arange(23)
"""The powers of ten that are exact in float64, so that dividing an integer by one gives the nearest float64."""


def figure_json(figure: Figure) -> dict[str, Any]:
    """Return a figure as Plotly's JSON, with all points of its curves because the page also exports them."""
    lines = {number: trace for number, trace in enumerate(figure.data) if is_line(trace)}
    others = [{**trace, "x": [], "y": []} if number in lines else trace for number, trace in enumerate(figure.data)]
    result: dict[str, Any] = _plain({"data": others, "layout": figure.layout})
    for number, trace in lines.items():
        x, y = (np.asarray(trace[axis], dtype=float) for axis in ("x", "y"))
        result["data"][number] |= {"x": digits(x, PLACE_DIGITS), "y": digits(y, DIGITS)}
    return result


def with_shared_axes(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return figures as JSON in which each curve's x is an index into `axes`, because most curves share their tests."""
    axes: dict[tuple[float | None, ...], int] = {}
    shared = {
        name: {
            **figure,
            "data": [
                {**trace, "x": axes.setdefault(tuple(trace["x"]), len(axes))} if is_line(trace) else trace
                for trace in figure["data"]
            ],
        }
        for name, figure in figures.items()
    }
    return {"figures": shared, "axes": [*axes]}


def _plain(value: Any) -> Any:
    """Return a value made up of lists, records, text and numbers, with packed arrays and None for missing numbers."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        return packed(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(values: Any) -> npt.NDArray[np.float64]:
    """Return the numbers of a list or of a packed array, with NaN for missing ones; for names, their positions."""
    if isinstance(values, Mapping):
        dtype = np.dtype(str(values["dtype"])).newbyteorder("<")
        array = np.frombuffer(base64.b64decode(values["bdata"]), dtype).astype(float)
        return array.reshape([int(size) for size in str(values["shape"]).split(",")]) if "shape" in values else array
    if any(isinstance(value, str) for value in values or []):
        return np.arange(float(len(values)))  # names of categories
    return np.array([np.nan if value is None else value for value in values or []], dtype=float)


def digits(values: npt.NDArray[Any], count: int) -> list[float | None]:
    """Return numbers with `count` significant digits, which compress better than packed ones; None if not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        decimals = count - 1 - np.floor(np.log10(np.abs(values, dtype=float)))
    if ((decimals >= 0) & (decimals < len(POWERS))).all():
        scale = POWERS[decimals.astype(int)]
        rounded: list[float | None] = (np.rint(values * scale) / scale).tolist()
        return rounded
    return [float(f"{value:.{count}g}") if math.isfinite(value) else None for value in values.tolist()]


def packed(values: ArrayLike) -> dict[str, str]:
    """Return a typed array in single precision as Plotly reads it, with its shape if it is a matrix."""
    array = np.asarray(values, dtype="<f4")
    record = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode()}
    return record | ({"shape": ", ".join(map(str, array.shape))} if array.ndim > 1 else {})
