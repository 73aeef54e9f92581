"""The back end that differentiates the declared steps by autograd: in any float type, on any device.

All other back ends are tested against it, in value and in gradient. In a meeting of runs, the steps of all runs are
batched operations of torch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orthobench.recurrence import kernels, meeting
from orthobench.recurrence.call import Call, Result, State
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape

if TYPE_CHECKING:
    from orthobench.recurrence.operation import Operation


_LONG = 64  # steps from which states that are larger than the outputs are computed twice


def unsupported(call: Call) -> str | None:
    """Return None: this back end serves every call."""
    return None


def unusable(call: Call) -> str | None:
    """Return None: this back end needs no kernels."""
    return None


def run(call: Call) -> Result:
    """Run all steps.

    A weight that is applied (FFTs, rotations) would keep tens of tensors of the state's size at each step. An operation
    with outputs of its own would keep several, of a larger state. Only a few states of both are kept. The backward pass
    computes the steps again, a piece of the sequence at a time.
    """
    assert isinstance(call.x, Tensor)
    if meeting.is_on() and isinstance(call.weight, Tensor) and call.trace is None and call.operation.output is None:
        return kernels.run(cast(type[Kernel], _batched(call.operation)), call)
    is_small = isinstance(call.weight, Tensor) and (call.operation.output is None or len(call.x) < _LONG)
    if is_small or call.trace is not None or not torch.is_grad_enabled():
        return _loop(call, call.x, *call.state)
    outputs, state, length = [], call.state, math.isqrt(len(call.x))
    pieces = call.x.split(length)
    weights = call.weight.split(length) if isinstance(call.weight, Tensor) else [call.weight] * len(pieces)
    for piece, weight in zip(pieces, weights, strict=True):
        states, state = checkpoint(_loop, replace(call, weight=weight), piece, *state, use_reentrant=False)
        outputs.append(states)
    return torch.cat(outputs), state


@functools.cache
def _batched(operation: Operation[...]) -> _Batched:
    return _Batched(operation)


class _Batched:
    """The steps of one run or of several. The backward pass runs the steps again, under autograd."""

    takes_runs = True
    run_tolerance = 1e-4
    """Batched products round otherwise, and each step carries the difference on."""

    def __init__(self, operation: Operation[...]) -> None:
        self.operation = operation

    def forward(self, x: Tensor, arguments: Arguments, keep: bool) -> tuple[State, tuple[Tensor | None, ...]]:
        states = self._states(x, arguments)
        return states, (x,) if keep else ()

    def backward(self, arguments: Arguments, tape: Tape) -> Gradients:
        (x,) = tape.saved
        assert x is not None
        names = tuple(name for name, value in arguments.parameters.items() if isinstance(value, Tensor))
        vectors = (arguments.parameters[name] for name in names)
        leaves = [t.detach().requires_grad_() for t in (x, arguments.weight, *arguments.state, *vectors)]
        x, weight, *others = leaves
        width = len(arguments.state)
        parameters = {**arguments.parameters, **dict(zip(names, others[width:], strict=True))}
        with torch.enable_grad():
            states = self._states(x, Arguments(weight, tuple(others[:width]), parameters))
            final = [each.select(-3, -1) for each in states]
        pairs = [(states[0], tape.gradient), *zip(final, tape.final, strict=True)]
        outputs, gradients = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
        from_autograd = torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
        dx, dweight, *rest = (
            torch.zeros_like(t) if g is None else g for t, g in zip(leaves, from_autograd, strict=True)
        )
        return Gradients(dx, dweight, tuple(rest[:width]), dict(zip(names, rest[width:], strict=True)))

    def _states(self, x: Tensor, arguments: Arguments) -> State:
        """Return every state at every step, `[T, B, n]` or `[runs, T, B, n]`."""
        vectors = {name: value for name, value in arguments.parameters.items() if isinstance(value, Tensor)}

        def states(x: Tensor, weight: Tensor, state: State, vectors: dict[str, Tensor]) -> State:
            call = Call(self.operation, x, weight, state, {**arguments.parameters, **vectors})
            return tuple(map(torch.stack, zip(*_all_states(call, x, *state), strict=True)))

        result: State = (torch.func.vmap(states) if x.dim() == 4 else states)(
            x, arguments.weight, arguments.state, vectors
        )
        return result


def _loop(call: Call, x: Tensor, *state: Tensor) -> Result:
    states = _all_states(call, x, *state)
    if call.trace is not None:
        for name, tensors in zip(call.operation.traced_states, zip(*states, strict=True), strict=False):
            call.trace.watch(name, tensors)
    output = call.operation.output
    if output is None:
        return torch.stack([first for first, *_ in states]), states[-1]
    assert isinstance(call.weight, Tensor)
    parts = zip(x.unbind(0), call.weight.unbind(0), states, strict=True)
    return torch.stack([output(x_t, w_t, *state, **call.parameters) for x_t, w_t, state in parts]), states[-1]


def _all_states(call: Call, x: Tensor, *state: Tensor) -> list[State]:
    """Return the states after each step."""
    states: list[State] = []
    # indexing x would make autograd write a zero tensor of x's size at each step
    for x_t, step in zip(x.unbind(0), _steps(call), strict=False):
        state = step(x_t, *state)
        states.append(state)
    return states


def _steps(call: Call) -> Iterator[Callable[..., State]]:
    """Yield the step of each time: the same one without end, or one for each part of a weight `[T, B, width]`."""
    make = functools.partial(call.operation.step, **call.parameters)
    if isinstance(call.weight, Tensor) and call.weight.dim() == 3:
        return map(make, call.weight.unbind(0))
    return itertools.repeat(make(call.weight))
