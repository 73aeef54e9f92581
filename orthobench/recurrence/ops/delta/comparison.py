"""The comparison of the C kernels of the delta rule with the reference."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result
from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.delta import delta_rule
from orthobench.recurrence.passes import convolution

_CONVOLVED = (  # taps, inputs, corrections a step, whether outputs are read, keys, values; 32 and 32 have kernels apart
    (4, 1, 8, False, 5, 18),
    (4, 0, 1, True, 5, 18),
    (3, 2, 1, True, 5, 18),
    (4, 1, 2, True, 32, 32),
)
# keys, values, corrections per step, whether the memory decays, and the epsilon of the keys' length
_FORMS = ((16, 35, 1, True, 1e-6), (21, 16, 8, False, None), (3, 5, 33, True, 1e-6))


def delta_rule_agrees() -> bool:
    """Return whether the kernels of the delta rule agree, with whole and partial vectors.

    18 steps are two chunks with one correction per step, and two groups of chunks with 8 corrections per step. With 33,
    each step is a chunk of three blocks.
    """
    heads, batch, steps = 2, 3, 18
    for keys, values, factors, gated, epsilon in _FORMS:
        parameters = {"heads": heads, "key_size": keys, "factors": factors, "gated": gated, "epsilon": epsilon}
        x = normal(steps, batch, heads * (keys + factors * (keys + values)), seed=0) / keys**0.5
        weight = _betas_and_decays(steps, batch, heads * factors, heads * gated)
        arguments = [x, weight, normal(batch, heads * keys * values, seed=2)]
        if not agreement.form_agrees(delta_rule, parameters, (), arguments):
            return False
    return all(_convolved_delta_rule_agrees(*form) for form in _CONVOLVED)


def _betas_and_decays(steps: int, batch: int, betas: int, decays: int) -> Tensor:
    """Return betas in (0, 2) and logarithms of decays in (-1, 0), `[T, B, betas + decays]`."""
    weight = normal(steps, batch, betas + decays, seed=1).sigmoid().neg()
    weight[..., :betas] *= -2
    return weight


def _convolved_delta_rule_agrees(taps: int, inputs: int, factors: int, reads: bool, keys: int, values: int) -> bool:
    """Return whether the kernels that compute x from its convolution, and with `inputs` from a projection, agree."""
    heads, batch, steps = 2, 3, 18
    width = heads * ((reads + factors) * keys + factors * values)
    shapes = [(steps, batch, inputs or width), (width, inputs or 1), (taps, width), (taps - 1, batch, width)]
    arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    arguments += [_betas_and_decays(steps, batch, heads * factors, heads), normal(batch, heads * keys * values, seed=5)]

    def results(run: Callable[[Call], Result], x: Inputs, weight: Tensor, start: Tensor) -> list[Tensor]:
        call = delta_rule.call(x, weight, (start,), None, heads, keys, factors, True, 1e-6, reads)
        assert run is reference.run or cpu.makes(call)
        y, (end,) = run(call)
        return [y, end] if reads else [end]

    def in_kernel(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        *filters, weight, start = others
        return results(cpu.run, Convolution(Projection(u, input_weight) if inputs else u, *filters), weight, start)

    def defined(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        *filters, weight, start = others
        u = torch.nn.functional.linear(u, input_weight) if inputs else u
        return results(reference.run, convolution.in_pytorch(u, *filters), weight, start)

    return agreement.agrees(in_kernel, defined, arguments, inputs=bool(inputs))
