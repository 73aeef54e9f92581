"""The back end that differentiates the declared steps by autograd, in any float type and on any device.

All other back ends are tested against it, in value and in gradient.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orthobench.recurrence.any_length import has_any_length, scan_steps
from orthobench.recurrence.call import Call, Result, State
from orthobench.recurrence.plain_tensors import needs_torch

_LONG = 64  # steps from which on states that are larger than the outputs are computed twice


def unsupported(call: Call) -> str | None:
    """Return None, because this back end runs every call."""
    return None


def unusable(call: Call) -> str | None:
    """Return None, because this back end needs no kernels."""
    return None


def run(call: Call) -> Result:
    """Run all steps.

    A weight that is a function (FFTs) or has the numbers of sparse layers would keep tens of tensors of the state's
    size at each step. An operation whose outputs are not its state would keep several, of a larger state. In both cases
    only a few states are kept, and the backward pass recomputes the steps, one piece of the sequence at a time.
    Programs that are transformed or traced cannot recompute.
    """
    x = call.x
    assert isinstance(x, Tensor)
    if call.operation.weights is not None:
        call = replace(call, weight=call.operation.weights(x, call.weight, **call.parameters))
    if has_any_length(x):
        return scanned(call, x)
    weight = call.weight if isinstance(call.weight, Tensor) and call.operation.shape is None else None
    is_small = weight is not None and (call.operation.output is None or len(x) < _LONG)
    if is_small or call.trace is not None or not torch.is_grad_enabled() or needs_torch():
        return loop(call, x, *call.state)
    outputs, state, length = [], call.state, math.isqrt(len(x))
    pieces = x.split(length)
    weights = [call.weight] * len(pieces) if weight is None else weight.split(length)
    for piece, weight in zip(pieces, weights, strict=True):
        # Not reentrant, because that form cannot be differentiated by `torch.autograd.grad`.
        states, state = checkpoint(loop, replace(call, weight=weight), piece, *state, use_reentrant=False)
        outputs.append(states)
    return torch.cat(outputs), state


def loop(call: Call, x: Tensor, *state: Tensor) -> Result:
    """Run all steps on x from this state, one after another; the call's weight is what the steps take."""
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


def scanned(call: Call, x: Tensor) -> Result:
    """Run all steps as one operation of an exported program; see `any_length`."""
    make, output = functools.partial(call.operation.step, **call.parameters), call.operation.output
    weight = call.weight
    inputs: State = (x,)
    if isinstance(weight, Tensor) and (weight.dim() == 3 or output is not None):
        inputs = x, weight

    def step(state: State, inputs: State) -> tuple[State, Tensor]:
        x_t, w_t = inputs if len(inputs) == 2 else (*inputs, weight)
        state = make(w_t)(x_t, *state)
        return state, state[0] if output is None else output(x_t, w_t, *state, **call.parameters)

    return scan_steps(step, call.state, inputs)


def _all_states(call: Call, x: Tensor, *state: Tensor) -> list[State]:
    """Return the states after each step."""
    states: list[State] = []
    # Indexing x would make autograd write a zero tensor of x's size at each step.
    for x_t, step in zip(x.unbind(0), _steps(call), strict=False):
        state = step(x_t, *state)
        states.append(state)
    return states


def _steps(call: Call) -> Iterator[Callable[..., State]]:
    """Yield the function for each step: the same one endlessly, or one for each step's weight in `[T, B, width]`."""
    make = functools.partial(call.operation.step, **call.parameters)
    if isinstance(call.weight, Tensor) and call.weight.dim() == 3:
        return map(make, call.weight.unbind(0))
    return itertools.repeat(make(call.weight))
