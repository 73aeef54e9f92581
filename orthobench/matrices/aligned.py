"""Sizes on which matrix products are fast; rows of other lengths take up to a third longer."""

from __future__ import annotations

from torch import Tensor, nn

ALIGNED = 16  # numbers


def aligned(matrix: Tensor) -> Tensor:
    """Return the matrix with zeros up to aligned sizes; products, solves and gradients keep such zeros apart."""
    rows, columns = matrix.shape
    return nn.functional.pad(matrix, (0, -columns % ALIGNED, 0, -rows % ALIGNED))
