"""The normalisation of the readings of heads of a memory, times a gate: h = y / rms(y) o w o silu(g) in each head.

On the CPU a C kernel (`head_norm.c`) runs both directions in float32, each in one pass over memory. If the gate is a
projection of a few inputs, the kernel computes it too. Elsewhere some of torch's operations run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import silu

from orthobench.recurrence import first_derivative, workspace
from orthobench.recurrence.call import Projection
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.passes.convolution import has_few_inputs
from orthobench.recurrence.projection import project


def head_norm(y: Tensor, weight: Tensor, epsilon: float, gate: Tensor | Projection | None = None) -> Tensor:
    """Return y / sqrt(mean(y^2) + epsilon) o w of each head, times silu(g).

    Args:
        y: `[T, B, n]`, with the heads one after the other.
        weight: w `[n / heads]`, shared by all heads.
        epsilon: a number added to the mean of the squares of a head's features.
        gate: g `[T, B, n]`, or the projection that computes it; None for no gate.

    Returns:
        `[T, B, n]`.
    """
    if isinstance(gate, Projection):
        layout, tensors = "... n, d, ... m, n m, n", [gate.inputs, gate.weight, gate.bias]
    else:
        layout, tensors = "... n, d, ... n", [gate]
    if call_c.serves(layout, y, weight, *tensors) and y.shape[-1] % len(weight) == 0:
        return in_c(y, weight, epsilon, gate)
    return in_pytorch(y, weight, epsilon, gate)


def in_c(y: Tensor, weight: Tensor, epsilon: float, gate: Tensor | Projection | None = None) -> Tensor:
    """Return the normalised readings by the C kernels, for float32 on the CPU."""
    result: Tensor
    y, weight = y.contiguous(), weight.contiguous()
    if isinstance(gate, Projection) and has_few_inputs(gate):
        result = _HeadNorm.apply(y, weight, epsilon, gate.inputs.contiguous(), gate.weight)
    else:
        values = _read(gate)
        result = _HeadNorm.apply(y, weight, epsilon, None if values is None else values.contiguous(), None)
    return result


def in_pytorch(y: Tensor, weight: Tensor, epsilon: float, gate: Tensor | Projection | None = None) -> Tensor:
    """Return the normalised readings by torch's operations, which define them."""
    by_head = y.unflatten(-1, (-1, len(weight)))
    h: Tensor = (by_head * (by_head.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight).flatten(-2)
    values = _read(gate)
    return h if values is None else h * silu(values)


def _read(gate: Tensor | Projection | None) -> Tensor | None:
    """Return the gate for all steps."""
    return project(gate.inputs, gate.weight, gate.bias) if isinstance(gate, Projection) else gate


class _HeadNorm(Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, weight: Tensor, epsilon: float, gate: Tensor | None, gate_weight: Tensor | None
    ) -> Tensor:
        by_input = None if gate_weight is None else gate_weight.T.contiguous()
        ctx.epsilon = epsilon
        # The last one has no part in the pass, but its second derivatives have to be refused.
        ctx.save_for_backward(y, weight, gate, by_input, gate_weight)
        h = workspace.take(*y.shape)
        tensors = {"y": y, "weight": weight, "gate": gate, "gate_weight": by_input, "h": h}
        _run("head_norm_forward", epsilon, tensors)
        return h

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: Any, dh: Tensor) -> Any:
        y, weight, gate, by_input, _ = saved
        dy = workspace.take(*y.shape)
        dgate = workspace.take(*y.shape) if gate is not None and by_input is None else None
        shapes = {"dweight": weight.shape}
        if by_input is not None:
            shapes["dgate_weight"] = by_input.shape
        tensors = {"y": y, "weight": weight, "gate": gate, "gate_weight": by_input}
        tensors |= {"dh": dh.contiguous(), "dy": dy, "dgate": dgate}
        sums = _run("head_norm_backward", ctx.epsilon, tensors, shapes)
        return dy, sums["dweight"], None, dgate, None if by_input is None else sums["dgate_weight"].T.contiguous()


def _run(
    function: str, epsilon: float, tensors: Mapping[str, Tensor | None], sums: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Tensor]:
    """Run a pass over all rows, and return its sums over them, which have these shapes."""
    y, weight, gate = (tensors[name] for name in ("y", "weight", "gate"))
    assert y is not None
    assert weight is not None
    size, width = len(weight), y.shape[-1]
    inputs = gate.shape[-1] if gate is not None and tensors["gate_weight"] is not None else 0
    sizes = {"heads": width // size, "size": size, "inputs": inputs, "epsilon": epsilon}
    return call_c.run_rows(function, y.numel() // width, width, sums, **sizes, **tensors)
