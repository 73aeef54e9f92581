"""The selective scan by PyTorch's kernels, one piece of the sequence at a time, for CUDA.

All states of a long sequence would need a hundred times the memory of its inputs, so forward only keeps the states
between pieces. Backward recomputes the states of each piece, from the last piece to the first. A piece itself runs in
about 2 sqrt(T) operations (`cuda.scan`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.scan import scan, scan_gradients
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.selective import selected, selective_scan

_SHORTEST = 64  # steps of the shortest piece


@kernel(selective_scan, "cuda")
class SelectiveScan(Kernel):
    """The kernel of `selective_scan`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (state,), outputs, starts = arguments.state, [], []
        for part in _pieces(len(x)):
            starts.append(state)
            a, driven, c = _terms(x[part], arguments.weight[part], arguments)
            states = _states(a, driven, state)
            outputs.append(_read(states, c) if arguments.parameters["reads"] else x[part, :, :0])
            state = states[-1]
        return (torch.cat(outputs),), (state.clone(), x, torch.stack(starts) if keep else None)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts = tape.saved
        assert x is not None
        assert starts is not None
        names = tuple(name for name, value in arguments.parameters.items() if isinstance(value, Tensor))
        vectors = [arguments.parameters[name].detach().requires_grad_() for name in names]
        dx, dweight = torch.empty_like(x), torch.empty_like(arguments.weight)
        sums = [torch.zeros_like(vector) for vector in vectors]
        later = torch.zeros_like(starts[0]) if tape.final[0] is None else tape.final[0]
        for part, start in reversed(list(zip(_pieces(len(x)), starts, strict=True))):
            inputs, weight = (each[part].detach().requires_grad_() for each in (x, arguments.weight))
            with torch.enable_grad():
                parameters = {**arguments.parameters, **dict(zip(names, vectors, strict=True))}
                a, driven, c = _terms(inputs, weight, Arguments(arguments.weight, arguments.state, parameters))
            flat = a.detach().flatten(-2)
            states = _states(a.detach(), driven.detach(), start)
            arriving = torch.zeros_like(states)
            by_c = torch.zeros_like(c)
            if tape.gradient is not None and arguments.parameters["reads"]:
                dy = tape.gradient[part].unsqueeze(-2)
                arriving = (c.detach() * dy).flatten(-2)
                by_c = (states.unflatten(-1, a.shape[-2:]) * dy).sum(-1, keepdim=True)
            arriving[-1] += later
            total, by_a, later = scan_gradients(arriving, states, flat, start)
            for norms in tape.norms:
                norms[part] = torch.linalg.vector_norm(total, dim=-1)
            shaped = [each.unflatten(-1, a.shape[-2:]) for each in (by_a, total)]
            gradients = torch.autograd.grad((a, driven, c), [inputs, weight, *vectors], (*shaped, by_c))
            dx[part], dweight[part] = gradients[:2]
            for sum_, each in zip(sums, gradients[2:], strict=True):
                sum_ += each
        return Gradients(dx, dweight, (later,), dict(zip(names, sums, strict=True)))


def _pieces(steps: int) -> Iterator[slice]:
    """Yield the steps of each piece, at least about sqrt(T), so that there are no more states between pieces."""
    length = max(_SHORTEST, math.isqrt(steps))
    return (slice(first, min(first + length, steps)) for first in range(0, steps, length))


def _terms(x: Tensor, weight: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """Return a and the driving terms `[T, B, N, D]`, and C `[T, B, N, 1]`."""
    parameters, size = arguments.parameters, arguments.parameters["state_size"]
    a, delta = selected(weight, **parameters)
    b, c = weight[..., -2 * size :].unsqueeze(-1).chunk(2, dim=-2)
    return a, b * (delta * x.unsqueeze(-2)), c


def _states(a: Tensor, driven: Tensor, start: Tensor) -> Tensor:
    return scan(driven.flatten(-2), a.flatten(-2), start)


def _read(states: Tensor, c: Tensor) -> Tensor:
    y: Tensor = (states.unflatten(-1, (c.shape[-2], -1)) * c).sum(-2)
    return y
