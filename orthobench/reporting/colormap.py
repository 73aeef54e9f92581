"""The colours of maps: viridis, as Plotly interpolates it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

VIRIDIS = (
    "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
)  # fmt: skip
"""Ten equidistant colours, the lowest value first."""
SHARES = [number / (len(VIRIDIS) - 1) for number in range(len(VIRIDIS))]
COLOR_SCALE = [list(stop) for stop in zip(SHARES, VIRIDIS, strict=True)]
"""The same colours for Plotly, each with its position from 0 to 1."""


def viridis(shares: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return red, green and blue `[..., 3]` for each share from 0 to 1 `[...]`."""
    colors = np.array([[int(color[part : part + 2], 16) for part in (1, 3, 5)] for color in VIRIDIS], dtype=float)
    channels = [np.interp(np.asarray(shares), SHARES, channel) for channel in colors.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)
