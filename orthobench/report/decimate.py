"""Long curves with fewer points, and no peak lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

LIMIT = 400


def kept(curves: list[ArrayLike], limit: int = LIMIT) -> NDArray[np.intp]:
    """Which points of curves over the same x to keep: of every stretch, each curve's lowest and highest, and the ends.

    All points, if they are no more than the limit; else at most about the limit.
    """
    arrays = [np.asarray(curve, dtype=float) for curve in curves]
    length = len(arrays[0])
    if length <= limit:
        return np.arange(length)
    stretches = np.array_split(np.arange(length), max(1, limit // (2 * len(arrays))))
    chosen = {0, length - 1}
    for stretch in stretches:
        for array in arrays:
            part = array[stretch]
            if np.isfinite(part).any():
                chosen |= {int(stretch[np.nanargmin(part)]), int(stretch[np.nanargmax(part)])}
    return np.array(sorted(chosen))
