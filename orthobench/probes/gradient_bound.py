"""The bound of the ENRNN paper's theorem 3.1 on the short-term state's gradients, next to the gradients themselves.

    ||dh_T / dh_{T-k}||_2 <= ||W||_2^k,   ||dh_T / dx_{T-k}||_2 <= ||W||_2^k ||U||_2

K. Helfrich, Q. Ye, "Eigenvalue Normalized Recurrent Neural Networks for Short Term Memory", AAAI 2020. The theorem is
about ReLU and ||W||_2 < 1. Its proof needs only that the Jacobian of each step is D W, with a diagonal matrix D whose
entries are in [-1, 1]. So the bound also holds for every other part of a state in `Model.bounded_parts`, and for a
larger ||W||_2, with which it grows.

The gradients are those of one sequence, the first of the run's probe batch. They come from a copy of the model on the
CPU in double precision, because the rounding of a float alone would exceed the bound of an orthogonal W.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from orthobench.model import Model
from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes._jacobians import advance, exact, first_sequence, start, state_jacobian, step_jacobians
from orthobench.probes.jacobian import STEPS, spread_steps
from orthobench.probes.transient_growth import spectral_norm


class GradientBound(Probe):
    """For each part, `gradient_bound/norm/<part>` is ||W||_2, and `state_ratio` and `input_ratio` compare with it.

    A ratio is the largest one of a gradient and its bound, and at most 1 if the theorem holds. The ratio of states
    leaves out k = 0, where both are 1. The vectors at `gradient_bound/lags`, which are k, are `state/<part>` and
    `input/<part>`, the norms of the gradients, and `state_bound/<part>` and `input_bound/<part>`. The probe measures
    nothing for a model without bounded parts.
    """

    title = "norms of the last state's gradients by earlier states and inputs, and their bound"
    paper = "Helfrich, Ye 2020, theorem 3.1"
    every_epochs = 0

    def __call__(self, context: ProbeContext) -> ProbeResult:
        if not context.model.bounded_parts:
            return ProbeResult()
        model = exact(context.model)
        inputs = first_sequence(context).cpu().double()
        lags = [lag - 1 for lag in spread_steps(STEPS, len(inputs))]
        by_states, by_inputs = last_state_jacobians(model, inputs, lags)
        values: dict[str, float] = {}
        vectors: dict[str, Sequence[float]] = {"gradient_bound/lags": lags}
        for part, matrix in model.bounded_parts.items():
            rows = model.state_parts()[part]
            norm = spectral_norm(model.recurrent_matrices()[matrix])
            input_norm = spectral_norm(input_map(model)[rows])
            values[f"gradient_bound/norm/{part}"] = norm
            for name, measured, bounds in (
                ("state", [jacobian[rows, rows] for jacobian in by_states], [norm**lag for lag in lags]),
                ("input", [jacobian[rows] for jacobian in by_inputs], [norm**lag * input_norm for lag in lags]),
            ):
                norms = [spectral_norm(jacobian) for jacobian in measured]
                first = 1 if name == "state" else 0
                values[f"gradient_bound/{name}_ratio/{part}"] = largest_ratio(norms[first:], bounds[first:])
                vectors[f"gradient_bound/{name}/{part}"] = norms
                vectors[f"gradient_bound/{name}_bound/{part}"] = bounds
        return ProbeResult(values, vectors)


def last_state_jacobians(model: Model, inputs: Tensor, lags: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Return ds_T / ds_{T-k} `[N, N]` and ds_T / dx_{T-k} `[N, m]` for each lag k < T, of inputs `[T, 1, m]`."""
    by_states, by_inputs = {}, {}
    state, reached = start(model, 1), 0
    for lag in sorted(lags, reverse=True):
        step = len(inputs) - lag  # the step whose state and input the gradients are by
        before = advance(model, inputs[reached : step - 1], state)
        by_input = step_jacobians(model, inputs[step - 1], before)[1]
        state, reached = advance(model, inputs[step - 1 : step], before), step
        by_state = state_jacobian(model, inputs[step:], state) if lag else None
        by_states[lag] = by_input.new_ones(by_input.shape[1]).diag() if by_state is None else by_state[0]
        by_inputs[lag] = by_states[lag] @ by_input[0]
    return [by_states[lag] for lag in lags], [by_inputs[lag] for lag in lags]


def input_map(model: Model) -> Tensor:
    """Return the matrix that maps inputs into the step `[n, m]`: U, or U E with an embedding E."""
    weight: Tensor = model.get_parameter("input_weight")
    return weight if model.embedding is None else weight @ model.embedding


def largest_ratio(norms: Sequence[float], bounds: Sequence[float]) -> float:
    """Return the largest norm as a multiple of its bound: 0 without norms, and NaN if one of them is NaN."""
    ratios = [norm / bound if bound else norm and math.inf for norm, bound in zip(norms, bounds, strict=True)]
    return math.nan if any(map(math.isnan, ratios)) else max(ratios, default=0.0)
