"""The norms of a recurrent matrix's powers: how far a linear state grows before its eigenvalues decide.

    ||W^k||_2   at powers k spread over the length of the sequence,   between rho(W)^k and ||W||_2^k

rho is the spectral radius. For a normal matrix, such as an orthogonal one, all three are equal. A matrix that is not
normal may have rho < 1 and still let a state grow for many steps. ENRNN, for example, normalises rho of W_S and not its
norm. Matrices inside gates and derivatives are left out, because their powers alone do not act on the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes.jacobian import eigenvalues, spread_steps

POWERS = 64
"""Number of powers whose norms are recorded, spread over the sequence."""


class TransientGrowth(Probe):
    """The norms `transient_growth/norms/<W>` at `transient_growth/powers`, for each of a step's matrices W.

    `transient_growth/largest/<W>` is the largest norm of a recorded power, `transient_growth/radius/<W>` is rho, and
    `transient_growth/norm/<W>` is ||W||_2.
    """

    title = "norms of the powers of the recurrent matrices, and their spectral radius"
    paper = "Helfrich, Ye 2020, theorem 3.1"
    every_epochs = 0

    @torch.no_grad()
    def __call__(self, context: ProbeContext) -> ProbeResult:
        powers = spread_steps(POWERS, len(context.batch.inputs))
        values: dict[str, float] = {}
        vectors: dict[str, Sequence[float]] = {}
        for name, matrix in context.model.recurrent_matrices().items():
            if name not in context.model.step_matrices or not matrix.numel():
                continue
            weight = matrix.detach().cpu().to(torch.complex128 if matrix.is_complex() else torch.float64)
            norms = power_norms(weight, powers)
            values |= {
                f"transient_growth/largest/{name}": max(norms),
                f"transient_growth/radius/{name}": float(eigenvalues(weight).abs().max()),
                f"transient_growth/norm/{name}": spectral_norm(weight),
            }
            vectors |= {"transient_growth/powers": powers, f"transient_growth/norms/{name}": norms}
        return ProbeResult(values, vectors)


def power_norms(weight: Tensor, powers: Sequence[int]) -> list[float]:
    """Return ||W^k||_2 for ascending powers k, from W `[n, n]`."""
    norms, reached, product = [], 0, torch.eye(len(weight), dtype=weight.dtype)
    for power in powers:
        product, reached = product @ torch.linalg.matrix_power(weight, power - reached), power
        norms.append(spectral_norm(product))
    return norms


def spectral_norm(matrix: Tensor) -> float:
    """Return the largest singular value of a matrix `[m, n]`: 0 of an empty one, and NaN of one that is not finite."""
    if not matrix.numel():
        return 0.0
    return float(torch.linalg.matrix_norm(matrix.detach(), 2)) if matrix.isfinite().all() else float("nan")
