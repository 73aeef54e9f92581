"""The input projection x_t = U u_t + b of all steps in one product.

`torch.nn.functional.linear` in value and gradient. On the CPU the result is in reused memory. It is as large as
all states and unused after the recurrence, and fresh pages would cost more time than the product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence import dispatch, native, stopwatch, workspace


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x = U u + b.

    Args:
        inputs: `[T, B, m]`.
        weight: U `[n, m]`.
        bias: b `[n]`.

    Returns:
        x `[T, B, n]`.
    """
    tensors = [inputs, weight] if bias is None else [inputs, weight, bias]
    has_kernel = all(t.device.type == "cpu" and t.dtype is torch.float32 for t in tensors) and inputs.numel()
    in_torch = torch.compiler.is_exporting() or dispatch.chosen() == "reference"
    if in_torch or not has_kernel or inputs.dim() != 3 or native.unusable("project"):
        return torch.nn.functional.linear(inputs, weight, bias)
    with stopwatch.part(stopwatch.PROJECTION):
        result: Tensor = _Project.apply(inputs, weight, bias)
    return result


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.has_bias = bias is not None
        x = workspace.take(*inputs.shape[:2], weight.shape[0])
        bias = x.new_zeros(weight.shape[0]) if bias is None else bias
        if inputs.shape[-1] == 1:  # pixel by pixel: several times faster than a product with one column
            return torch.addcmul(bias, inputs, weight[:, 0], out=x)
        torch.addmm(bias, inputs.flatten(0, 1), weight.T, out=x.view(-1, weight.shape[0]))
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx: Tensor) -> Any:
        with stopwatch.part(stopwatch.PROJECTION):
            return _Project._gradients(ctx, dx)

    @staticmethod
    def _gradients(ctx: Any, dx: Tensor) -> Any:
        inputs, weight = ctx.saved_tensors
        m = inputs.shape[-1]
        dinputs = None
        if ctx.needs_input_grad[0]:
            dinputs = workspace.take(*inputs.shape)
            torch.mm(dx.reshape(-1, dx.shape[-1]), weight, out=dinputs.view(-1, m))
        if not any(ctx.needs_input_grad[1:]):
            return dinputs, None, None
        # The bias is the weight of an additional input 1: one pass over dx gives both gradients.
        if ctx.has_bias:
            inputs = torch.cat((inputs, inputs.new_ones(*inputs.shape[:2], 1)), dim=-1)
        dweight = native.weight_gradient(dx.contiguous(), inputs.contiguous(), None)
        dbias = dweight[:, m].contiguous() if ctx.has_bias else None
        return dinputs, dweight[:, :m].contiguous(), dbias
