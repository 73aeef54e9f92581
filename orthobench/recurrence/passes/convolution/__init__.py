"""The short causal convolution of each feature through time with SiLU, before a memory of keys and values.

On the CPU a C kernel (`convolution.c`) runs both passes in float32. Elsewhere a few of torch's operations do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import silu

from orthobench.recurrence import first_derivative, threads, timing, workspace
from orthobench.recurrence.any_length import latest
from orthobench.recurrence.call import Projection
from orthobench.recurrence.cpu import call_c

_SMALL = 1 << 15  # numbers; below, starting a thread costs more than it saves


def short_convolution(inputs: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return y_t = silu(sum_i w_i o x_{t - taps + 1 + i} + b), i = 0 to taps - 1; w_0 weighs the oldest input.

    Args:
        inputs: x `[T, B, n]`.
        weight: `[taps, n]`.
        before: the inputs before the first step, `[taps - 1, B, n]`, the oldest first.
        bias: b `[n]`.

    Returns:
        y `[T, B, n]`.

    Raises:
        ValueError: `before` has the wrong number of steps.
    """
    tensors = (inputs, weight, before, bias)
    if call_c.serves("T B n, taps n, taps-1 B n, n", *tensors) and has_few_taps(weight):
        return in_c(*tensors)
    return in_pytorch(*tensors)


def convolved(inputs: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution of `short_convolution` without SiLU, by torch's operations.

    Raises:
        ValueError: `before` has the wrong number of steps.
    """
    if len(before) != len(weight) - 1:
        raise ValueError(f"{len(weight)} taps need {len(weight) - 1} inputs before the first step, not {len(before)}")
    steps, padded = inputs.shape[0], torch.cat((before, inputs))  # len would fix it in an export
    terms = [w * padded[i : i + steps] for i, w in enumerate(weight.unbind(0))]
    total = torch.stack(terms).sum(0)
    return total if bias is None else total + bias


def carried_inputs(before: Tensor, inputs: Tensor, taps: int) -> tuple[Tensor, Tensor]:
    """Return what a convolution takes from a model's state, and what it leaves there.

    Args:
        before: the inputs before the first step, as part of a state `[B, (taps - 1) * n]`.
        inputs: x `[T, B, n]`.
        taps: the number of inputs that a step reads.

    Returns:
        The inputs before the first step `[taps - 1, B, n]`, and those before the next part of the sequence, in the
        layout of `before`.
    """
    earlier = before.unflatten(-1, (taps - 1, -1)).transpose(0, 1)
    recent = torch.cat((earlier, latest(inputs, taps)))[1 - taps :]
    return earlier, recent.transpose(0, 1).flatten(1)


def has_few_taps(weight: Tensor) -> bool:
    """Return whether the C kernels support the number of taps of a convolution's weight `[taps, n]`."""
    return len(weight) <= int(call_c.kernels().convolution_taps())


def has_few_inputs(x: Projection) -> bool:
    """Return whether the C kernels compute a projection themselves.

    They do so for a projection without a bias, of a few inputs that need no gradient. For more inputs, a single product
    over all steps is faster.
    """
    few = int(call_c.kernels().convolution_inputs())
    return x.inputs.shape[-1] <= few and x.bias is None and not x.inputs.requires_grad


def in_c(inputs: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution by the C kernels, for float32 on the CPU."""
    with timing.timed(timing.PROJECTION):
        bias = None if bias is None else bias.contiguous()
        result: Tensor = _Convolution.apply(inputs.contiguous(), weight.contiguous(), before.contiguous(), bias)
    return result


def in_pytorch(inputs: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution by torch's operations, which define it."""
    return silu(convolved(inputs, weight, before, bias))


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, before: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight, before, bias)
        y = workspace.take(*inputs.shape)
        _run("convolution_forward", inputs, before=before, weight=weight, bias=bias, y=y)
        return y

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], dy: Tensor) -> Any:
        inputs, weight, before, bias = saved
        taps, (_, batch, width) = len(weight), inputs.shape
        dx, dbefore = workspace.take(*inputs.shape), torch.empty_like(before)
        dweight, later = inputs.new_zeros(taps, batch, width), torch.zeros_like(before)
        dbias = None if bias is None else torch.zeros_like(inputs[0])
        tensors = {"before": before, "weight": weight, "bias": bias, "dy": dy.contiguous(), "later": later}
        tensors |= {"dx": dx, "dbefore": dbefore, "dweight": dweight, "dbias": dbias}
        with timing.timed(timing.PROJECTION):
            _run("convolution_backward", inputs, **tensors)
        dweight = torch.stack([call_c.total(rows) for rows in dweight.unbind(0)])
        return dx, dweight, dbefore, None if dbias is None else call_c.total(dbias)


def _run(function: str, x: Tensor, /, **tensors: Tensor | None) -> None:
    """Run one pass over all steps, with the blocks of features split over the threads without changing results."""
    (steps, batch, width), weight = x.shape, tensors["weight"]
    assert weight is not None
    sizes = {"steps": steps, "batch": batch, "width": width, "taps": len(weight)}
    kernel = call_c.bind(function, **sizes, x=x, **tensors)
    blocks = batch * -(-width // call_c.kernels().vector_length())
    ranges = threads.ranges(blocks, torch.get_num_threads() if x.numel() > _SMALL else 1)
    threads.run_all([partial(kernel, *each) for each in ranges])
