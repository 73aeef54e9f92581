"""The distance of a recurrent matrix from orthogonal or unitary: ||W* W - I||_F (scoRNN paper, figure 4).

Each matrix is measured twice. The product in double precision measures the stored numbers exactly. The product in the
run's own precision adds rounding about as large as the distance of a well constrained matrix. Matrices inside gates and
derivatives are left out, because their distance says nothing about the step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.probe import Probe, ProbeContext, ProbeResult


def orthogonality(weight: Tensor, dtype: torch.dtype = torch.float64) -> float:
    """Return ||W* W - I||_F of a real or complex matrix `[n, n]`, computed in the precision of this real type."""
    w = weight.to(dtype.to_complex() if weight.is_complex() else dtype)
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(w.mH @ w - identity))


class Orthogonality(Probe):
    title = "distance of the recurrent matrices from orthogonal"
    paper = "Helfrich, Willmott, Ye 2018, figure 4"
    default = True

    @torch.no_grad()
    def __call__(self, context: ProbeContext) -> ProbeResult:
        values = {}
        for name, matrix in context.model.recurrent_matrices().items():
            if name in context.model.step_matrices:
                values[f"orthogonality/{name}"] = orthogonality(matrix)
                values[f"orthogonality_own_precision/{name}"] = orthogonality(matrix, matrix.dtype.to_real())
        return ProbeResult(values)
