"""The normalisations in blocks, which take account of the valid steps of padded sequences."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm

EPSILON = 1e-5
MOMENTUM = 0.1
"""The weight of a batch in the running statistics, as in torch."""


class LayerNorm(nn.Module):
    """Normalise the features of each step, with a trained scale and shift."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return x `[T, B, d]` normalised."""
        return layer_norm(x, self.bias.shape, self.weight, self.bias, EPSILON)


class BatchNorm(nn.Module):
    """Normalise each feature over the batch and its valid steps, without a scale and shift (the LinOSS program).

    In evaluation mode the running statistics replace those of the batch. As in torch's BatchNorm1d, the running
    variance is divided by the number of values minus 1.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return x `[T, B, d]` normalised.

        Args:
            valid: whether a step is valid, not padding, `[T, B, 1]`; None if all are.
        """
        if valid is None or not self.training:
            flat = batch_norm(x.flatten(0, 1), self.mean, self.variance, None, None, self.training, MOMENTUM, EPSILON)
            return flat.view_as(x)
        count = valid.sum()
        mean = (x * valid).sum((0, 1)) / count
        centred = x - mean
        variance = (centred.square() * valid).sum((0, 1)) / count
        with torch.no_grad():
            self.mean.lerp_(mean, MOMENTUM)
            self.variance.lerp_(variance * count / (count - 1).clamp(min=1), MOMENTUM)
        return centred * (variance + EPSILON).rsqrt()


class NoNorm(nn.Module):
    """Return the features as they are."""

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return x."""
        return x


Norm = LayerNorm | BatchNorm | NoNorm


def build_norm(name: Literal["layer", "batch"] | None, size: int) -> Norm:
    """Return the normalisation of a setting `block_norm`, over `size` features."""
    if name is None:
        return NoNorm()
    return LayerNorm(size) if name == "layer" else BatchNorm(size)
