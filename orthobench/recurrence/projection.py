"""The input projection x_t = U u_t + b, or the output map y_t = V h_t + c, of all steps in one product.

It equals `torch.nn.functional.linear` in value and gradient. On the CPU the large tensors, x and the gradient of h, are
in reused memory. They are as large as all states and soon unused, and fresh pages would cost more time than the
product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence import stopwatch
from orthobench.recurrence.cpu import native, workspace


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, part: str = stopwatch.PROJECTION) -> Tensor:
    """Return x = U u + b.

    Args:
        inputs: `[T, B, m]`.
        weight: U `[n, m]`.
        bias: b `[n]`.
        part: the part of a training step to which its time is added.

    Returns:
        x `[T, B, n]`; for inputs with another number of axes, the same as `torch.nn.functional.linear`.
    """
    if not native.serves("project", "T B m, n m, n", inputs, weight, bias):
        return torch.nn.functional.linear(inputs, weight, bias)
    with stopwatch.part(part):
        result: Tensor = _Project.apply(inputs, weight, bias, part)
    return result


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, part: str) -> Tensor:
        ctx.part = part
        ctx.save_for_backward(inputs, weight)
        ctx.has_bias = bias is not None
        x = workspace.take(*inputs.shape[:2], weight.shape[0])
        if inputs.shape[-1] == 1:  # as in pixel by pixel tasks; a product with one column would be slower
            bias = x.new_zeros(weight.shape[0]) if bias is None else bias
            return torch.addcmul(bias, inputs, weight[:, 0], out=x)
        bias = None if bias is None else bias.contiguous()
        return native.linear(inputs.contiguous(), native.pack(weight.contiguous()), bias, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx: Tensor) -> Any:
        with stopwatch.part(ctx.part):
            return (*_Project._gradients(ctx, dx), None)

    @staticmethod
    def _gradients(ctx: Any, dx: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        m = inputs.shape[-1]
        dinputs = None
        if ctx.needs_input_grad[0]:
            packed = native.pack_transposed(weight.contiguous())
            dinputs = native.linear(dx.contiguous(), packed, None, workspace.take(*inputs.shape))
        if not any(ctx.needs_input_grad[1:]):
            return dinputs, None, None
        # The bias is the weight of an additional input 1, so that one pass over dx computes both gradients.
        constant = inputs.new_ones(*inputs.shape[:2], 1) if ctx.has_bias else None
        sums = native.outer_sums(dx.contiguous(), inputs.contiguous(), None, constant)
        return dinputs, sums[:, :m].contiguous(), sums[:, m].contiguous() if ctx.has_bias else None


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left right `[p, r]`, for use in hand-written gradients, because it has no derivative itself.

    Args:
        left: `[p, q]`.
        right: `[q, r]`.
    """
    if not native.serves("project", "p q, q r", left, right):
        return left.detach() @ right.detach()
    packed = native.pack_transposed(right.detach())
    return native.linear(left.detach().contiguous(), packed, None, left.new_empty(len(left), right.shape[1]))
