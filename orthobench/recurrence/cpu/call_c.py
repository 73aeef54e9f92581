"""Call the C library: tensors as pointers, the rows of a batch in ranges, the loops of `dense.h`.

No result depends on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import plain_tensors, threads, timing
from orthobench.recurrence.cpu import library, signatures

SMALL = 2_000_000  # multiplications; below, starting a thread costs more than it saves
CACHED = 1 << 20  # bytes of a packed matrix that stays in a core's cache; a larger one is read once for all batch rows
_FORWARD_ROWS, _BACKWARD_ROWS = 32, 25  # batch rows whose states of a few steps stay in a core's cache
_NARROW_FORWARD_ROWS, _NARROW_BACKWARD_ROWS = 64, 40
"""The same with vectors narrower than AVX-512's, which are slower the more blocks of rows are not full (`tile`)."""

_NUMBERS_PER_RANGE = 1 << 15  # in the rows of a pass; with fewer, starting a range costs more than it saves
_MOST_RANGES = 8  # of the rows of a pass
_NUMBERS = frozenset({int, float, bool, type(None)})  # the types of most arguments that are no tensor
_SUMS = 1 << 20  # bytes of all groups' weight gradients; with more, a backward block has half the rows


@functools.cache
def missing() -> str | None:
    """Return the reason why there are no C kernels for this processor, with the fix, or None."""
    try:
        kernels()
    except library.MissingError as error:
        return str(error)
    return None


def serves(layout: str, *tensors: Tensor | None) -> bool:
    """Return whether the C kernel of a pass such as `project` runs on these tensors; None counts as no tensor.

    They run on nonempty plain float32 tensors on the CPU, unless only torch's operations are used. The kernels trust
    their sizes, so tensors with other shapes go to torch, which broadcasts them or reports what is wrong.

    Args:
        layout: the axes of each tensor; a size has the same name everywhere. "T B m, n m, 2n" stands for `[T, B, m]`,
            `[n, m]` and `[2n]`; "... n" has any number of axes before the last, the same ones everywhere.
        tensors: in the order of the layout, in any strides.
    """
    for each in tensors:
        if each is not None and not (each.is_cpu and each.dtype is torch.float32 and each.numel()):
            return False
    if not plain_tensors.are_plain(tensors) or plain_tensors.in_torch():
        return False
    return _fits(layout, *[None if each is None else each.shape for each in tensors]) and not missing()


