"""The output map y_t = V h_t + c of a recurrence's states, which the loops compute in value and gradient.

As a separate product, dL/dh, which is as large as all states, would be written to memory and read again. The backward
loop instead computes it step by step as one more product, and dL/dV while the states are in the cache. The forward loop
computes y if the map is announced beforehand (`reading`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence import kernels, stopwatch
from orthobench.recurrence.cpu import native, workspace
from orthobench.recurrence.kernels import Arguments, Tape
from orthobench.recurrence.projection import project


def read(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return y = V h + c, as `torch.nn.functional.linear`, in value and gradient.

    The states may be the outputs of a C recurrence that projects its inputs. The gradient then goes from y directly to
    the recurrence's arguments, so a hook on the outputs does not see it.

    Args:
        states: h `[T, B, n]`, or with another number of axes.
        weight: V `[p, n]`.
        bias: c `[p]`.

    Returns:
        y `[T, B, p]`, or `[..., p]`.
    """
    if not (_is_in_c(weight, bias) and states.shape[-1:] == weight.shape[1:] and _is_output_of_a_loop(states)):
        return project(states, weight, bias, part=stopwatch.READOUT)
    return joined(states, weight, bias)


def joined(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return y = V h + c for the outputs `[T, B, n]` of a loop that `reads`; backward computes the gradient."""
    loop = kernels.source(states)
    recurrent, *tensors = loop.saved_tensors
    count = loop.width + len(loop.names)
    results = tuple(None if each is None else each.detach() for each in tensors[count:])
    arguments = (recurrent, *tensors[:count], weight, bias)
    with stopwatch.part(stopwatch.READOUT):
        y_of_loop = None if loop.reading is None else loop.reading.take(weight, bias)
        y: Tensor = _Read.apply(loop.kernel, loop.parameters, loop.names, loop.width, results, y_of_loop, *arguments)
    return y


def reading(weight: Tensor, bias: Tensor) -> AbstractContextManager[None]:
    """Return a context for recurrences whose outputs of all steps `read` will later map by V `[p, n]` and c `[p]`.

    A C recurrence that projects its inputs computes y along with its states, while they are in the cache. `read` uses
    this y if V and c are still the same.
    """
    return kernels.expect(weight, bias) if _is_in_c(weight, bias) else nullcontext()


def _is_in_c(weight: Tensor, bias: Tensor) -> bool:
    """Return whether a loop in C may compute an output map with these tensors, in value and gradient."""
    return torch.is_grad_enabled() and native.serves("readout", "p n, p", weight, bias)


def _is_output_of_a_loop(states: Tensor) -> bool:
    """Return whether the states are the outputs of a loop whose backward pass can compute this gradient."""
    loop: Any = kernels.source(states)
    return loop is not None and kernels.may_read(loop.kernel, loop.names, loop.norms)


class _Read(Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernel: type[kernels.Kernel],
        parameters: dict[str, Any],
        names: tuple[str, ...],
        width: int,
        results: tuple[Tensor | None, ...],
        y_of_loop: Tensor | None,
        *arguments: Tensor,
    ) -> Tensor:
        """Return y, which is `y_of_loop` unless that is None.

        `arguments` are W, the initial state, the parameters called `names`, V and c. `results` are the states of all
        steps and everything else that the forward pass saved.
        """
        *_, weight, bias = arguments
        ctx.kernel, ctx.parameters, ctx.names, ctx.width, ctx.count = kernel, parameters, names, width, len(arguments)
        ctx.save_for_backward(*arguments, *results)
        h = results[0]
        assert h is not None
        if y_of_loop is not None:
            return y_of_loop
        y = workspace.take(*h.shape[:2], len(weight))
        return native.linear(h, native.pack(weight.contiguous()), bias.contiguous(), y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        recurrent, *others = ctx.saved_tensors[: ctx.count - 2]
        weight, results = ctx.saved_tensors[ctx.count - 2].contiguous(), ctx.saved_tensors[ctx.count :]
        state, vectors = others[: ctx.width], dict(zip(ctx.names, others[ctx.width :], strict=True))
        dy = dy.contiguous()
        tape = Tape(
            states=tuple(results[: ctx.width]),
            saved=tuple(results[ctx.width :]),
            gradient=None,
            final=(None,) * ctx.width,
            norms=(),
            needs_weight=ctx.needs_input_grad[6],
            reading=(dy, weight),
        )
        result = ctx.kernel.backward(Arguments(recurrent, tuple(state), {**ctx.parameters, **vectors}), tape)
        with stopwatch.part(stopwatch.READOUT):
            constant, dweight = dy.new_ones(*dy.shape[:2], 1), result.parameters["output_weight"]
            if dweight is None:
                sums = native.outer_sums(dy, results[0], None, constant)
                n = results[0].shape[-1]
                dweight, dbias = sums[:, :n].contiguous(), sums[:, n].contiguous()
            else:
                dbias = native.outer_sums(dy, constant, None)[:, 0].contiguous()
        by_name = (result.parameters.get(name) for name in ctx.names)
        return *(None,) * 6, result.weight, *result.state, *by_name, dweight, dbias
