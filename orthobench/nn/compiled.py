"""A cell as one opaque operation of a program that `torch.compile` compiles, because it cannot trace the kernels.

The operation `orthobench::run_cell` runs a cell and keeps the graph of autograd for its backward pass. The graph lives
as long as the memory of a ticket, a tensor that the compiled program keeps until its own backward pass. Autograd does
not record inside an operation of torch, so cells run in threads of their own.
"""

from __future__ import annotations

import contextvars
import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from orthobench.model import Model, State
from orthobench.nn.packed_sequences import run_cell


class _Run(nn.Module):
    """A module whose forward pass runs a cell."""

    def __init__(self, cell: Model) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, *arguments: Any) -> tuple[Tensor, State]:
        return run_cell(self.cell, *arguments)


_numbers = itertools.count(1)
_cells: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
_graphs: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
_threads: list[ThreadPoolExecutor] = []
if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_threads.clear)


def register(cell: nn.Module) -> Tensor:
    """Return a new number, by which operations find the cell while it exists.

    It is a tensor, because a compiled program is specialised to the value of an integer, but not to that of a tensor.
    All layers with the same sizes can therefore share a program.
    """
    number = next(_numbers)
    _cells[number] = cell
    return torch.tensor(number, dtype=torch.int64, device="cpu")


@torch.library.custom_op("orthobench::run_cell", mutates_args=())
def _operation(
    x: Tensor,
    state: Sequence[Tensor],
    parameters: Sequence[Tensor],
    batch_sizes: Tensor | None,
    cell: Tensor,
    reverse: bool,
    in_training: bool,
    features: int,
) -> list[Tensor]:
    is_inference = torch.is_inference_mode_enabled()  # of this thread alone

    def work() -> list[Tensor]:
        with torch.inference_mode(is_inference), torch.set_grad_enabled(in_training):
            inputs, outputs = _recorded(x, state, parameters, batch_sizes, cell, reverse)
        # Clones, because an operation of torch must not return its inputs or views of them.
        results = [each.detach().clone(memory_format=torch.contiguous_format) for each in outputs]
        return [*results, _ticket(inputs, outputs) if in_training else torch.zeros(1, dtype=torch.int64, device="cpu")]

    return _in_thread(work)


@_operation.register_fake
def _shapes(x: Tensor, state: Sequence[Tensor], *others: Any) -> list[Tensor]:
    *_, features = others
    outputs = x.new_empty(*x.shape[:-1], features)
    return [outputs, *(each.new_empty(each.shape) for each in state), torch.empty(1, dtype=torch.int64, device="cpu")]


@torch.library.custom_op("orthobench::run_cell_backward", mutates_args=())
def _backward_operation(
    ticket: Tensor,
    gradients: Sequence[Tensor],
    x: Tensor,
    state: Sequence[Tensor],
    parameters: Sequence[Tensor],
    batch_sizes: Tensor | None,
    cell: Tensor,
    reverse: bool,
) -> list[Tensor]:
    def work() -> list[Tensor]:
        kept = _graphs.get(int(ticket))
        inputs, outputs = kept or _recorded(x, state, parameters, batch_sizes, cell, reverse)
        used = [(each, gradient) for each, gradient in zip(outputs, gradients, strict=True) if each.requires_grad]
        results = torch.autograd.grad(
            [each for each, _ in used],
            inputs,
            [gradient for _, gradient in used],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return [each.clone(memory_format=torch.contiguous_format) for each in results]

    return _in_thread(work)


@_backward_operation.register_fake
def _backward_shapes(
    ticket: Tensor, gradients: Any, x: Tensor, state: Sequence[Tensor], parameters: Sequence[Tensor], *_: Any
) -> list[Tensor]:
    return [each.new_empty(each.shape) for each in (x, *state, *parameters)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, state, parameters, batch_sizes, cell, ctx.reverse, _, _ = inputs
    ctx.count, ctx.with_sizes = len(state), batch_sizes is not None
    ctx.save_for_backward(output[-1], cell, x, *state, *parameters, *([] if batch_sizes is None else [batch_sizes]))


def _backward(ctx: Any, gradients: Sequence[Tensor]) -> Any:
    ticket, cell, x, *tensors = ctx.saved_tensors
    batch_sizes = tensors.pop() if ctx.with_sizes else None
    state, parameters = tensors[: ctx.count], tensors[ctx.count :]
    dx, *others = _backward_operation(ticket, gradients[:-1], x, state, parameters, batch_sizes, cell, ctx.reverse)
    return dx, others[: ctx.count], others[ctx.count :], None, None, None, None, None


_operation.register_autograd(_backward, setup_context=_keep)


def run_opaque(
    cell: nn.Module, number: Tensor, x: Tensor, state: State, batch_sizes: Tensor | None, reverse: bool, features: int
) -> tuple[Tensor, State]:
    """Run a cell as one operation, like `run_cell`; `features` is the number of those that it returns."""
    parameters = list(cell.parameters())
    in_training = torch.is_grad_enabled() and any(each.requires_grad for each in (x, *state, *parameters))
    outputs, *final, _ = _operation(x, list(state), parameters, batch_sizes, number, reverse, in_training, features)
    return outputs, tuple(final)


def _recorded(
    x: Tensor,
    state: Sequence[Tensor],
    parameters: Sequence[Tensor],
    batch_sizes: Tensor | None,
    cell: Tensor,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Run a cell; return copies of its inputs, state and parameters, and its results.

    With gradients enabled, the results are functions of the copies.
    """
    inputs = [each.detach().requires_grad_(torch.is_grad_enabled()) for each in (x, *state, *parameters)]
    run = _Run(cast(Model, _cells[int(cell)]))
    values = dict(zip((name for name, _ in run.named_parameters()), inputs[1 + len(state) :], strict=True))
    arguments = inputs[0], tuple(inputs[1 : 1 + len(state)]), batch_sizes, reverse
    outputs, final = torch.func.functional_call(run, values, arguments)
    return inputs, [outputs, *final]


def _ticket(inputs: list[Tensor], outputs: list[Tensor]) -> Tensor:
    """Return a tensor whose number finds the graph while the tensor's memory exists."""
    number = next(_numbers)
    memory = np.array([number])
    _graphs[number] = inputs, outputs
    weakref.finalize(memory, _graphs.pop, number).atexit = False
    return torch.from_numpy(memory)


def _in_thread(work: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Return the result of a function that runs in another thread, with the context of this one."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(thread_name_prefix="compiled"))
    return _threads[0].submit(contextvars.copy_context().run, work).result()
