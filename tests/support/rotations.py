"""The product of rotations as in its paper, block by block, in NumPy."""

from __future__ import annotations

import numpy as np


def pairs(n: int, style: str, capacity: int) -> list[tuple[int, int]]:
    """Return the pairs of units in the order of the layers, then of their first units."""
    if style == "tunable":
        return [(a, a + 1) for layer in range(capacity) for a in range(layer % 2, n - 1, 2)]
    layers, distance = [], n // 2
    while distance:
        layers += [(a, a + distance) for a in range(n) if a // distance % 2 == 0]
        distance //= 2
    return layers


def literal_product(n, style, capacity, angles, phases=None, last=None) -> np.ndarray:
    """Return W = diag(e^(i last)) times the blocks, the first rightmost; W is real without phases."""
    w = np.eye(n, dtype=complex)
    blocks = pairs(n, style, capacity)
    for (a, b), t, p in zip(blocks, angles, np.zeros(len(blocks)) if phases is None else phases, strict=True):
        block = np.eye(n, dtype=complex)
        block[a, a], block[a, b] = np.cos(t), -np.exp(1j * p) * np.sin(t)
        block[b, a], block[b, b] = np.sin(t), np.exp(1j * p) * np.cos(t)
        w = block @ w
    if last is not None:
        w = np.diag(np.exp(1j * last)) @ w
    return w.real if phases is None else w
