"""Eigenvalues of the Jacobian of the state along a sequence, following the study in the AntisymmetricRNN paper.

    J_t = ds_t / ds_{t-1}   at steps t spread over the sequence,   and   ds_T / ds_0   over the whole sequence

s_t is the joint state: h_t, or [h_t, c_t] for an LSTM. The sequence is the first of the run's probe batch. The paper
does not describe its protocol, so the numbers of steps are our choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from orthobench.model import Model
from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes._jacobians import advance, first_sequence, start, state_jacobian

STEPS, CLOUDS = 16, 4
"""Number of steps with recorded moduli, and how many of them record all eigenvalues; both spread over the sequence."""


class Jacobian(Probe):
    """Mean and standard deviation of the eigenvalues' moduli at each of `jacobian/steps`; clouds as re, im, re, im."""

    title = "eigenvalues of the state's Jacobian"
    paper = "Chang, Chen, Haber, Chi 2019"
    every_epochs = 0

    def __call__(self, context: ProbeContext) -> ProbeResult:
        if not context.model.initial_state(1):  # a layer of another program that takes no state
            return ProbeResult()
        model, inputs = context.model, first_sequence(context)
        steps = spread_steps(STEPS, len(inputs))
        clouds = [steps[position - 1] for position in spread_steps(CLOUDS, len(steps))]
        vectors: dict[str, Sequence[float]] = {"jacobian/steps": steps}
        moduli = []
        for t, values_t in zip(steps, step_eigenvalues(model, inputs, steps), strict=True):
            moduli.append(values_t.abs())
            if t in clouds:
                vectors[f"jacobian/eigenvalues/{t}"] = torch.view_as_real(values_t).flatten().tolist()
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
        return ProbeResult(values, vectors)


def step_eigenvalues(model: Model, inputs: Tensor, steps: Sequence[int]) -> Iterator[Tensor]:
    """Yield the eigenvalues `[N]` of ds_t / ds_{t-1} at each of these steps t, which ascend, of inputs `[T, 1, m]`."""
    state, reached = start(model, 1), 0
    for t in steps:
        state, reached = advance(model, inputs[reached : t - 1], state), t - 1
        yield eigenvalues(state_jacobian(model, inputs[t - 1 : t], state)[0])


def spread_steps(count: int, length: int) -> list[int]:
    """Return `count` of the numbers 1 to `length`, evenly spread; all of them if there are fewer."""
    return [int(t) for t in np.unique(np.linspace(1, length, min(count, length)).round())]


def eigenvalues(matrix: Tensor) -> Tensor:
    """Return the eigenvalues `[N]` of a real or complex matrix `[N, N]`, complex128; NaN for one that is not finite."""
    if not matrix.isfinite().all():
        return torch.full((len(matrix),), complex("nan+nanj"), dtype=torch.complex128)
    precise = torch.complex128 if matrix.is_complex() else torch.float64
    values: Tensor = torch.linalg.eigvals(matrix.detach().to("cpu", precise))
    return values
