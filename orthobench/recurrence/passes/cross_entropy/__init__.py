"""The cross-entropy of classes at all steps, equal to `torch.nn.functional.cross_entropy` in value and gradient.

On the CPU, one pass over the logits computes both. With the nine classes of the copying problem, torch takes nine times
as long, which is a tenth of a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from orthobench.recurrence import first_derivative, plain_tensors, threads, workspace
from orthobench.recurrence.cpu import call_c

_NUMBERS_PER_RANGE = 1 << 16  # logits per range; the division depends only on the sizes


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log softmax(logits)[target] in nats, over all but the last axis.

    Args:
        logits: `[..., classes]`.
        targets: class numbers `[...]`, int64. There is no number for a target to be ignored.

    Raises:
        IndexError: a target is not one of the classes.
        ValueError: the shapes do not fit.
    """
    if targets.shape != logits.shape[:-1]:
        raise ValueError(f"targets {list(targets.shape)} should be {list(logits.shape[:-1])}, as the logits' rows")
    logits, targets = logits.flatten(0, -2), targets.flatten()
    fit = targets.dtype is torch.int64 and targets.device == logits.device and plain_tensors.are_plain((targets,))
    if not (fit and call_c.serves("rows classes", logits)):
        return torch.nn.functional.cross_entropy(logits, targets)
    result: Tensor = _CrossEntropy.apply(logits, targets)
    return result


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        gradient = workspace.take(*logits.shape) if ctx.needs_input_grad[0] else None
        out = logits.new_tensor(mean(logits.contiguous(), targets.contiguous(), gradient))
        # With the result, because the refusal of second derivatives has to reach the logits through a saved tensor.
        ctx.save_for_backward(*([] if gradient is None else [gradient, out]))
        return out

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, None]:
        gradient, _ = saved
        # Most losses come with 1, and are not multiplied, because that would be one more pass over all logits.
        return (gradient if factor == 1 else factor * gradient), None


def mean(logits: Tensor, targets: Tensor, gradient: Tensor | None) -> float:
    """Compute the mean and write its gradient."""
    rows, classes = logits.shape
    kernel = call_c.bind(
        "cross_entropy", classes=classes, scale=1 / rows, logits=logits, targets=targets, gradient=gradient
    )
    ranges = threads.ranges(rows, -(-logits.numel() // _NUMBERS_PER_RANGE))
    sums = [0.0] * len(ranges)

    def task(index: int, first: int, last: int) -> Callable[[], None]:
        def run() -> None:
            sums[index] = kernel(first, last)

        return run

    threads.run_all([task(index, *range_) for index, range_ in enumerate(ranges)])
    if -1.0 in sums:
        raise MemoryError("cross_entropy")
    if -2.0 in sums:
        raise IndexError(f"a target is outside of [0, {classes})")
    return sum(sums) / rows
