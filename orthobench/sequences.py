"""Batches of sequences of several lengths: valid steps, the steps that are read, and symbols as features.

A sequence of length l fills the first l steps of its column. The rest is padding.
"""

from __future__ import annotations

import torch
from torch import Tensor


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """Return which of the steps `[T, B]` belong to sequences with lengths `[B]`."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) < lengths


def steps_at(outputs: Tensor, positions: Tensor) -> Tensor:
    """Return of outputs `[T, B, n]` those of the steps `positions` `[A, B]`, as `[A, B, n]`."""
    return outputs.gather(0, positions.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))


def last_valid(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Return of outputs `[T, B, n]` those of each sequence's last valid step, `[B, n]`."""
    return steps_at(outputs, (lengths - 1).unsqueeze(0)).squeeze(0)


def mean_of_valid(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean of outputs `[T, B, n]` over the valid steps, `[B, n]`; over all steps without lengths."""
    if lengths is None:
        return outputs.mean(0)
    weights = valid_steps(lengths, len(outputs)).to(outputs.dtype) / lengths
    return torch.einsum("tbn,tb->bn", outputs, weights)


def one_hot(symbols: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return symbol numbers `[T, B]`, 0 to size - 1, as features `[T, B, size]` with a 1 each.

    The host does not wait for a GPU, unlike with `torch.nn.functional.one_hot`.
    """
    features = torch.zeros(*symbols.shape, size, dtype=dtype, device=symbols.device)
    return features.scatter_(-1, symbols.unsqueeze(-1), 1)
