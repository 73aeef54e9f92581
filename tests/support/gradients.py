"""The gradients of parameters and other leaves."""

from __future__ import annotations

from torch import Tensor


def gradient(leaf: Tensor) -> Tensor:
    """Return the gradient of a leaf, which has to have one."""
    assert leaf.grad is not None
    return leaf.grad
