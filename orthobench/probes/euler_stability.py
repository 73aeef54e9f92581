"""Whether the steps of a discretised ODE are stable (AntisymmetricRNN paper, equations 3 and 7).

    h_t = h_{t-1} + eps f(h_{t-1}, x_t),   max_i |1 + eps lambda_i| <= 1,   lambda_i the eigenvalues of f's Jacobian

B. Chang, M. Chen, E. Haber, E. Chi, "AntisymmetricRNN: A Dynamical System View on Recurrent Neural Networks", ICLR
2019. The ODE itself is stable if no lambda has a positive real part (equation 3). The eigenvalues of a step's Jacobian
are 1 + eps lambda. So both criteria follow from the Jacobian of the step, whatever f is, at the states that the model
reaches. These are the states of one sequence, the first of the run's probe batch.

With an antisymmetric matrix, every lambda is imaginary, and |1 + eps lambda| is at least 1. A diffusion gamma moves the
eigenvalues to the left. For tanh, eps (||M - M^T||^2 + gamma^2) <= 2 gamma suffices for stability at every state.

The differences from 1 are about eps^2, so a copy of the model in double precision computes them.
"""

from __future__ import annotations

import torch

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes._jacobians import exact, first_sequence
from orthobench.probes.jacobian import STEPS, spread_steps, step_eigenvalues


class EulerStability(Probe):
    """The extremes over eigenvalues at each of `euler_stability/steps`, and as numbers over all these steps.

    `euler_stability/modulus_max` is the largest |1 + eps lambda|, and `euler_stability/real_max` and `real_min` are the
    largest and the smallest Re lambda. The probe measures nothing for a model without Euler steps (`Model.euler_step`).
    """

    title = "stability of the forward Euler steps"
    paper = "Chang, Chen, Haber, Chi 2019, equations 3 and 7"
    every_epochs = 0

    def __call__(self, context: ProbeContext) -> ProbeResult:
        if not context.model.euler_step:
            return ProbeResult()
        model, inputs = exact(context.model), first_sequence(context).cpu().double()
        steps = spread_steps(STEPS, len(inputs))
        factors = torch.stack(list(step_eigenvalues(model, inputs, steps)))
        real = (factors.real - 1) / model.euler_step
        moduli = factors.abs()
        return ProbeResult(
            {
                "euler_stability/modulus_max": float(moduli.max()),
                "euler_stability/real_max": float(real.max()),
                "euler_stability/real_min": float(real.min()),
            },
            {
                "euler_stability/steps": steps,
                "euler_stability/modulus_max": moduli.amax(1).tolist(),
                "euler_stability/real_max": real.amax(1).tolist(),
                "euler_stability/real_min": real.amin(1).tolist(),
            },
        )
