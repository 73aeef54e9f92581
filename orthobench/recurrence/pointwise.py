"""Functions of each feature between two products: GELU of a sum with a skip, and a sum with a gated linear unit.

On the CPU each is one pass in C (`pointwise.c`), with its results in reused memory. Torch's operations would write and
read a tensor of all steps between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import native

_PARTS = 8  # ranges of rows with separate sums, so that no sum depends on the number of threads


def skip_gelu(x: Tensor, skip: Tensor, v: Tensor) -> Tensor:
    """Return gelu(x + skip o v).

    Args:
        x: `[..., n]`.
        skip: `[n]`.
        v: `[..., n]`.

    Returns:
        `[..., n]`.
    """
    if not native.serves("pointwise", "... n, n, ... n", x, skip, v):
        return gelu(x + skip * v)
    result: Tensor = _SkipGelu.apply(x.contiguous(), skip.contiguous(), v.contiguous())
    return result


def gated_sum(base: Tensor, values: Tensor) -> Tensor:
    """Return base + a o sigmoid(g) for values (a, g), which is a gated linear unit with a skip.

    Args:
        base: `[..., n]`.
        values: `[..., 2n]`.

    Returns:
        `[..., n]`.
    """
    if not native.serves("pointwise", "... n, ... 2n", base, values):
        a, g = values.chunk(2, dim=-1)
        return base + a * g.sigmoid()
    result: Tensor = _GatedSum.apply(base.contiguous(), values.contiguous())
    return result


class _SkipGelu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, skip: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(x, skip, v)
        out = runtime.take(*x.shape)
        _run("skip_gelu_forward", out, x=x, skip=skip, v=v, out=out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, skip, v = ctx.saved_tensors
        dx, dv, sums = runtime.take(*x.shape), runtime.take(*x.shape), x.new_zeros(_PARTS, len(skip))
        tensors = {"x": x, "skip": skip, "v": v, "dout": gradient.contiguous(), "dx": dx, "dv": dv}
        _run("skip_gelu_backward", x, {"dskip": sums}, **tensors)
        return dx, native.total(sums), dv


class _GatedSum(Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        out = runtime.take(*base.shape)
        _run("gated_sum_forward", out, values=values, base=base, out=out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (values,) = ctx.saved_tensors
        dvalues, gradient = runtime.take(*values.shape), gradient.contiguous()
        _run("gated_sum_backward", gradient, values=values, dout=gradient, dvalues=dvalues)
        return gradient, dvalues


def _run(function: str, rows: Tensor, sums: Mapping[str, Tensor] | None = None, /, **tensors: Tensor) -> None:
    """Run a kernel on the rows `[..., n]` of its tensors, in parts, each of which has its own part of the `sums`."""
    width = rows.shape[-1]
    count = rows.numel() // width
    kernel = native.bind(function, total=count, width=width, **tensors)
    runtime.run_all(
        [
            partial(kernel, *range_, **{name: each[part] for name, each in (sums or {}).items()})
            for part, range_ in enumerate(runtime.ranges(count, _PARTS))
        ]
    )
