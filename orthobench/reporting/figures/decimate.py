"""Leave out points of a curve that a small picture does not show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FIRST = 8
"""Number of points at the start of a curve, where it falls fastest, that are always kept."""


def thinned(values: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Return the indices of at most about `limit` points of a curve; one of up to this number of points keeps all.

    They are the first points, the last point, and the lowest and the highest point of every interval.
    """
    count, first = len(values), min(FIRST, limit // 4)
    if count <= limit:
        return np.arange(count)
    intervals = max(1, (limit - first - 1) // 2)
    length = -(-count // intervals)
    rows = np.full((-(-count // length), length), np.nan)
    rows.flat[:count] = values
    is_finite = np.isfinite(rows)
    extremes = [np.where(is_finite, rows, np.inf).argmin(axis=1), np.where(is_finite, rows, -np.inf).argmax(axis=1)]
    chosen = np.concatenate(
        [*(np.arange(len(rows)) * length + each for each in extremes), np.arange(first), [count - 1]]
    )
    return np.unique(chosen)
