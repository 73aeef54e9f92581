"""Maps whose derivative is written by hand, which takes less time and memory than autograd, but works only once.

Where the derivative is differentiated again, and under the transforms of `torch.func`, autograd differentiates the map
in plain operations of torch instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.runtime import is_transformed

Plain = Callable[..., Tensor]
"""A map in plain operations, of the tensors that an autograd function saves first, and of its `ctx.options`."""


def apply(function: type[torch.autograd.Function], plain: Plain, *inputs: Any) -> Tensor:
    """Return the function's value at these inputs, by the plain map under the transforms of `torch.func`."""
    result: Tensor = plain(*inputs) if is_transformed() else function.apply(*inputs)
    return result


def derivative_of(plain: Plain, tensors: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a hand-written `backward`, so that it can be differentiated; it is never computed under autocast.

    Args:
        plain: the same map.
        tensors: the number of its arguments that are tensors; the other ones are `ctx.options`, if there are any.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def run(ctx: Any, gradient: Tensor) -> Any:
            device = gradient.device.type
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                with torch.autocast(device, enabled=False):
                    return run(ctx, gradient)
            if not torch.is_grad_enabled():
                return backward(ctx, gradient)
            options = getattr(ctx, "options", ())
            product: Callable[..., Any] = torch.func.vjp(
                lambda *each: plain(*each, *options), *ctx.saved_tensors[:tensors]
            )[1]
            return *product(gradient), *[None for _ in options]

        return run

    return decorate
