"""Leave out points of a curve: points that a picture cannot show, or points between the curve's peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orthobench.reporting.figures.figure_record import FigureRecord

WHOLE = 1_500
"""Number of points up to which all are considered; beyond it, the extremes of each column of pixels represent them."""
FIRST = 8
"""Number of points at the start of a curve, where it falls fastest, that are always kept."""
COLUMN, ERROR = 2.0, 2.0
"""The width of a column of pixels, and the largest error of a line's height, in units of the picture."""

Indices = NDArray[np.intp]


def is_line(trace: FigureRecord) -> bool:
    """Return whether a trace is a curve or the edge of its band."""
    return trace["type"] == "scatter" and trace.get("mode") in ("lines", "lines+markers")


def thinned_curves(values: NDArray[np.float64], bounds: Indices, limit: int, whole: int = 0) -> tuple[Indices, Indices]:
    """Return the indices of about `limit` points of each of many curves, and the bounds of the curves there.

    They are the first points, the last point, and the lowest and the highest point of every interval.

    Args:
        values: the values of all curves, one curve after the other.
        bounds: the first point of each curve, and the number of points.
        limit: a curve of up to this number of points keeps all.
        whole: a curve of up to this number of points keeps all.
    """
    lengths, first = np.diff(bounds), min(FIRST, limit // 4)
    stretches = max(1, (limit - first - 1) // 2)
    kept = np.repeat(lengths <= max(limit, whole), lengths)
    long = np.flatnonzero(~kept)
    if len(long):
        within = (np.arange(len(values)) - np.repeat(bounds[:-1], lengths))[long]
        length = np.repeat(lengths, lengths)[long]
        kept[long[(within < first) | (within == length - 1)]] = True
        curve = np.repeat(np.arange(len(lengths)), lengths)[long]
        kept[long[_extremes(values[long], curve * stretches + within * stretches // length)]] = True
    return np.flatnonzero(kept), np.concatenate(([0], np.cumsum(kept)))[bounds]


def visible(across: NDArray[np.float64], up: NDArray[np.float64]) -> Indices:
    """Return the indices of the points that a line needs in a picture.

    Beyond `WHOLE` points, each column of pixels is reduced to its first, last, lowest and highest point. From the rest,
    points on a straight line are removed: the drawn line is nowhere more than `ERROR` above or below any of them. A
    point whose coordinates are not finite leaves a gap.

    Args:
        across: the horizontal coordinates of the points, in units of the picture.
        up: their vertical coordinates, in the same units.
    """
    has_place = np.isfinite(across) & np.isfinite(up)
    needed = np.arange(len(up))
    if len(up) > WHOLE:
        # Infinite in gaps, because NaN differs from itself, and each point of a gap would be a column.
        columns = np.where(has_place, np.floor_divide(np.where(has_place, across, 0), COLUMN), np.inf)
        is_new = np.append(True, columns[1:] != columns[:-1])
        starts, ends = np.flatnonzero(is_new), np.flatnonzero(np.append(is_new[1:], True))
        extremes = _extremes(np.where(has_place, up, np.nan), np.cumsum(is_new))
        needed = np.unique(np.concatenate((np.arange(FIRST), starts, ends, extremes)))
    gaps = np.flatnonzero(~has_place[needed])
    bounds = [-1, *gaps.tolist(), len(needed)]
    x, y = across[needed].tolist(), up[needed].tolist()
    corners = [index for before, end in pairwise(bounds) for index in _corners(x, y, before + 1, end)]
    return needed[np.union1d(corners, gaps).astype(np.intp)]


def _extremes(values: NDArray[np.float64], groups: Indices) -> Indices:
    """Return the indices of the lowest and the highest number of each group of neighbours."""
    numbers = np.flatnonzero(np.isfinite(values))
    order = numbers[np.lexsort((values[numbers], groups[numbers]))]
    is_new = np.append(True, np.diff(groups[order]) != 0)[: len(order)]
    return np.concatenate((order[is_new], order[np.append(is_new[1:], True)[: len(order)]]))


def _corners(x: list[float], y: list[float], start: int, end: int) -> Iterator[int]:
    """Yield the indices from `start` to `end` at which a line has to turn, including both ends.

    From each corner, the range of slopes that pass every point within `ERROR` narrows until a point is outside.
    """
    if start == end:
        return
    yield start
    corner, low, high = start, -math.inf, math.inf
    for index in range(start + 1, end):
        run, rise = x[index] - x[corner], y[index] - y[corner]
        if index - 1 > corner and not (run > 0 and low * run <= rise <= high * run):
            corner, low, high = index - 1, -math.inf, math.inf
            yield corner
            run, rise = x[index] - x[corner], y[index] - y[corner]
        if run > 0:
            low, high = max(low, (rise - ERROR) / run), min(high, (rise + ERROR) / run)
        else:  # a vertical piece has no slope, so the line turns here
            low, high = math.inf, -math.inf
    if end - 1 > start:
        yield end - 1
