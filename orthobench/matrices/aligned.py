"""Sizes that matrix products like: on rows of other lengths they take up to a third longer."""

from __future__ import annotations

from torch import Tensor, nn

ALIGNED = 16  # numbers


def aligned(matrix: Tensor) -> Tensor:
    """With rows and columns of zeros up to aligned sizes; such zeros go through products, solves and gradients."""
    rows, columns = matrix.shape
    return nn.functional.pad(matrix, (0, -columns % ALIGNED, 0, -rows % ALIGNED))
