"""The comparison of the C kernels of the selective scan with the reference."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result
from orthobench.recurrence.cpu import agreement
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.ops.selective import gated_scan as selective_gate
from orthobench.recurrence.ops.selective import selective_scan
from orthobench.recurrence.passes import convolution


def selective_scan_agrees() -> bool:
    """Return whether the kernels of the selective scan agree, with chunks of steps and a rest, and with a map."""
    batch, width = 3, 21
    for steps, size, rank, negative, mapped in (
        (2, 16, 2, True, False),
        (18, 16, 1, False, True),
        (35, 3, 4, True, False),
        (33, 5, 9, True, True),
    ):
        numbers, x = rank + 2 * size, normal(steps, batch, width, seed=0)
        weight = 0.2 * normal(numbers, width, seed=1) if mapped else normal(steps, batch, numbers, seed=1)
        vectors = (-normal(size * width, seed=2).exp(), normal(width, rank, seed=3), normal(width, seed=4))
        arguments = [x, weight, normal(batch, size * width, seed=5), *vectors]
        parameters, names = {"state_size": size, "negative": negative}, ("rates", "step_weight", "step_bias")
        if not agreement.form_agrees(selective_scan, parameters, names, arguments, _with_weights):
            return False
    return all(
        _convolved_selective_scan_agrees(*form)
        for form in ((4, 1, True, False), (2, 0, False, True), (4, 1, True, True))
    )


def _convolved_selective_scan_agrees(taps: int, inputs: int, has_bias: bool, reads: bool) -> bool:
    """Return whether the kernels agree that compute x from its convolution, and with `inputs` from a projection.

    What is read has a skip and a gate.
    """
    steps, batch, width, size, rank = 37, 3, 21, 5, 2
    filters = [(taps, width), (taps - 1, batch, width), (width,)]
    gates = [(width,), (width, inputs) if inputs else (steps, batch, width)]
    selection = [(rank + 2 * size, width), (batch, size * width), (size * width,), (width, rank), (width,)]
    shapes = [(steps, batch, inputs or width), (width, inputs or 1), *filters, *gates, *selection]
    arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    arguments[-3] = -arguments[-3].exp()  # the rates

    def call_on(x: Inputs, selection: Tensor, start: Tensor, rates: Tensor, *step: Tensor) -> Call:
        weight, bias = step
        return selective_scan.call(x, selection, (start,), None, rates, weight, bias, size, False, reads)

    def in_kernel(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        weight, before, bias, skip, gate, *selection = others
        x = Convolution(Projection(u, input_weight) if inputs else u, weight, before, bias if has_bias else None)
        call = call_on(x, *selection)
        if reads:
            gates = {"skip": skip, "gate_weight" if inputs else "gate": gate}
            call = replace(call, parameters={**call.parameters, **gates})
        assert cpu.makes(call)
        y, (end,) = cpu.run(call)
        return [y, end] if reads else [end]

    def defined(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        weight, before, bias, skip, gate, *selection = others
        projected = torch.nn.functional.linear(u, input_weight) if inputs else u
        x = convolution.in_pytorch(projected, weight, before, bias if has_bias else None)
        y, (end,) = _with_weights(call_on(x, *selection))
        if not reads:
            return [end]
        return [selective_gate.in_pytorch(y, x, skip, torch.nn.functional.linear(u, gate) if inputs else gate), end]

    return agreement.agrees(in_kernel, defined, arguments, inputs=bool(inputs))


def _with_weights(call: Call) -> Result:
    """Run the reference; torch computes the weights of a mapped call."""
    weight = torch.nn.functional.linear(call.x, call.weight) if call.is_mapped else call.weight  # type: ignore[arg-type]
    return reference.run(replace(call, weight=weight))
