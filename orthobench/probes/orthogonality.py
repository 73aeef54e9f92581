"""How far a recurrent matrix is from orthogonal or unitary: ||W* W - I||_F (scoRNN paper, figure 4).

The stored numbers are measured twice: with the product in double precision, which shows them as they are, and in the
run's own precision, in which single products round off by about as much as a well kept matrix is off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.probe import Probe, Reading, Subject


def orthogonality(weight: Tensor, dtype: torch.dtype = torch.float64) -> float:
    """||W* W - I||_F of the stored numbers `[n, n]`, real or complex, computed in real numbers of this type."""
    w = weight.to(dtype.to_complex() if weight.is_complex() else dtype)
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(w.mH @ w - identity))


class Orthogonality(Probe):
    title = "distance of the recurrent matrices from orthogonal"
    paper = "Helfrich, Willmott, Ye 2018, figure 4"
    default = True

    @torch.no_grad()
    def __call__(self, subject: Subject) -> Reading:
        values = {}
        for name, matrix in subject.model.recurrent_matrices().items():
            values[f"orthogonality/{name}"] = orthogonality(matrix)
            values[f"orthogonality_own_precision/{name}"] = orthogonality(matrix, matrix.dtype.to_real())
        return Reading(values)
