"""The input projection x_t = U u_t + b, and the output map y_t = V h_t + c, of all steps in one product.

The product equals `torch.nn.functional.linear` in value and gradient. On the CPU the large tensors, x and the gradient
of h, are in reused memory. They are as large as all states and soon unused, and fresh pages would cost more time than
the product.

The loops of the recurrences can compute the output map as well. As a separate product, dL/dh, which is as large as all
states, would be written to memory and read again. The backward loop instead computes it step by step as one more
product, and dL/dV while the states are in the cache. The forward loop computes y along with its states. The map
therefore has to be announced before the recurrence runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from orthobench.recurrence import first_derivative, kernels, timing, workspace
from orthobench.recurrence.cpu import call_c, matrix_products


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, phase: str = timing.PROJECTION) -> Tensor:
    """Return x = U u + b.

    Args:
        inputs: `[T, B, m]`.
        weight: U `[n, m]`.
        bias: b `[n]`.
        phase: the phase of a training step to which its time is added.

    Returns:
        x `[T, B, n]`; for inputs with another number of axes, the same as `torch.nn.functional.linear`.
    """
    if not call_c.serves("T B m, n m, n", inputs, weight, bias):
        return torch.nn.functional.linear(inputs, weight, bias)
    with timing.timed(phase):
        result: Tensor = _Project.apply(inputs, weight, bias, phase)
    return result


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, phase: str) -> Tensor:
        ctx.phase = phase
        ctx.save_for_backward(inputs, weight)
        ctx.has_bias = bias is not None
        x = workspace.take(*inputs.shape[:2], weight.shape[0])
        if inputs.shape[-1] == 1:  # as in pixel by pixel tasks; a product with one column would be slower
            bias = x.new_zeros(weight.shape[0]) if bias is None else bias
            return torch.addcmul(bias, inputs, weight[:, 0], out=x)
        bias = None if bias is None else bias.contiguous()
        return matrix_products.linear(inputs.contiguous(), matrix_products.pack(weight.contiguous()), bias, x)

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], dx: Tensor) -> Any:
        inputs, weight = saved
        with timing.timed(ctx.phase):
            return (*_Project._gradients(ctx, inputs, weight, dx), None)

    @staticmethod
    def _gradients(ctx: Any, inputs: Tensor, weight: Tensor, dx: Tensor) -> tuple[Tensor | None, ...]:
        m = inputs.shape[-1]
        dinputs = None
        if ctx.needs_input_grad[0]:
            packed = matrix_products.pack_transposed(weight.contiguous())
            dinputs = matrix_products.linear(dx.contiguous(), packed, None, workspace.take(*inputs.shape))
        if not any(ctx.needs_input_grad[1:]):
            return dinputs, None, None
        # The bias is the weight of an additional input 1, so that one pass over dx computes both gradients.
        constant = inputs.new_ones(*inputs.shape[:2], 1) if ctx.has_bias else None
        sums = matrix_products.outer_sums(dx.contiguous(), inputs.contiguous(), None, constant)
        return dinputs, sums[:, :m].contiguous(), sums[:, m].contiguous() if ctx.has_bias else None


def add_to_first(x: Tensor, addend: Tensor) -> Tensor:
    """Return x with an addend for its first step; on the CPU the memory of x becomes that of the result.

    Args:
        x: `[T, B, n]`, which nothing else reads.
        addend: `[B, n]`.
    """
    if not call_c.serves("T B n, B n", x, addend):
        return x.index_add(0, torch.zeros(1, dtype=torch.int64, device=x.device), addend[None])
    result: Tensor = _AddToFirst.apply(x, addend)
    return result


class _AddToFirst(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, addend: Tensor) -> Tensor:
        x = x.detach()  # an alias, because autograd lets nothing change a tensor that is a view
        x[0] += addend
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient[0]


def matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """Return left right `[p, r]`, for use in hand-written gradients, because it has no derivative itself.

    Args:
        left: `[p, q]`.
        right: `[q, r]`.
    """
    if not call_c.serves("p q, q r", left, right):
        return left.detach() @ right.detach()
    packed = matrix_products.pack_transposed(right.detach())
    return matrix_products.linear(left.detach().contiguous(), packed, None, left.new_empty(len(left), right.shape[1]))


OutputRead = Callable[[Tensor], Tensor]
"""A function of features h `[..., n]` that returns y = V h + c, as `torch.nn.functional.linear`."""


@contextmanager
def reading(weight: Tensor, bias: Tensor, in_loop: bool = True) -> Iterator[OutputRead]:
    """Yield the function that maps features h to y = V h + c, to be called after the block.

    If the features are the outputs of all steps of a C recurrence in the block that projects its inputs, its loop has
    computed y. The gradient then goes from y directly to the recurrence's arguments, so a hook on the outputs does not
    see it.

    Args:
        weight: V `[p, n]`.
        bias: c `[p]`.
        in_loop: whether the features will be such outputs. If not, a loop would compute y in vain.
    """
    output_map = kernels.OutputMap(weight, bias)

    def read(features: Tensor) -> Tensor:
        if output_map.y is not None and features is output_map.outputs:
            return output_map.y
        return project(features, weight, bias, phase=timing.READOUT)

    is_in_c = in_loop and torch.is_grad_enabled() and call_c.serves("p n, p", weight, bias)
    with kernels.expect(output_map if is_in_c else None):
        yield read


def unread() -> AbstractContextManager[None]:
    """Return the context of recurrences whose outputs no output map reads."""
    return kernels.expect(None)
