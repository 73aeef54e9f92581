"""Sizes for which matrix products are fast; with rows of other lengths they take up to a third longer."""

from __future__ import annotations

from torch import Tensor, nn

ALIGNED = 16  # numbers


def aligned(matrix: Tensor) -> Tensor:
    """Return the matrix, zero-padded to aligned sizes; products, solves and gradients keep the padding separate."""
    rows, columns = matrix.shape
    return nn.functional.pad(matrix, (0, -columns % ALIGNED, 0, -rows % ALIGNED))
