"""Products of matrices by the C library, and the order in which it packs them."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from orthobench.recurrence import threads, workspace
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu.call_c import SMALL, pointer


def with_bias(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return inputs `[T, B, m]` and weight `[width, m]`, with the bias as the weight of an additional input 1."""
    if bias is None:
        return inputs, weight
    constant = inputs.new_ones(*inputs.shape[:2], 1)
    return torch.cat((inputs, constant), dim=-1), torch.cat((weight, bias[:, None]), dim=1)


def pack(weight: Tensor, gates: int = 1) -> Tensor:
    """Pack W `[gates * n, depth]` for h W^T; see `pack` in dense.c."""
    return _packed(weight, weight.shape[0] // gates, weight.shape[1], weight.stride(0), weight.stride(1), gates)


def pack_transposed(weight: Tensor, gates: int = 1) -> Tensor:
    """Pack W `[depth, gates * n]` for dz W."""
    return _packed(weight, weight.shape[1] // gates, weight.shape[0], weight.stride(1), weight.stride(0), gates)


def _packed(weight: Tensor, n: int, depth: int, output_stride: int, input_stride: int, gates: int) -> Tensor:
    packed = workspace.take(padded(n) * gates * depth)
    address = pointer(weight, strided=True)
    call_c.kernels().pack(packed.data_ptr(), address, n, depth, output_stride, input_stride, gates)
    return packed


def linear(rows: Tensor, packed: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Fill `out` `[..., n]` with rows W^T + b, for contiguous rows `[..., depth]`; W is packed; b is `[n]` or None."""
    depth, n = rows.shape[-1], out.shape[-1]
    count = rows.numel() // depth
    arguments = count, depth, n, pointer(rows), pointer(packed), pointer(bias), pointer(out)
    ranges = threads.ranges(count, torch.get_num_threads() if count * depth * n > SMALL else 1)
    threads.run_all([functools.partial(call_c.kernels().linear, *each, *arguments) for each in ranges])
    return out


def weight_gradient(dz: Tensor, states: Tensor, initial: Tensor | None, out: Tensor | None = None) -> Tensor:
    """Return the sum over t and batch of dz_t^T state_{t-1}, or without an initial state of dz_t^T state_t.

    dz is `[T, B, width]`, possibly with strided rows; the result is `[width, n]`.
    """
    sums = outer_sums(dz, states, initial)[:, : states.shape[-1]]
    return sums.contiguous() if out is None else out.copy_(sums)


def outer_sums(dz: Tensor, states: Tensor, initial: Tensor | None, inputs: Tensor | None = None) -> Tensor:
    """Return the sum over t and batch of dz_t^T [state_{t-1}, u_t], or without an initial state of dz_t^T state_t.

    dz is `[T, B, width]`, possibly with strided rows, u is `[T, B, m]`; the result is `[width, padded(n + m)]`. If a
    sum fits the cache, the steps are divided into ranges, which depend only on the sizes, and their sums are added in
    order. For larger sums the columns of dz are divided among the threads, which does not change any sum.
    """
    library = call_c.kernels()
    steps, batch, width = dz.shape
    n, m, rows = states.shape[-1], 0 if inputs is None else inputs.shape[-1], steps * batch
    row_length = dz.stride(1) if batch > 1 else dz.stride(0)  # the stride of an axis of length 1 is arbitrary
    by_columns = not fits_cache(width, n + m)
    segments = threads.ranges(rows, 1 if by_columns else min(16, max(1, rows * width * n // SMALL)))
    columns, length = threads.ranges(width, torch.get_num_threads() if by_columns else 1), padded(n + m)
    partial_sums = dz.new_empty(len(segments), width, length)
    shift = 0 if initial is None else batch
    left, out = pointer(dz, strided=True), pointer(partial_sums)
    right = pointer(states), pointer(initial), pointer(inputs)
    assert left is not None
    assert out is not None

    def run(index: int, first: int, last: int, start: int, stop: int) -> None:
        source, target = left + 4 * start, out + 4 * (index * width + start) * length
        sizes = first, last, shift, stop - start, n, m
        if library.weight_gradient(*sizes, source, row_length, *right, target):
            raise MemoryError("weight_gradient")

    tasks = [(index, *segment, *each) for index, segment in enumerate(segments) for each in columns]
    threads.run_all([functools.partial(run, *task) for task in tasks])
    return joined_sums(partial_sums)


def fits_cache(width: int, columns: int) -> bool:
    """Return whether a sum of outer products `[width, columns]` stays in a core's cache."""
    return width * columns <= 1 << 17


def padded(columns: int) -> int:
    """Return the columns rounded up to whole vectors."""
    lanes = call_c.kernels().lanes
    return -(-columns // lanes) * lanes


def joined_sums(partial_sums: Tensor, first: int = 0, count: int | None = None) -> Tensor:
    """Return the sum of the ranges' weight gradients `[ranges, ..., columns]`, always in the same order.

    Args:
        first: the first column that is wanted.
        count: the number of columns; None for all.
    """
    columns = partial_sums.shape[-1]
    count = columns - first if count is None else count
    if partial_sums.shape[0] == 1:
        return partial_sums[0, ..., first : first + count].contiguous()
    out = partial_sums.new_empty(*partial_sums.shape[1:-1], count)
    address = pointer(partial_sums)
    assert address is not None
    rows = partial_sums.numel() // (partial_sums.shape[0] * columns)
    call_c.kernels().add_partial_sums(partial_sums.shape[0], rows, columns, count, address + 4 * first, pointer(out))
    return out