@functools.lru_cache(maxsize=1000)
# Cached, because a training step asks for the same shapes each time.
def _fits(layout: str, *shapes: tuple[int, ...] | None) -> bool:
    """Return whether tensors of these shapes, or None, have the layout; see `serves`."""
    sizes: dict[str, Any] = {}
    for axes, shape in zip(_axes(layout), shapes, strict=True):
        if shape is None:
            continue
        if axes[0][1] == "...":
            axes, leading = axes[1:], shape[: 1 - len(axes)]
            if sizes.setdefault("...", leading) != leading:
                return False
            shape = shape[len(leading) :]
        if len(shape) != len(axes):
            return False
        for (factor, name, shift), length in zip(axes, shape, strict=True):
            if length != factor * sizes.setdefault(name, (length - shift) // factor) + shift:
                return False
    return True


@functools.cache
def _axes(layout: str) -> list[list[tuple[int, str, int]]]:
    """Return the axes of each tensor of a layout: a factor, the size's name and an addend."""
    axes = []
    for tensor in layout.split(","):
        parts = [re.fullmatch(r"(\d*)(\w+|\.\.\.)(-\d+)?", axis) for axis in tensor.split()]
        axes.append([(int(part[1] or 1), part[2], int(part[3] or 0)) for part in parts if part is not None])
    return axes


def pointer(tensor: Tensor | None, dtype: torch.dtype = torch.float32, strided: bool = False) -> int | None:
    """Return the address of a tensor that a kernel reads or writes, or None for NULL.

    Args:
        tensor: contiguous, unless the kernel receives its strides.
        dtype: the type of the kernel's argument.
        strided: whether the kernel receives the strides.

    Raises:
        TypeError: the kernel would read or write memory outside the tensor.
    """
    if tensor is None:
        return None
    if tensor.dtype is not dtype or not tensor.is_cpu or not (strided or tensor.is_contiguous()):
        actual = f"{tensor.dtype} on {tensor.device} with strides {tensor.stride()}"
        raise TypeError(f"a C kernel takes contiguous {dtype} on the CPU, not {actual}")
    return tensor.data_ptr() or _empty(tensor)


def _empty(tensor: Tensor) -> int | None:
    """Return NULL for a tensor that has no numbers.

    Raises:
        TypeError: it has numbers, but no memory.
    """
    if tensor.numel():
        raise TypeError(f"a C kernel takes tensors in memory, not {type(tensor).__name__} {list(tensor.shape)} without")
    return None


@functools.cache
def kernels() -> library.Library:
    """Return the library for this processor.

    Raises:
        MissingError: it cannot be used.
    """
    return library.load()


def bind(function: str, /, **arguments: Any) -> Callable[..., Any]:
    """Return a kernel as a function of a range [first, last), and of the arguments that are missing here, by name.

    Args:
        function: its name in C. It takes the arguments as parameters after the range, or in a structure before it.
        arguments: numbers and contiguous tensors; None is NULL, and so is what a structure is not given.

    Raises:
        TypeError: an argument is unknown, or the kernel would read or write other memory than a tensor's.
    """
    structure, known = _interface_of(function)
    kernel, passed = getattr(kernels(), function), _passed(function, known, arguments)
    names = [] if structure else [*known][2:]
    shared = ctypes.byref(structure(**passed)) if structure else None

    def run(first: int, last: int, **own: Any) -> Any:
        values = passed | _passed(function, known, own) if own else passed
        if structure:
            return kernel(ctypes.byref(structure(**values)) if own else shared, first, last)
        return kernel(first, last, *[values[name] for name in names])

    run.arguments = arguments  # type: ignore[attr-defined]  # keeps them alive while their addresses are used
    return run


@functools.cache
def _interface_of(function: str) -> tuple[type[ctypes.Structure] | None, dict[str, torch.dtype | None]]:
    """Return the structure that a kernel takes, or None, and the tensors' types of its fields or of all parameters.

    The type of a number is None.
    """
    parameters = signatures.signature(function).parameters
    struct = next((each.struct for each in parameters.values() if each.struct), None)
    values = parameters if struct is None else signatures.fields(struct)
    known = {name: value.dtype for name, value in values.items()}
    return None if struct is None else signatures.structure(struct), known


def run_rows(
    function: str, rows: int, width: int, sums: Mapping[str, Sequence[int]] | None = None, /, **arguments: Any
) -> dict[str, Tensor]:
    """Run a pass over rows, split over the threads, and return its sums over all rows by name.

    The rows are divided into ranges with sums of their own, which depend only on the sizes.

    Args:
        function: its name in C, for `bind`.
        rows: the number of rows.
        width: the numbers in a row, which decide how many ranges pay off.
        sums: the shapes of the sums; each has its memory twice, see row_sums.h.
        arguments: its other numbers and contiguous tensors.
    """
    ranges = threads.ranges(rows, min(_MOST_RANGES, max(1, rows * width // _NUMBERS_PER_RANGE)))
    memory = {
        name: torch.zeros(len(ranges), 2, *shape, dtype=torch.float32, device="cpu")
        for name, shape in (sums or {}).items()
    }
    kernel = bind(function, **arguments)
    tasks = [
        functools.partial(kernel, *each_range, **{name: each[index] for name, each in memory.items()})
        for index, each_range in enumerate(ranges)
    ]
    threads.run_all(tasks)
    return {name: each[0, 0] if len(ranges) == 1 else total(each[:, 0].contiguous()) for name, each in memory.items()}


def _passed(function: str, known: Mapping[str, torch.dtype | None], given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to the types that the C function or structure takes: numbers, addresses or None."""
    if unknown := given.keys() - known.keys():
        raise TypeError(f"{function} has no {min(unknown)}")
    passed = dict(given)
    for name, value in given.items():
        dtype = known[name]
        if dtype is None:
            if type(value) not in _NUMBERS and isinstance(value, Tensor):
                raise TypeError(f"{function} takes a number as {name}, not {type(value).__name__}")
        elif value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"{function} takes a tensor as {name}, not {type(value).__name__}")
            if value.dtype is dtype and value.is_cpu and value.is_contiguous():
                passed[name] = value.data_ptr() or _empty(value)
            else:
                passed[name] = pointer(value, dtype)
    return passed


def loop(function: str, settings: Mapping[str, int | float] | None = None, /, **fields: Any) -> None:
    """Run one direction of a dense recurrence over all steps, the batch rows split over the threads and into blocks.

    Args:
        function: its name in C.
        settings: numbers of its structure.
        fields: tensors and numbers of its structure; an absent or None field is NULL.
    """
    fields |= settings or {}
    steps, batch, features = fields["h"].shape
    groups, u = fields.get("groups"), fields.get("u")
    if timing.is_timing() and fields.get("dweights") is not None:
        fields["weight_time"] = torch.zeros(2, dtype=torch.int64, device="cpu")
    fields |= {"steps": steps, "batch": batch, "features": features, "inputs": 0 if u is None else u.shape[-1]}
    packed: Tensor | None = fields.get("packed")  # a cell without products has none
    size = features if packed is None else packed.numel()
    count = torch.get_num_threads() if steps * size * batch > SMALL else 1
    if 4 * size <= CACHED:
        count *= max(1, batch // (count * _rows_at_once(function, batch, fields.get("dweights"))))
    ranges = ranges_of_groups(batch, groups, count) if groups else threads.ranges(batch, count)
    run_ranges(function, ranges, **fields)


def _rows_at_once(function: str, batch: int, sums: Tensor | None) -> int:
    """Return the number of batch rows for which a loop over time runs at once."""
    is_narrow = kernels().lanes < 16
    if function.endswith("_forward"):
        return _NARROW_FORWARD_ROWS if is_narrow else _FORWARD_ROWS
    if sums is not None and 4 * sums.numel() > _SUMS:
        return _BACKWARD_ROWS // 2
    # With fewer rows in all, a group's steps between two additions to its sums are more (`steps_of_sum`).
    return max(_BACKWARD_ROWS, min(_NARROW_BACKWARD_ROWS, batch // 2)) if is_narrow else _BACKWARD_ROWS


def run_ranges(function: str, ranges: Sequence[tuple[int, int]], /, **fields: Any) -> None:
    """Run one direction of an operation on each range [first, last) of its rows or units, on torch's number of threads.

    Args:
        function: its name in C, which ends in `_forward` or `_backward`.
        fields: tensors and numbers of its structure; an absent or None field is NULL.

    Raises:
        MemoryError: the kernel does not have enough memory.
    """
    kernel = bind(function, **fields)
    times: Any = fields.get("weight_time")

    def run(first: int, last: int) -> None:
        if kernel(first, last):
            raise MemoryError(function)

    name = timing.FORWARD if function.endswith("_forward") else timing.BACKWARD
    share = timing.WEIGHT_GRADIENT, lambda: float(times[0] / times[1])
    with timing.timed(name) if times is None else timing.timed_in_two(name, *share):
        threads.run_all([functools.partial(run, *each_range) for each_range in ranges])


def row_groups(batch: int) -> int:
    """Return the number of groups of batch rows whose weight gradients are summed separately, a power of 2 up to 8."""
    # From the batch alone, because the order of a sum must not depend on the number of threads.
    return 1 << max(0, min(3, (batch // 3).bit_length() - 1))


def ranges_of_groups(batch: int, groups: int, count: int) -> list[tuple[int, int]]:
    """Divide the batch rows into at most `count` ranges [first, last) of whole groups."""
    return [(batch * first // groups, batch * last // groups) for first, last in threads.ranges(groups, count)]


def total(per_row: Tensor) -> Tensor:
    """Return the sum over the batch of `[B, n]`, always in the same order."""
    # Not `torch.sum`, because it divides a long sum among its threads, which changes the rounding.
    total = per_row.new_empty(per_row.shape[1:])
    size = total.numel()
    kernels().add_partial_sums(per_row.shape[0], 1, size, size, pointer(per_row), pointer(total))
    return total
