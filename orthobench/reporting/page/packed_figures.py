"""Convert figures and arrays with all their points to JSON for the page."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from orthobench.reporting.figures.decimate import is_line
from orthobench.reporting.figures.figure_record import Figure
from orthobench.system.strict_json import dump_json

DIGITS, PLACE_DIGITS = 5, 9
"""Significant digits of a curve's values, far below the spread over seeds, and of its places on the x axis."""
POWERS = 10.0 ** np.arange(23)
"""The powers of ten that are exact in float64, so that dividing an integer by one gives the nearest float64."""


def figure_json(figure: Figure) -> dict[str, Any]:
    """Return a figure as Plotly's JSON, with all points of its curves because the page also exports them."""
    lines = [number for number, trace in enumerate(figure.data) if is_line(trace)]
    others = [{**trace, "x": [], "y": []} if is_line(trace) else trace for trace in figure.data]
    result: dict[str, Any] = _plain({"data": others, "layout": figure.layout})
    for axis, count in ("x", PLACE_DIGITS), ("y", DIGITS):
        values = [np.asarray(figure.data[number][axis], dtype=float) for number in lines]
        rounded = digits(np.concatenate([[], *values]), count)  # of all lines at once, because most are short
        ends = accumulate(map(len, values), initial=0)
        for number, (start, end) in zip(lines, pairwise(ends), strict=True):
            result["data"][number][axis] = rounded[start:end]
    return result


def packed_figures(figures: Mapping[str, Mapping[str, Any]], **more: Any) -> bytes:
    """Return figures and `more` as one line of JSON, and after it the values of the curves (`WholeNumbers`).

    The x of a curve is a number in `axes`, because most curves have the same tests. Its y is the place of its first
    code (`decimal_codes`).
    """
    axes: dict[tuple[float | None, ...], int] = {}
    values: list[npt.NDArray[np.float64]] = []
    count = 0

    def short(trace: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        if not is_line(trace):
            return trace
        y = np.array(trace["y"], dtype=float)  # NaN for None
        result = {**trace, "x": axes.setdefault(tuple(trace["x"]), len(axes))}
        if len(y) == len(trace["x"]):
            result["y"] = count
            values.append(y)
            count += len(y)
        return result

    shared = {name: {**figure, "data": [*map(short, figure["data"])]} for name, figure in figures.items()}
    numbers = WholeNumbers()
    numbers.add(decimal_codes(np.concatenate([[], *values]), DIGITS))  # of all curves at once, because most are short
    return numbers.packed({"figures": shared, "axes": [*axes], **more})


class WholeNumbers:
    """Whole numbers of many curves in one array, which compresses better than a list for each.

    The page's script reads the steps from each number to the next, without their signs: all first bytes before all
    second ones, and so on.
    """

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.int64]] = []
        self.count = 0

    def add(self, numbers: npt.NDArray[np.int64]) -> int:
        """Append numbers of 32 bits, and return the place of the first one."""
        start = self.count
        self._parts.append(numbers)
        self.count += len(numbers)
        return start

    def packed(self, record: Mapping[str, Any]) -> bytes:
        """Return a record as one line of JSON, and after it the numbers."""
        numbers = np.concatenate([np.zeros(0, np.int64), *self._parts])
        steps = np.diff(numbers, prepend=0).astype("<i4")
        planes = (steps << 1 ^ steps >> 31).view(np.uint8).reshape(-1, 4).T
        return dump_json(record, separators=(",", ":"), default=str).encode() + b"\n" + planes.tobytes()


MISSING, ZERO, SMALLEST = 0, 1, 400
"""The codes of a number that is missing and of 0, and what is added to exponents so that none is negative."""


def decimal_codes(values: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    """Return numbers with `count` significant digits as whole numbers, which have the order of their sizes and signs.

    The code of m 10^e, where m has `count` digits, counts the possible numbers below it. Neighbours of a smooth curve
    therefore have similar codes, whatever their sizes. The page shows the same numbers as `digits`.
    """
    numbers, least = np.asarray(values, dtype=float), 10 ** (count - 1)
    is_number = np.isfinite(numbers) & (numbers != 0)
    sizes = np.abs(np.where(is_number, numbers, 1.0))
    exponents = np.floor(np.log10(sizes)).astype(np.int64)
    decimals = count - 1 - exponents
    scale = POWERS[np.minimum(np.abs(decimals), len(POWERS) - 1)]
    with np.errstate(over="ignore"):
        scaled = np.where(decimals < 0, sizes / scale, sizes * scale)
    whole = np.rint(np.where(np.abs(decimals) < len(POWERS), scaled, least)).astype(np.int64)
    for at in np.flatnonzero(np.abs(decimals) >= len(POWERS)).tolist():
        mantissa, _, exponent = f"{sizes[at]:.{count - 1}e}".partition("e")
        whole[at], exponents[at] = int(mantissa.replace(".", "")), int(exponent)
    shift = (whole >= 10 * least).astype(np.int64) - (whole < least)  # because of rounding, also of the logarithm
    whole = np.where(shift > 0, whole // 10, np.where(shift < 0, whole * 10, whole))
    codes = ZERO + 1 + (exponents + shift + SMALLEST) * 9 * least + whole - least
    return np.where(is_number, np.where(numbers < 0, -codes, codes), np.where(numbers == 0, ZERO, MISSING))


def _plain(value: Any) -> Any:
    """Return a value made up of lists, records, text and numbers, with packed arrays and None for missing numbers."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:  # first, because almost all values are of these
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):  # text is not passed on, because most parts are text and a call each takes longer
        return {name: part if type(part) is str else _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        return packed_array(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [part if type(part) is str else _plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def digits(values: npt.NDArray[Any], count: int) -> list[float | None]:
    """Return numbers with `count` significant digits, which compress better than packed ones; None if not finite."""
    numbers = np.asarray(values, dtype=float)
    is_finite = np.isfinite(numbers)
    sizes = np.abs(np.where(is_finite & (numbers != 0), numbers, 1.0))
    decimals = (count - 1 - np.floor(np.log10(sizes))).astype(int)
    scale = POWERS[np.minimum(np.abs(decimals), len(POWERS) - 1)]
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(np.where(decimals < 0, numbers / scale, numbers * scale))
        rounded: list[float | None] = np.where(decimals < 0, scaled * scale, scaled / scale).tolist()
    for at in np.flatnonzero(~is_finite | (np.abs(decimals) >= len(POWERS))).tolist():
        rounded[at] = float(f"{numbers[at]:.{count}g}") if is_finite[at] else None
    return rounded


def packed_array(values: ArrayLike) -> dict[str, str]:
    """Return a typed array in single precision as Plotly reads it, with its shape if it is a matrix."""
    array = np.asarray(values, dtype="<f4")
    record = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode()}
    return record | ({"shape": ", ".join(map(str, array.shape))} if array.ndim > 1 else {})
