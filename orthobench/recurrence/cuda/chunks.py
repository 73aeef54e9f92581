"""Recurrences whose state is a memory for each head, computed one chunk of steps at a time.

All chunks run at once as a batch; only the memories between them are recurrent. So a trace needs few steps as well: the
gradients at the ends of the chunks come from the backward pass, and the reference then runs through all chunks at once.
Steps of zeros fill the last chunk. They leave a memory as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, GradientTrace


def folded(tensor: Tensor, length: int) -> Tensor:
    """Return `[T, ...]` as `[chunks, length, ...]`, with steps of zeros at the end."""
    rest = -len(tensor) % length
    padded = pad(tensor, (*(0,) * (2 * tensor.dim() - 1), rest)) if rest else tensor
    parts: Tensor = padded.unflatten(0, (-1, length))
    return parts


def cut(tensor: Tensor, length: int) -> Tensor:
    """Return features of heads `[T, B, heads, features]` as `[chunks, B, heads, length, features]`."""
    return folded(tensor, length).permute(0, 2, 3, 1, 4)


def joined(tensor: Tensor, steps: int) -> Tensor:
    """Return `[chunks, B, heads, length, features]` as `[T, B, heads * features]`, without the steps added by `cut`."""
    return tensor.permute(0, 3, 1, 2, 4).flatten(0, 1)[:steps].flatten(2)


def watch(call: Call, outputs: Tensor, memories: Sequence[Tensor], length: int) -> None:
    """Let the backward pass fill the call's trace, if it has one.

    Args:
        call: its weight is `[T, B, width]`, and its state the memory before the first step.
        outputs: `[T, B, outputs]`.
        memories: the memory `[B, *]` after each chunk.
        length: the steps of a chunk.
    """
    trace = call.trace
    if trace is None:
        return
    assert isinstance(call.x, Tensor)
    assert isinstance(call.weight, Tensor)
    (norms,), (start,) = trace.expect(call.x, call.operation.traced_states), call.state
    starts = torch.cat([memory.detach().reshape(len(start), -1) for memory in (start, *memories[:-1])])
    parts = [folded(each.detach(), length) for each in (call.x, call.weight)]
    x, weight = (each.transpose(0, 1).flatten(1, 2) for each in parts)  # [length, chunks * B, *]

    def fill(gradients: Sequence[Tensor | None]) -> None:
        by_output, *by_memory = gradients
        ends = [torch.zeros_like(start) if each is None else each.reshape(start.shape) for each in by_memory]
        arriving = torch.zeros_like(outputs) if by_output is None else by_output
        arriving = folded(arriving, length).transpose(0, 1).flatten(1, 2)
        with torch.enable_grad():
            own, inner = starts.requires_grad_(), GradientTrace()
            parameters = {
                name: value.detach() if isinstance(value, Tensor) else value for name, value in call.parameters.items()
            }
            y, (end,) = reference.loop(replace(call, weight=weight, parameters=parameters, trace=inner), x, own)
            pairs = [(end, torch.cat(ends)), *([(y, arriving)] if y.requires_grad else [])]
            results, directions = zip(*pairs, strict=True)
            torch.autograd.grad(results, own, directions)
        by_chunk = inner.norms["h"].unflatten(1, (-1, len(start))).transpose(0, 1).flatten(0, 1)
        norms.copy_(by_chunk[: len(norms)])

    is_reached = [each.requires_grad for each in (outputs, *memories)]  # without readings, the outputs are empty inputs
    reached = [each for each, needed in zip((outputs, *memories), is_reached, strict=True) if needed]
    if reached:

        def fill_from(gradients: Sequence[Tensor | None]) -> None:
            arrived = iter(gradients)
            fill([next(arrived) if needed else None for needed in is_reached])

        torch.autograd.graph.register_multi_grad_hook(reached, fill_from)
