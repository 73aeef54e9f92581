"""The CPU back end: the compiled library, its functions, the problems of `dense.h`, and the order of its matrices.

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

from orthobench.recurrence import runtime
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import library, signatures
from orthobench.recurrence.kernels import find

_SMALL = 2_000_000  # multiplications; below, starting a thread costs more than it saves
_CACHED = 1 << 20  # bytes of a packed matrix that stays in a core's cache; a larger one is read once for all batch rows
_FORWARD_ROWS, _BACKWARD_ROWS = 32, 25  # batch rows whose states of a few steps stay in a core's cache
_FEW = 1 << 17  # weights, likewise
_PART = 1 << 15  # numbers; with fewer in a part of the rows of a pass, starting the part costs more than it saves
_MOST_PARTS = 8  # parts of the rows of a pass
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
    if not runtime.are_plain(tensors) or runtime.in_torch():
        return False
    return _fits(layout, *[None if each is None else each.shape for each in tensors]) and not missing()


@functools.lru_cache(maxsize=1000)
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

    The rows are divided into parts with sums of their own, which depend only on the sizes.

    Args:
        function: its name in C, for `bind`.
        rows: the number of rows.
        width: the numbers in a row, which decide how many parts pay off.
        sums: the shapes of the sums; each has its memory twice, see row_sums.h.
        arguments: its other numbers and contiguous tensors.
    """
    parts = runtime.ranges(rows, min(_MOST_PARTS, max(1, rows * width // _PART)))
    memory = {
        name: torch.zeros(len(parts), 2, *shape, dtype=torch.float32, device="cpu")
        for name, shape in (sums or {}).items()
    }
    kernel = bind(function, **arguments)
    tasks = [
        functools.partial(kernel, *part, **{name: each[index] for name, each in memory.items()})
        for index, part in enumerate(parts)
    ]
    runtime.run_all(tasks)
    return {name: each[0, 0] if len(parts) == 1 else total(each[:, 0].contiguous()) for name, each in memory.items()}


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
    if runtime.is_timing() and fields.get("dweights") is not None:
        fields["weight_time"] = torch.zeros(2, dtype=torch.int64, device="cpu")
    fields |= {"steps": steps, "batch": batch, "features": features, "inputs": 0 if u is None else u.shape[-1]}
    packed: Tensor = fields["packed"]
    count = torch.get_num_threads() if steps * packed.numel() * batch > _SMALL else 1
    if 4 * packed.numel() <= _CACHED:
        rows = _FORWARD_ROWS if function.endswith("_forward") else _BACKWARD_ROWS
        if groups and 4 * fields["dweights"].numel() > _SUMS:
            rows //= 2
        count *= max(1, batch // (count * rows))
    parts = ranges_of_groups(batch, groups, count) if groups else runtime.ranges(batch, count)
    run_parts(function, parts, **fields)


def run_parts(function: str, parts: Sequence[tuple[int, int]], /, **fields: Any) -> None:
    """Run one direction of an operation on each part [first, last) of its rows or units, on torch's number of threads.

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

    name = runtime.FORWARD if function.endswith("_forward") else runtime.BACKWARD
    share = runtime.WEIGHT_GRADIENT, lambda: float(times[0] / times[1])
    with runtime.part(name) if times is None else runtime.divided(name, *share):
        runtime.run_all([functools.partial(run, *part) for part in parts])


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
    packed = runtime.take(padded(n) * gates * depth)
    address = pointer(weight, strided=True)
    kernels().pack(packed.data_ptr(), address, n, depth, output_stride, input_stride, gates)
    return packed


def linear(rows: Tensor, packed: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Fill `out` `[..., n]` with rows W^T + b, for contiguous rows `[..., depth]`; W is packed; b is `[n]` or None."""
    depth, n = rows.shape[-1], out.shape[-1]
    count = rows.numel() // depth
    arguments = count, depth, n, pointer(rows), pointer(packed), pointer(bias), pointer(out)
    parts = runtime.ranges(count, torch.get_num_threads() if count * depth * n > _SMALL else 1)
    runtime.run_all([functools.partial(kernels().linear, *part, *arguments) for part in parts])
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
    sum fits the cache, the steps are divided into parts, which depend only on the sizes, and their sums are added in
    order. For larger sums the columns of dz are divided among the threads, which does not change any sum.
    """
    library = kernels()
    steps, batch, width = dz.shape
    n, m, rows = states.shape[-1], 0 if inputs is None else inputs.shape[-1], steps * batch
    row_length = dz.stride(1) if batch > 1 else dz.stride(0)  # the stride of an axis of length 1 is arbitrary
    by_columns = not fits_cache(width, n + m)
    segments = runtime.ranges(rows, 1 if by_columns else min(16, max(1, rows * width * n // _SMALL)))
    columns, length = runtime.ranges(width, torch.get_num_threads() if by_columns else 1), padded(n + m)
    parts = dz.new_empty(len(segments), width, length)
    shift = 0 if initial is None else batch
    left, right, out = pointer(dz, strided=True), (pointer(states), pointer(initial), pointer(inputs)), pointer(parts)
    assert left is not None
    assert out is not None

    def run(part: int, first: int, last: int, start: int, stop: int) -> None:
        source, target = left + 4 * start, out + 4 * (part * width + start) * length
        sizes = first, last, shift, stop - start, n, m
        if library.weight_gradient(*sizes, source, row_length, *right, target):
            raise MemoryError("weight_gradient")

    tasks = [(part, *segment, *each) for part, segment in enumerate(segments) for each in columns]
    runtime.run_all([functools.partial(run, *task) for task in tasks])
    return joined_sums(parts)


def fits_cache(width: int, columns: int) -> bool:
    """Return whether a sum of outer products `[width, columns]` stays in a core's cache."""
    return width * columns <= 1 << 17


def padded(columns: int) -> int:
    """Return the columns rounded up to whole vectors."""
    lanes = kernels().lanes
    return -(-columns // lanes) * lanes


def row_groups(batch: int) -> int:
    """Return the number of groups of batch rows whose weight gradients are summed separately, a power of 2 up to 8."""
    return 1 << max(0, min(3, (batch // 3).bit_length() - 1))


def ranges_of_groups(batch: int, groups: int, count: int) -> list[tuple[int, int]]:
    """Divide the batch rows into at most `count` ranges [first, last) of whole groups."""
    return [(batch * first // groups, batch * last // groups) for first, last in runtime.ranges(groups, count)]


def joined_sums(parts: Tensor, first: int = 0, count: int | None = None) -> Tensor:
    """Return the sum of the parts' weight gradients `[parts, ..., columns]`, always in the same order.

    Args:
        first: the first column that is wanted.
        count: the number of columns; None for all.
    """
    columns = parts.shape[-1]
    count = columns - first if count is None else count
    if parts.shape[0] == 1:
        return parts[0, ..., first : first + count].contiguous()
    out = parts.new_empty(*parts.shape[1:-1], count)
    address = pointer(parts)
    assert address is not None
    rows = parts.numel() // (parts.shape[0] * columns)
    kernels().add_parts(parts.shape[0], rows, columns, count, address + 4 * first, pointer(out))
    return out


def total(per_row: Tensor) -> Tensor:
    """Return the sum over the batch of `[B, n]`, always in the same order."""
    total = per_row.new_empty(per_row.shape[1:])
    size = total.numel()
    kernels().add_parts(per_row.shape[0], 1, size, size, pointer(per_row), pointer(total))
    return total


def shifted_skew(upper: Tensor, n: int) -> Tensor:
    """Return I + A `[n, n]` in float64, from the entries `[n (n - 1) / 2]` of A above its diagonal; A is skew."""
    upper, shifted = upper.contiguous(), torch.empty(n, n, dtype=torch.float64, device="cpu")
    kernels().shifted_skew(n, pointer(upper), pointer(shifted, torch.float64))
    return shifted


def cayley_weight(inverse: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return W = (2 M - I) D and M^T, `[n, n]` in float32, from M in float64 and the signs of D `[n]`."""
    n = inverse.shape[0]
    weight, kept = runtime.take(n, n), runtime.take(n, n)
    address = pointer(inverse, torch.float64, strided=True)
    kernels().cayley_weight(n, *inverse.stride(), address, pointer(signs), pointer(weight), pointer(kept))
    return weight, kept


def cayley_gradient(gradient: Tensor, kept: Tensor, signs: Tensor) -> Tensor:
    """Return the entries of dL/dA = V^T - V above the diagonal, V = 2 M^T G D M^T, from G = dL/dW `[n, n]` and M^T."""
    library, n = kernels(), kept.shape[0]
    size, upper = padded(n) * n, kept.new_empty(n * (n - 1) // 2)
    memory = runtime.take(4, size)
    start, left = memory.data_ptr(), pointer(kept)
    packed_g, packed_m, between, v = (start + 4 * size * part for part in range(4))
    library.pack_scaled(n, pointer(gradient, strided=True), *gradient.stride(), pointer(signs), packed_g)
    library.pack(packed_m, left, n, n, 1, n, 1)
    arguments = n, left, packed_g, packed_m, between, v
    parts = runtime.ranges(n, torch.get_num_threads() if n**3 > _SMALL else 1)
    runtime.run_all([functools.partial(library.two_products, *part, *arguments) for part in parts])
    library.skew_entries(n, v, pointer(upper))
    return upper


class Weights:
    """Weights and the averages of their gradients, which an optimiser steps with the same rounding as torch's."""

    def __init__(self, tensors: Sequence[tuple[Tensor, Tensor | None, Tensor | None]]) -> None:
        """Keep the tensors' addresses.

        Args:
            tensors: each weight with its m and v, which are equally large; see `struct rule` in optimiser.c.

        Raises:
            TypeError: a tensor is not contiguous float32 on the CPU.
        """
        entry = signatures.structure("weight")
        rows = [entry(w.numel(), pointer(w), None, pointer(m), pointer(v)) for w, m, v in tensors]
        self.tensors, self._passed = tensors, (entry * len(rows))(*rows)
        self._entries = list(self._passed)  # so that setting a field creates no object
        self._averages, self._roots = any(m is not None for _, m, _ in tensors), None
        if any(v is not None for _, _, v in tensors):
            self._roots = torch.empty(sum(w.numel() for w, *_ in tensors), dtype=torch.float32, device="cpu")
        self._written = [each for row in tensors for each in row if each is not None]

    def are_in_place(self) -> bool:
        """Return whether the weights still have the addresses that C writes to."""
        return all(row[0].data_ptr() == entry.w for row, entry in zip(self.tensors, self._entries, strict=True))

    def step(self, gradients: Sequence[Tensor | None], numbers: Mapping[str, float]) -> None:
        """Step the weights that have a gradient.

        Args:
            gradients: of each weight, contiguous float32 on the CPU.
            numbers: the fields of the rule that are not the default.
        """
        total = 0
        for entry, gradient in zip(self._entries, gradients, strict=True):
            entry.size, entry.g = (0, None) if gradient is None else (gradient.numel(), gradient.data_ptr())
            total += entry.size
        library, rule = kernels(), signatures.structure("rule")(**{"kept": 1, "divisor": 1, "keep": 1, **numbers})
        parts = runtime.ranges(total, torch.get_num_threads() if total > _FEW else 1)
        flush = library.flushes_denormals() if len(parts) > 1 else 0
        arguments = flush, self._passed, ctypes.byref(rule), pointer(self._roots)

        def run(function: Callable[..., None]) -> None:
            if len(parts) == 1:
                function(0, total, *arguments)
            else:
                runtime.run_all([functools.partial(function, *part, *arguments) for part in parts])

        if self._averages or self._roots is not None:
            run(library.average_gradients)
        if self._roots is not None:
            (self._roots if total == self._roots.numel() else self._roots[:total]).sqrt_()
        run(library.descend)
        torch.autograd.graph.increment_version(self._written)


SLOWER_WITHOUT = "up to seven times slower"
"""How much slower PyTorch is."""


def unsupported(call: Call) -> str | None:
    """Return the reason why this back end has no kernel for the call, or None."""
    x, kernel = call.x, find(call.operation, "cpu")
    if x.device.type != "cpu":
        return f"the tensors are on {x.device.type}"
    if kernel is None:
        return "the operation has no C kernel"
    if not isinstance(call.weight, Tensor):
        return "W is applied by a function, which has no C kernel"
    if x.dtype is not torch.float32:
        return f"the C kernels are for float32, not {x.dtype}".replace("torch.", "")
    return kernel.unsupported(call.parameters)


def unusable(call: Call) -> str | None:
    """Return the reason why the kernel of a supported call is not used on this machine, or None."""
    return missing()


def makes(call: Call) -> bool:
    """Return whether the call's kernel computes the inputs itself, from their projection or convolution."""
    kernel = find(call.operation, "cpu")
    return kernel is not None and not isinstance(call.x, Tensor) and kernel.makes(call.x, call.parameters)


def run(call: Call) -> Result:
    """Run all steps."""
    kernel = find(call.operation, "cpu")
    assert kernel is not None
    return kernel.run(call)
