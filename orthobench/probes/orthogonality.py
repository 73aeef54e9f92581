"""How far a recurrent matrix is from orthogonal: ||W^T W - I||_F (scoRNN paper, figure 4)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from orthobench.probes import Reading, Subject


def orthogonality(weight: Tensor) -> float:
    """||W^T W - I||_F of the stored numbers `[n, n]`, the product taken in float64."""
    w = weight.double()
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(w.mT @ w - identity))


class Orthogonality:
    every_epochs: ClassVar[int] = 1

    @torch.no_grad()
    def __call__(self, subject: Subject) -> Reading:
        matrices = subject.model.recurrent_matrices()
        return Reading({f"orthogonality/{name}": orthogonality(matrix) for name, matrix in matrices.items()}, {})
