"""Layer normalisation of all steps, equal to `torch.nn.functional.layer_norm` in value and gradient.

On the CPU its output and the gradient of its inputs are in reused memory, because they are as large as all states, and
fresh pages would cost as much time as the passes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from orthobench.recurrence import first_derivative, workspace
from orthobench.recurrence.cpu import call_c

_EPSILON = 1e-5  # torch's


def layer_norm(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalise the features of every row.

    Args:
        inputs: `[..., n]`.
        weight: `[n]`.
        bias: `[n]`.

    Returns:
        `[..., n]`.
    """
    if not call_c.serves("... n, n, n", inputs, weight, bias):
        return torch.nn.functional.layer_norm(inputs, weight.shape, weight, bias, _EPSILON)
    result: Tensor = _LayerNorm.apply(inputs.contiguous(), weight.contiguous(), bias.contiguous())
    return result


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out, scales = in_c(inputs, weight, bias)
        ctx.save_for_backward(inputs, weight, scales)
        return out

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs, weight, scales = saved
        return gradients(inputs, weight, scales, gradient.contiguous())


def in_c(inputs: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the normalised rows, and each row's mean and inverse deviation `[rows, 2]`, of contiguous tensors."""
    width = inputs.shape[-1]
    rows = inputs.numel() // width
    out, scales = workspace.take(*inputs.shape), inputs.new_empty(rows, 2)
    sizes = {"total": rows, "width": width, "epsilon": _EPSILON}
    tensors = {"x": inputs, "weight": weight, "bias": bias, "scales": scales, "out": out}
    call_c.run_rows("layer_norm_forward", rows, width, **sizes, **tensors)
    return out, scales


def gradients(inputs: Tensor, weight: Tensor, scales: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dL/d(inputs), dL/dw and dL/db from dL/d(output) `[..., n]`, all contiguous."""
    width = inputs.shape[-1]
    rows, dx = inputs.numel() // width, workspace.take(*inputs.shape)
    sums = {"dweight": [width], "dbias": [width]}
    tensors = {"x": inputs, "weight": weight, "scales": scales, "dout": gradient, "dx": dx}
    by_name = call_c.run_rows("layer_norm_backward", rows, width, sums, total=rows, width=width, **tensors)
    return dx, by_name["dweight"], by_name["dbias"]
