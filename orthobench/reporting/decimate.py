"""Thin long curves without losing a peak."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orthobench.reporting.figure_record import Figure, Record

LIMIT = 400


def slim(figure: Figure, limit: int = LIMIT) -> Figure:
    """Return a copy of a figure for a screen: lines of about `limit` points at most, in single precision.

    A curve and the edges of its band keep the same points.
    """
    copy = Figure(figure.layout)
    copy.data = [dict(trace) for trace in figure.data]
    curves: dict[str, list[Record]] = {}
    for number, trace in enumerate(copy.data):
        if is_line(trace):
            curves.setdefault(f"{trace.get('legendgroup') or number} {len(trace['x'])}", []).append(trace)
    for traces in curves.values():
        points = thinned([trace["y"] for trace in traces], limit)
        for trace in traces:
            trace["x"], trace["y"] = (np.asarray(trace[axis], dtype=np.float32)[points] for axis in ("x", "y"))
    return copy


def is_line(trace: Record) -> bool:
    """Return whether a trace is a curve or the edge of its band."""
    return trace["type"] == "scatter" and trace.get("mode") in ("lines", "lines+markers")


def thinned(curves: list[ArrayLike], limit: int = LIMIT) -> NDArray[np.intp]:
    """Return the indices of about `limit` points of curves over the same x; all points if they are fewer.

    They are both ends, and of every stretch each curve's lowest and highest point.
    """
    arrays = [np.asarray(curve, dtype=float) for curve in curves]
    length = len(arrays[0])
    if length <= limit:
        return np.arange(length)
    size = -(-length // max(1, limit // (2 * len(arrays))))
    starts = np.arange(0, length, size)
    chosen = [np.array([0, length - 1])]
    for array in arrays:
        padded = np.full(len(starts) * size, array[-1])  # of equal values the first is chosen, which is in the curve
        padded[:length] = array
        stretches = padded.reshape(-1, size)
        finite = np.isfinite(stretches)
        if finite.all():
            chosen += [starts + stretches.argmin(axis=1), starts + stretches.argmax(axis=1)]
            continue
        some = finite.any(axis=1)
        for fill, extreme in ((np.inf, np.argmin), (-np.inf, np.argmax)):
            chosen.append((starts + extreme(np.where(finite, stretches, fill), axis=1))[some])
    return np.unique(np.concatenate(chosen))
