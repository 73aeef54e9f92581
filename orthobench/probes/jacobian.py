"""Eigenvalues of the Jacobian of the state along a sequence (after the AntisymmetricRNN paper's study).

    J_t = ds_t / ds_{t-1}   at steps t spread over the sequence,   and   ds_T / ds_0   over the whole of it

s_t is the joint state: h_t, for an LSTM [h_t, c_t]. The sequence is the first of the run's probe batch. The study's own
protocol is not printed; numbers of steps are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from orthobench.probe import Probe, Reading, Subject
from orthobench.probes._jacobians import advance, start, state_jacobian

STEPS, CLOUDS = 16, 4
"""Steps at which moduli are taken, and those of them of which every eigenvalue is kept: spread from first to last."""


class Jacobian(Probe):
    """By step (`jacobian/steps`): mean and standard deviation of the eigenvalues' moduli; clouds as re, im, re, im."""

    title = "eigenvalues of the state's Jacobian"
    paper = "Chang, Chen, Haber, Chi 2019"
    every_epochs = 0

    def __call__(self, subject: Subject) -> Reading:
        model, inputs = subject.model, subject.batch.inputs[:, :1]
        steps = spread(STEPS, len(inputs))
        clouds = [steps[place - 1] for place in spread(CLOUDS, len(steps))]
        vectors: dict[str, Sequence[float]] = {"jacobian/steps": steps}
        moduli, state, reached = [], start(model, 1), 0
        for t in steps:
            state, reached = advance(model, inputs[reached : t - 1], state), t - 1
            found = eigenvalues(state_jacobian(model, inputs[t - 1 : t], state)[0])
            moduli.append(found.abs())
            if t in clouds:
                vectors[f"jacobian/eigenvalues/{t}"] = torch.view_as_real(found).flatten().tolist()
        whole = eigenvalues(state_jacobian(model, inputs, start(model, 1))[0])
        along = torch.stack(moduli)
        vectors |= {
            "jacobian/modulus_mean": along.mean(1).tolist(),
            "jacobian/modulus_std": along.std(1, correction=0).tolist(),
            "jacobian/end_to_end": torch.view_as_real(whole).flatten().tolist(),
        }
        values = {
            "jacobian/modulus_mean": float(along.mean()),
            "jacobian/modulus_std": float(along.std(correction=0)),
            "jacobian/end_to_end_modulus_mean": float(whole.abs().mean()),
            "jacobian/end_to_end_modulus_std": float(whole.abs().std(correction=0)),
        }
        return Reading(values, vectors)


def spread(count: int, length: int) -> list[int]:
    """`count` of the numbers 1 to `length`, evenly from the first to the last; all of them where there are fewer."""
    return [int(t) for t in np.unique(np.linspace(1, length, min(count, length)).round())]


def eigenvalues(matrix: Tensor) -> Tensor:
    """Of a matrix `[N, N]`, complex in double precision; NaN where it is not finite, as a diverged model's."""
    if not matrix.isfinite().all():
        return torch.full((len(matrix),), complex("nan+nanj"), dtype=torch.complex128)
    found: Tensor = torch.linalg.eigvals(matrix.detach().double().cpu())
    return found
