"""The selective scan with a skip and a gate on its readings, which are Mamba's outputs.

The CPU's kernel computes them from its readings in registers. Torch's passes would read and write tensors as large as
all of x ten times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import silu

from orthobench.recurrence import operation
from orthobench.recurrence.call import Call, Convolution, GradientTrace, Inputs, Projection, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.kernels import Kernel
from orthobench.recurrence.ops.selective import selective_scan
from orthobench.recurrence.projection import project


def gated_scan(
    x: Inputs,
    weight: Tensor,
    state: tuple[Tensor, ...],
    trace: GradientTrace | None,
    skip: Tensor,
    gate: Projection | None,
    **parameters: Any,
) -> Result:
    """Return o_t = (y_t + D o x_t) o silu(z_t), where y are the outputs of `selective_scan`, and the final state.

    Args:
        x: as for `selective_scan`.
        weight: as for `selective_scan`.
        state: as for `selective_scan`.
        trace: as for `selective_scan`.
        skip: D `[D]`.
        gate: z `[T, B, D]` as a projection; None for no factor.
        parameters: as for `selective_scan`.

    Returns:
        o `[T, B, D]`, and the final state `[B, N * D]`.
    """
    call = selective_scan.call(x, weight, state, trace, **parameters)
    kernel = operation.kernel_of(call, operation.choose(call))
    if kernel.gates_outputs and _fits(x, skip, gate):
        return operation.run(replace(call, parameters={**call.parameters, "skip": skip, **_gate(kernel, call, gate)}))
    inputs = operation.resolved(x)
    y, final = operation.run(replace(call, x=inputs))
    return in_pytorch(y, inputs, skip, None if gate is None else project(gate.inputs, gate.weight, gate.bias)), final


def in_pytorch(y: Tensor, x: Tensor, skip: Tensor, z: Tensor | None) -> Tensor:
    """Return (y + D o x) o silu(z) by torch's operations, which define it."""
    y = y + skip * x
    return y if z is None else y * silu(z)


def _fits(x: Inputs, skip: Tensor, gate: Projection | None) -> bool:
    """Return whether the CPU's kernel supports the skip and the gate."""
    z = x if gate is None else gate
    tensors = (None, None, None) if gate is None else (gate.inputs, gate.weight, gate.bias)
    fit = z.shape == x.shape and skip.shape == x.shape[-1:]
    return fit and call_c.serves("D, ... m, D m, D", skip, *tensors)


def _gate(kernel: type[Kernel], call: Call, gate: Projection | None) -> dict[str, Tensor]:
    """Return the gate as parameters of the kernel, which itself computes a gate from the same inputs as x."""
    if gate is None:
        return {}
    x = call.x
    source = x.source if isinstance(x, Convolution) and kernel.makes(x, call.parameters) else None
    if isinstance(source, Projection) and source.inputs is gate.inputs and gate.bias is None:
        return {"gate_weight": gate.weight}
    return {"gate": project(gate.inputs, gate.weight, gate.bias)}
