"""Batches of sequences of several lengths: valid steps, selected steps, and symbols as features.

A sequence of length l fills the first l steps of its column; the rest is padding.
"""

from __future__ import annotations

import torch
from torch import Tensor


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """Return a mask `[T, B]` of the steps that belong to sequences with lengths `[B]`."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) < lengths


def steps_at(outputs: Tensor, positions: Tensor) -> Tensor:
    """Return the outputs `[A, B, n]` at the steps `positions` `[A, B]`, from outputs `[T, B, n]`."""
    return outputs.gather(0, positions.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))


def last_valid(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Return the outputs `[B, n]` at each sequence's last valid step, from outputs `[T, B, n]`."""
    return steps_at(outputs, (lengths - 1).unsqueeze(0)).squeeze(0)


def mean_of_valid(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean `[B, n]` of outputs `[T, B, n]` over the valid steps, or over all steps if `lengths` is None."""
    if lengths is None:
        return outputs.mean(0)
    weights = valid_steps(lengths, len(outputs)).to(outputs.dtype) / lengths
    return torch.einsum("tbn,tb->bn", outputs, weights)


def one_hot(symbols: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return symbol numbers `[T, B]`, 0 to size - 1, as one-hot vectors `[T, B, size]`.

    Unlike `torch.nn.functional.one_hot`, this does not make the host wait for a GPU.
    """
    features = torch.zeros(*symbols.shape, size, dtype=dtype, device=symbols.device)
    return features.scatter_(-1, symbols.unsqueeze(-1), 1)
