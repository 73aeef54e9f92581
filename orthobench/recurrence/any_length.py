"""Steps in exported programs that accept sequences of any length.

`torch.export` unrolls a loop of Python into the steps of the sequence with which it traces a program. If the number of
steps is a symbol, `scan` runs the steps instead, which the program keeps as one operation and ONNX as a `Scan`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, ...]


def has_any_length(x: Tensor) -> bool:
    """Return whether the number of steps of x `[T, ...]` is the symbol of an exported program."""
    return isinstance(x.shape[0], torch.SymInt)


def scan_steps(
    step: Callable[[State, State], tuple[State, Tensor]], state: State, inputs: State
) -> tuple[Tensor, State]:
    """Run the steps of an exported program.

    Args:
        step: returns the next state and the output, for a state and the inputs of a step.
        state: the initial state, tensors `[B, features]`.
        inputs: tensors `[T, B, features]`.

    Returns:
        The outputs `[T, B, features]`, and the final state.
    """
    from torch._higher_order_ops.scan import scan  # slow to import, and only exports need it

    if not torch.compiler.is_dynamo_compiling():
        # Dynamo would try the steps of an earlier export first, and fix the sizes that it compares with theirs.
        torch.compiler.reset()
    widths, sizes = [each.shape[-1] for each in inputs], [each.shape[-1] for each in state]

    def combine(states: State, values: State) -> tuple[State, Tensor]:
        # Dynamo takes every size for a symbol here, and some steps compute with those of features.
        states, values = (
            tuple(each.reshape(-1, size) for each, size in zip(tensors, known, strict=True))
            for tensors, known in ((states, sizes), (values, widths))
        )
        states, output = step(states, values)
        return states, output.clone()  # a copy, because the results of `scan` must not share memory

    # Copies again, because one tensor for two states would become one of its inputs. Contiguous ones, because a part of
    # a single row keeps the strides of the whole row, and `scan` refuses a state with other strides than the next one.
    final, outputs = scan(combine, tuple(each.clone(memory_format=torch.contiguous_format) for each in state), inputs)
    return outputs, final


def latest(inputs: Tensor, steps: int) -> Tensor:
    """Return the last inputs, at most this many; all inputs of a program for any length.

    Their number would exclude shorter sequences from the program.
    """
    return inputs if has_any_length(inputs) else inputs[-steps:]


def previous_steps(x: Tensor) -> Tensor:
    """Return, for each step of x `[T, ...]`, the one before it, and zeros for the first.

    A part with one step less, `x[:-1]`, would exclude sequences of two steps from an exported program.
    """
    return torch.cat((torch.zeros_like(x[:1]), x))[:-1]


def next_steps(x: Tensor) -> Tensor:
    """Return, for each step of x `[T, ...]`, the one after it, and zeros for the last; see `previous_steps`."""
    return torch.cat((x, torch.zeros_like(x[:1])))[1:]
