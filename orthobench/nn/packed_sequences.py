"""Run a cell over a batch, also over a packed one: sequences of different lengths, without steps on padding.

A packed batch holds the sequences in order of decreasing length, `batch_sizes[t]` of them at step t. Successive steps
of equal batch size run in one call. All these calls share one recurrent matrix.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from orthobench.model import Model, State

RunCell = Callable[[Tensor, State], tuple[Tensor, State]]
"""Runs a cell over inputs `[T, B, m]` from a state, and returns outputs `[T, B, n]` and the final state."""


def run_cell(cell: Model, x: Tensor, start: State, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
    """Run a cell over one direction; return the features that the next layer reads, and the final state.

    Args:
        cell: the cell.
        x: the inputs, `[T, B, m]`, or `[sum of batch_sizes, m]`.
        start: the initial state of every sequence, tensors `[B, features]`.
        batch_sizes: the number of sequences at each step of a packed batch, `[T]`, or None.
        reverse: whether the sequences run from their last step to their first.
    """
    if batch_sizes is not None:
        cell = _with_one_matrix(cell)

    def run(inputs: Tensor, state: State) -> tuple[Tensor, State]:
        outputs, final = cell.states(inputs, state, None)
        return cell.readout(outputs, final), final

    if batch_sizes is not None:
        return run_packed(run, x, batch_sizes, start, reverse)
    outputs, final = run(x.flip(0) if reverse else x, start)
    return outputs.flip(0) if reverse else outputs, final


def _with_one_matrix(cell: Model) -> Model:
    """Return a copy of a cell with the same parameters, which computes each recurrent matrix once.

    It is a copy, because the cell itself may be running in another thread, with or without gradients.
    """
    copied = copy.copy(cell)
    copied.__dict__.update({name: functools.cache(getattr(cell, name)) for name in cell.matrix_methods})
    return copied


def run_packed(run: RunCell, data: Tensor, batch_sizes: Tensor, start: State, reverse: bool) -> tuple[Tensor, State]:
    """Run a cell over a packed batch, each sequence from its first step to its last, or in reverse.

    Args:
        run: the function that runs the cell.
        data: the inputs of all steps, `[sum of batch_sizes, m]`.
        batch_sizes: the number of sequences at each step, `[T]`.
        start: the initial state of every sequence, tensors `[B, features]`.
        reverse: whether the sequences run from their last step to their first.

    Returns:
        The outputs in the order of `data`, and the final state of every sequence, tensors `[B, features]`.
    """
    pieces = list(_pieces(data, batch_sizes))
    return _backward(run, pieces, start) if reverse else _forward(run, pieces, start)


def _pieces(data: Tensor, batch_sizes: Tensor) -> Iterator[Tensor]:
    """Yield the inputs `[steps, B, m]` of successive steps with equal batch sizes."""
    sizes, steps = torch.unique_consecutive(batch_sizes, return_counts=True)
    lengths = (sizes * steps).tolist()
    for piece, size in zip(data.split(lengths), sizes.tolist(), strict=True):
        yield piece.unflatten(0, (-1, size))


def _forward(run: RunCell, pieces: list[Tensor], start: State) -> tuple[Tensor, State]:
    outputs, state = [], start
    ended: list[list[Tensor]] = [[] for _ in start]  # per tensor, the final rows of sequences that have ended
    for piece in pieces:
        size = piece.shape[1]
        for rows, tensor in zip(ended, state, strict=True):
            rows.append(tensor[size:])
        output, state = run(piece, tuple(tensor[:size] for tensor in state))
        outputs.append(output.flatten(0, 1))
    final = (torch.cat((tensor, *reversed(rows))) for rows, tensor in zip(ended, state, strict=True))
    return torch.cat(outputs), tuple(final)


def _backward(run: RunCell, pieces: list[Tensor], start: State) -> tuple[Tensor, State]:
    outputs: list[Tensor] = []
    state = tuple(tensor[:0] for tensor in start)
    for piece in reversed(pieces):
        size = piece.shape[1]
        state = tuple(torch.cat((now, first[len(now) : size])) for now, first in zip(state, start, strict=True))
        output, state = run(piece.flip(0), state)
        outputs.append(output.flip(0).flatten(0, 1))
    return torch.cat(outputs[::-1]), state
