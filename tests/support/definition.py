"""The definition of an operation, plain PyTorch that autograd differentiates: its truth, and kernels against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import GradientTrace, reference
from orthobench.recurrence.call import Call


def cast(arguments: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """Return the arguments of a call with its tensors in another precision."""
    return [a.to(dtype) if isinstance(a, Tensor) else a for a in arguments]


def assert_finite_differences(call_of: Callable[[list[Any]], Call], arguments: Sequence[Any]) -> None:
    """Compare the gradients of the reference's outputs and final states by every tensor with finite differences.

    Args:
        call_of: makes the call from arguments like these.
        arguments: tensors of float64, and other parameters.
    """

    def results(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = iter(tensors)
        outputs, final = reference.run(call_of([next(values) if isinstance(a, Tensor) else a for a in arguments]))
        return outputs, *final

    assert torch.autograd.gradcheck(results, [a.requires_grad_() for a in arguments if isinstance(a, Tensor)])


def assert_losses_of_one_result(
    call_of: Callable[[list[Any], GradientTrace | None], Call],
    arguments: Sequence[Any],
    module: Any,
    dtype: torch.dtype,
    tolerance: float,
    traced: bool,
) -> None:
    """Compare a back end's gradients of the outputs alone, and of the final state alone, with the reference's."""
    for read in (0, 1):
        results = []
        for each, kind in ((module, dtype), (reference, torch.float64)):
            values = [a.detach().requires_grad_() if isinstance(a, Tensor) else a for a in cast(arguments, kind)]
            y, (final,) = each.run(call_of(values, GradientTrace() if traced else None))
            leaves = [value for value in values if isinstance(value, Tensor)]
            loss = (y, final)[read].square().sum()
            results.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
        for actual, expected in zip(*results, strict=True):
            assert float((actual.double() - expected).norm()) <= tolerance * (1 + float(expected.norm()))
