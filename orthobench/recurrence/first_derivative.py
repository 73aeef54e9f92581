"""Kernels that have a first derivative and no second."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from orthobench.recurrence import plain_tensors
from orthobench.recurrence.backends import outside_autocast
from orthobench.recurrence.plain_tensors import has_tangents, is_plain


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hand-written backward pass that records no graph, and whose results cannot be differentiated.

    It computes in the precision of the tensors, whatever `torch.autocast` says.

    Torch's decorator of this name refuses only if an incoming gradient needs a gradient itself. But the results depend
    on the saved tensors too, so a second derivative of, for example, a sum of outputs would silently be 0.

    Args:
        backward: takes the context, the saved tensors and the gradients, which are plain. The saved tensors must
            include inputs or outputs from which autograd reaches every input on which the results depend.
    """

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # once, because `torch.utils.checkpoint` allows no second time
        readable = gradients if _are_usual(gradients) else map(_readable, gradients)
        # A program may call `backward` under autocast, which would round the products of a gradient.
        device = next(each.device for each in (*saved, *gradients) if each is not None)
        with outside_autocast(device):
            if not torch.is_grad_enabled():  # no graph of the gradients is wanted
                return backward(ctx, saved, *readable)
            with torch.no_grad():
                results = backward(ctx, saved, *readable)
        sources = [each for each in (*saved, *gradients) if each is not None and each.requires_grad]
        several = results if isinstance(results, tuple) else (results,)
        tensors = iter(_Refusal.apply(len(sources), *sources, *(each for each in several if each is not None)))
        tied = tuple(None if each is None else next(tensors) for each in several)
        return tied if isinstance(results, tuple) else tied[0]

    return run


def _are_usual(gradients: Iterable[Tensor | None]) -> bool:
    """Return whether a kernel can read gradients as they are, without looking at them more closely."""
    for each in gradients:
        if each is not None and not is_plain(each):
            return False
    return not (plain_tensors.count_modes() > 0 or has_tangents())


def _readable(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient as a kernel reads it.

    Raises:
        RuntimeError: it is none of a plain backward pass.
    """
    if plain_tensors.count_modes() > 0:
        raise RuntimeError("a dispatch mode sees no kernel's backward pass: run the forward pass inside it too")
    if gradient is None or (is_plain(gradient) and not has_tangents()):
        return gradient
    gradient = (gradient if gradient.layout is torch.strided else gradient.to_dense()).resolve_neg()
    has_tangent = has_tangents() and forward_ad.unpack_dual(gradient).tangent is not None
    if has_tangent or not is_plain(gradient):
        raise RuntimeError(
            "the kernels cannot read a gradient that has a tangent, is batched or wraps another tensor: "
            "use `use_backend('reference')` in the forward pass"
        )
    return gradient


class _Refusal(Function):
    """The identity of the tensors after the first `count`; it depends on these, and no derivative passes it."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("the kernels have first derivatives only: use `use_backend('reference')` for further ones")
