"""Starts of weights that both models share."""

from __future__ import annotations

import torch

SCALE = 0.1


def small_weight(rows: int, columns: int, generator: torch.Generator) -> torch.nn.Parameter:
    """Return a parameter `[rows, columns]` of small normal numbers."""
    return torch.nn.Parameter(SCALE * torch.randn(rows, columns, generator=generator))
