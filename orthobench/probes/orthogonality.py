"""How far a recurrent matrix is from orthogonal or unitary: ||W* W - I||_F (scoRNN paper, figure 4)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from orthobench.probes import Reading, Subject


def orthogonality(weight: Tensor) -> float:
    """||W* W - I||_F of the stored numbers `[n, n]`, real or complex, the product taken in double precision."""
    w = weight.to(torch.complex128 if weight.is_complex() else torch.float64)
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(w.mH @ w - identity))


class Orthogonality:
    every_epochs: ClassVar[int] = 1

    @torch.no_grad()
    def __call__(self, subject: Subject) -> Reading:
        matrices = subject.model.recurrent_matrices()
        return Reading({f"orthogonality/{name}": orthogonality(matrix) for name, matrix in matrices.items()}, {})
