"""Functions of each feature between two products: GELU of a sum with a skip, and a sum with a gated linear unit.

On the CPU each is one pass in C (`pointwise.c`), with its results in reused memory. Torch's operations would write and
read a tensor of all steps between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import gelu

from orthobench.recurrence import first_derivative, workspace
from orthobench.recurrence.cpu import call_c


def skip_gelu(x: Tensor, skip: Tensor, v: Tensor) -> Tensor:
    """Return gelu(x + skip o v).

    Args:
        x: `[..., n]`.
        skip: `[n]`.
        v: `[..., n]`.

    Returns:
        `[..., n]`.
    """
    if not call_c.serves("... n, n, ... n", x, skip, v):
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
    if not call_c.serves("... n, ... 2n", base, values):
        a, g = values.chunk(2, dim=-1)
        return base + a * g.sigmoid()
    result: Tensor = _GatedSum.apply(base.contiguous(), values.contiguous())
    return result


class _SkipGelu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, skip: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(x, skip, v)
        out = workspace.take(*x.shape)
        _run("skip_gelu_forward", out, x=x, skip=skip, v=v, out=out)
        return out

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, skip, v = saved
        dx, dv = workspace.take(*x.shape), workspace.take(*x.shape)
        tensors = {"x": x, "skip": skip, "v": v, "dout": gradient.contiguous(), "dx": dx, "dv": dv}
        sums = _run("skip_gelu_backward", x, {"dskip": skip.shape}, **tensors)
        return dx, sums["dskip"], dv


class _GatedSum(Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        out = workspace.take(*base.shape)
        _run("gated_sum_forward", out, values=values, base=base, out=out)
        return out

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, Tensor]:
        (values,) = saved
        dvalues, gradient = workspace.take(*values.shape), gradient.contiguous()
        _run("gated_sum_backward", gradient, values=values, dout=gradient, dvalues=dvalues)
        return gradient, dvalues


def _run(
    function: str, rows: Tensor, sums: Mapping[str, Sequence[int]] | None = None, /, **tensors: Tensor
) -> dict[str, Tensor]:
    """Run a pass over the rows `[..., n]` of its tensors, and return its sums over them, which have these shapes."""
    width = rows.shape[-1]
    count = rows.numel() // width
    return call_c.run_rows(function, count, width, sums, total=count, width=width, **tensors)
