"""Record one step of a cell in PyTorch as expressions of a unit.

The step runs once on random numbers, and every operation of torch passes a dispatch mode. What depends on no state is
recorded as a program, which torch runs for all steps at once, under autograd: parametrised weights, functions of
parameters, or of the inputs. What depends on a state has to be an expression of one unit. Linear maps of the inputs,
and what is computed from them elementwise, become expressions too, because the loop then computes them step by step.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from orthobench.recurrence.compiler.expressions import (
    ONE,
    ZERO,
    Node,
    Term,
    UnfitError,
    add,
    divide,
    mean,
    multiply,
    number,
    select,
    subtract,
    total,
)
from orthobench.recurrence.compiler.functions import POINTWISE, RefusedError, share_at_bound
from orthobench.system.own_code import quoted_line

_BATCHES = (1009, 1013, 1019)
"""Batch sizes of the recorded step: primes, so that the size marks the batch's axis, unless the cell has this size."""

Rows = tuple[str, int, int]
"""Columns of a recorded value with a row for each step and sequence: its name, the first column and their number."""


class Box:
    """The expression in n columns of a tensor, which all views of these columns share."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


@dataclass(eq=False)
class _Column:
    """Columns of a tensor: n that have an expression, or any number of recorded ones, or both; or a number of a row."""

    width: int
    box: Box | None = None
    rows: Rows | None = None


@dataclass(eq=False)
class _Value:
    """What is known of a tensor of the step.

    Attributes:
        tensor: the tensor, which is kept so that no other one gets its number.
        name: its name in the recorded program; None if it depends on a state.
        of_x: whether it has a row for each sequence.
        columns: its columns if they have expressions, or else None.
        is_argument: whether it outlives the step.
    """

    tensor: Tensor
    name: str | None
    of_x: bool = False
    columns: list[_Column] | None = None
    is_argument: bool = False


@dataclass(eq=False)
class _Reference:
    """A recorded value as an argument of the recorded program."""

    name: str


@dataclass(eq=False)
class _Recorded:
    """An operation, its positional and named arguments, and the names of its results."""

    function: Callable[..., Any]
    arguments: tuple[Any, dict[str, Any]]
    names: list[str]


@dataclass(eq=False)
class Program:
    """What depends on no state.

    Attributes:
        batch: the size that stands for the number of rows.
        constants: tensors that are not among the arguments, by name.
    """

    batch: int
    operations: list[_Recorded] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def needed_for(self, names: set[str]) -> Program:
        """Return the operations on which the named values depend."""
        kept: list[_Recorded] = []
        names = set(names)
        for each in reversed(self.operations):
            if names & set(each.names):
                kept.append(each)
                names |= {part.name for part in tree_leaves(each.arguments) if isinstance(part, _Reference)}
        return Program(self.batch, kept[::-1], {name: self.constants[name] for name in names & self.constants.keys()})

    def run(self, arguments: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """Return all values by name, for arguments by name, of which the inputs have this number of rows."""
        values = {**arguments, **self.constants}

        def given(part: Any) -> Any:
            if isinstance(part, _Reference):
                return values[part.name]
            return rows if type(part) is int and part == self.batch else part

        for each in self.operations:
            args, kwargs = tree_map(given, each.arguments)
            result = each.function(*args, **kwargs)
            values |= zip(each.names, [result] if isinstance(result, Tensor) else result, strict=True)
        return values


@dataclass(eq=False)
class Step:
    """A recorded step: the units of a state, the next states, and the program that computes what these name."""

    units: int
    states: list[Node]
    program: Program


def record(
    step: Callable[[], Sequence[Tensor]], arguments: Mapping[str, Tensor], x: Tensor, states: Sequence[Tensor]
) -> Step:
    """Record a step.

    Args:
        step: runs the step on x and the states, and returns the next states.
        arguments: the parameters and buffers that it reads, by name.
        x: the inputs `[B, m]`.
        states: the states `[B, n]`; B is one of `batch_size`.

    Raises:
        UnfitError: it cannot be compiled.
    """
    sizes = {state.shape[-1] for state in states}
    if len(sizes) > 1:
        raise UnfitError(f"the states have different sizes ({', '.join(str(each.shape[-1]) for each in states)})")
    recorder = _Recorder(arguments, x, states)
    with torch.enable_grad():
        share_at_bound(True), share_at_bound(False)  # asked here, because a mode's operations have no gradients
    drawn = _other_generators()
    with _quoting(), torch.no_grad(), recorder:
        nodes = [recorder.next_state(each) for each in step()]
    if _other_generators() != drawn:
        raise UnfitError("the step draws random numbers")
    return Step(recorder.units, nodes, recorder.program)


def inspect(step: Callable[[Tensor, Any], tuple[Tensor, Any]], x: Tensor, *states: Tensor) -> None:
    """Run a step with gradients, and refuse what its operations do not show, as a comparison of numbers may not either.

    For example, a gradient may be clipped only if it is large, and a buffer may change later.

    Raises:
        UnfitError: the step reads tensors as Python's numbers, or has hooks or backward passes of its own.
    """
    with _quoting(), _Unseen():
        output, after = step(x.requires_grad_(), tuple(each.requires_grad_() for each in states))
    waiting, seen = [each.grad_fn for each in (output, *after)], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            function = getattr(node, "_forward_cls")  # noqa: B009 - torch does not declare it
            if function.__module__.partition(".")[0] not in ("torch", "orthobench"):
                raise UnfitError(f"{function.__name__} has a backward pass of its own")
        waiting += [each for each, _ in node.next_functions]


class _Unseen(TorchFunctionMode):
    """Refuses what a dispatch mode does not see."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.register_hook:
            raise UnfitError("the step registers a hook of a tensor")
        if func is torch._C._set_grad_enabled and torch.is_grad_enabled() and args == (False,):
            raise UnfitError("the step computes without gradients, as in `torch.no_grad()`")
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__):
            raise UnfitError("the step reads the numbers of a tensor")
        return func(*args, **(kwargs or {}))


def _other_generators() -> bytes:
    """Return the states of Python's and NumPy's random generators, whose draws no dispatch mode sees."""
    return pickle.dumps((random.getstate(), np.random.get_state()))


@contextmanager
def _quoting() -> Iterator[None]:
    """Add the line of the user's code to a refusal in the `with` block."""
    try:
        yield
    except UnfitError as error:
        line = quoted_line(error)
        raise UnfitError(f"{error} ({line})" if line else str(error)) from None


def batch_size(shapes: Sequence[Sequence[int]]) -> int:
    """Return a batch size that is none of the sizes in these shapes."""
    sizes = {size for shape in shapes for size in shape}
    return next(each for each in _BATCHES if each not in sizes)


_REDUCING = {
    **dict.fromkeys(("_softmax", "_log_softmax"), "softmax"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), "batch norm"),
    "cumsum": "a sum up to each unit",
    **dict.fromkeys(("amax", "amin", "max", "min"), "a maximum"),
}
"""What needs all units at once and is no mean, in words."""

_SAME_MEMORY = {"alias", "view", "reshape", "_unsafe_view", "_reshape_alias", "squeeze"}
_COPIES = {"clone", "_to_copy", "contiguous", "view_copy", "expand_copy", "lift_fresh_copy"}
_SPLITS = {"split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "unsafe_chunk"}
_CONSTANTS = {"zeros_like": 0.0, "ones_like": 1.0, "new_zeros": 0.0, "new_ones": 1.0, "empty_like": 0.0}


class _Recorder(TorchDispatchMode):
    def __init__(self, arguments: Mapping[str, Tensor], x: Tensor, states: Sequence[Tensor]) -> None:
        super().__init__()
        self.units, self.batch = states[0].shape[-1], len(x)
        self.program = Program(self.batch)
        self.values: dict[int, _Value] = {}
        for name, tensor in arguments.items():
            self._know(_Value(tensor, name, is_argument=True))
        self._know(_Value(x, "x", of_x=True, is_argument=True))
        for number_, state in enumerate(states):
            columns = [_Column(self.units, Box(Node("state", number_)))]
            self._know(_Value(state, None, True, columns, is_argument=True))

    def next_state(self, tensor: Any) -> Node:
        """Return the expression of a tensor that the step returns."""
        if not isinstance(tensor, Tensor) or tensor.shape != (self.batch, self.units):
            shape = list(tensor.shape[1:]) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise UnfitError(f"the step returns {shape} as a state of {self.units} units")
        (node,) = self._nodes(tensor, 1)
        return node

    # ---------------------------------------------------------------- operations

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, because torch would otherwise import its compiler for this method, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        tags = torch.Tag
        if tags.nondeterministic_seeded in func.tags:
            raise UnfitError("the step draws random numbers")
        has_mask = any(each is not None and each.dtype is torch.bool for each in args[1]) if name == "index" else True
        if tags.data_dependent_output in func.tags or (tags.dynamic_output_shape in func.tags and has_mask):
            raise UnfitError("the step branches on the values of tensors")
        if "batch_norm" in name and True in args[5:6]:  # refused before it runs, because it changes running statistics
            raise UnfitError("batch norm in training has no kernel")
        known = [self._value(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        out = None
        if func._schema.is_mutable:
            name, func, out = self._in_place(name, func, args)
        depends = any(each.name is None for each in known)
        columns = self._expressions(name, args, kwargs, depends, any(each.columns for each in known))
        result = func(*args, **kwargs)
        several = isinstance(result, (list, tuple))
        results = list(result) if several else [result]
        names = [None] * len(results) if depends else self._record(func, (args, kwargs), len(results))
        of_x = any(each.of_x for each in known) or (not known and self.batch in results[0].shape)
        for place, tensor in enumerate(results):
            if tensor is None:  # what a factorisation, for example, computes for its gradient alone
                continue
            own = columns[place] if columns is not None and several else columns
            if tensor.dtype not in (torch.float32, torch.bool):
                if depends:
                    raise UnfitError(f"a state in {str(tensor.dtype).removeprefix('torch.')}")
                own = None
            self._know(_Value(tensor, names[place], of_x, own))
        return result if out is None else self._written(out, result)

    def _in_place(self, name: str, func: Any, args: Any) -> tuple[str, Any, Tensor]:
        """Return the name and the function of an operation that returns a new tensor instead, and the changed one.

        Raises:
            UnfitError: there is none, or the tensor outlives the step.
        """
        out = args[0]
        own = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
        if own is None or not hasattr(own, func._overloadname):
            raise UnfitError(f"{name} has no kernel")
        memory = out.untyped_storage().data_ptr()
        if any(
            each.is_argument and each.tensor.untyped_storage().data_ptr() == memory for each in self.values.values()
        ):
            raise UnfitError("the step changes a tensor that outlives it")
        return name[:-1], getattr(own, func._overloadname), out

    def _written(self, out: Tensor, result: Tensor) -> Tensor:
        """Give a changed tensor the value of the result, and return it; its views share only the expressions."""
        before, after = self._value(out), self._value(result)
        out.copy_(result) if out.shape == result.shape else None
        memory = out.untyped_storage().data_ptr()
        for each in self.values.values():
            if each.tensor.untyped_storage().data_ptr() == memory:
                each.name = None
                for column in each.columns or ():
                    column.rows = None
        if before.columns is None or after.columns is None:
            before.columns = after.columns
        else:
            for column, new in zip(before.columns, after.columns, strict=True):
                if column.box is None or new.box is None:
                    raise UnfitError("the step changes part of a tensor")
                column.box.node = new.box.node
        before.name, before.of_x = after.name, after.of_x
        return out

    def _record(self, func: Any, arguments: Any, count: int) -> list[str]:
        def reference(part: Any) -> Any:
            return _Reference(self._value(part).name or "") if isinstance(part, Tensor) else part

        names = [f"v{len(self.program.operations)}_{place}" for place in range(count)]
        self.program.operations.append(_Recorded(func, tree_map(reference, arguments), names))
        return names

    def _know(self, value: _Value) -> None:
        self.values[id(value.tensor)] = value

    def _value(self, tensor: Tensor) -> _Value:
        """Return what is known of a tensor; one that is new is a constant of the step.

        Raises:
            UnfitError: its gradient would be lost, or it was changed in a way that is not followed.
        """
        value = self.values.get(id(tensor))
        if value is None:
            if tensor.grad_fn is not None:
                raise UnfitError("the step reads a tensor with a gradient that was computed before it")
            value = _Value(tensor, f"c{len(self.program.constants)}", is_argument=True)
            self.program.constants[value.name or ""] = tensor
            self._know(value)
        if value.name is None and value.columns is None:
            raise UnfitError("the step reads a tensor of which it has changed a part")
        return value

    # ---------------------------------------------------------------- expressions

    def _expressions(self, name: str, args: Any, kwargs: Any, depends: bool, has_some: bool) -> Any:
        """Return the columns of a result, or a list of them for several tensors; None if it has no expression.

        Raises:
            UnfitError: the result depends on a state and has no expression.
        """
        if not depends and not has_some and name not in ("mm", "addmm"):
            return None
        try:
            own: Callable[..., Any] | None = getattr(self, f"_of_{name.strip('_')}", None)
            if name in POINTWISE:
                return self._pointwise(POINTWISE[name], args, kwargs)
            if name in _SPLITS:
                return self._split(*args, **kwargs)
            if name in _CONSTANTS:
                return [_Column(self.units, Box(number(_CONSTANTS[name])))] * (args[0].shape[-1] // self.units)
            if name in _SAME_MEMORY or name in _COPIES:
                return self._same(name in _COPIES, *args)
            if own is not None:
                return own(*args, **kwargs)
            raise UnfitError(f"{_REDUCING[name]} over the units" if name in _REDUCING else f"{name} has no kernel")
        except UnfitError:
            if depends:
                raise
            return None

    def _nodes(self, value: Any, count: int) -> list[Node]:
        """Return the expressions of an argument, one for each of `count` blocks of n columns, or one for all."""
        if not isinstance(value, Tensor):
            return [number(value)]
        known, n = self._value(value), self.units
        if known.columns is not None:
            if any(column.box is None for column in known.columns):
                raise UnfitError("a function of state and inputs in one tensor")
            if len({column.width for column in known.columns}) > 1:
                raise UnfitError("a function of units and of a number of the row in one tensor")
            return [column.box.node for column in known.columns if column.box is not None]
        shape, width = value.shape, value.shape[-1] if value.dim() else 1
        if not known.of_x:
            if value.numel() == 1 or (width % n == 0 and value.numel() == width):
                places = [-1] if value.numel() == 1 else [k * n for k in range(width // n)]
                return [total(Term("vector", 1, None, known.name, 0, place)) for place in places]
        elif (
            value.dim()
            and value.numel() == len(value) * width
            and shape[0] == self.batch
            and (width == 1 or width % n == 0)
        ):
            parts = [(known.name, 0, 1)] if width == 1 else [(known.name, k * n, n) for k in range(width // n)]
            return [total(Term("input", 1, rows, None, 0, 0)) for rows in parts]
        raise UnfitError(f"a tensor {self._shown(value)} next to states of {n} units")

    def _shown(self, tensor: Tensor) -> str:
        return str(["batch" if size == self.batch else size for size in tensor.shape]).replace("'", "")

    def _pointwise(self, function: Callable[..., Node], args: Any, kwargs: Any) -> list[_Column]:
        tensors = [each for each in args if isinstance(each, Tensor)]
        count = max(len(self._value(each).columns or [0]) for each in tensors)
        wide = [each.shape[-1] // self.units for each in tensors if each.dim() and each.shape[-1] % self.units == 0]
        count = max([count, *wide])
        parts = [self._nodes(each, count) if isinstance(each, (Tensor, int, float)) else [each] for each in args]
        if any(len(part) not in (1, count) for part in parts):
            raise UnfitError("tensors of different widths")
        named = {
            key: value for key, value in kwargs.items() if key in ("alpha", "value", "approximate", "rounding_mode")
        }
        try:
            nodes = [function(*[part[k if len(part) > 1 else 0] for part in parts], **named) for k in range(count)]
        except RefusedError as error:
            raise UnfitError(f"{error}") from None
        width = max(self._width(each) for each in tensors)
        return [_Column(min(width, self.units), Box(node)) for node in nodes]

    def _width(self, tensor: Tensor) -> int:
        columns = self._value(tensor).columns
        return sum(each.width for each in columns) if columns else tensor.shape[-1] if tensor.dim() else 1

    def _same(self, is_copy: bool, tensor: Tensor, *sizes: Any, **_: Any) -> list[_Column]:
        size = sizes[0] if sizes and isinstance(sizes[0], (list, tuple)) else None
        if size is not None and list(size) not in ([*tensor.shape], [-1, tensor.shape[-1]], [tensor.shape[0], -1]):
            shown = str(["batch" if each == self.batch else each for each in size]).replace("'", "")
            raise UnfitError(f"a state is viewed as {shown}, for example in heads")
        if sizes and size is None and not isinstance(sizes[0], torch.dtype):
            raise UnfitError("a state gets another axis")
        columns = self._value(tensor).columns or []
        if not is_copy:
            return columns
        return [_Column(each.width, each.box and Box(each.box.node), each.rows) for each in columns]

    def _of_expand(self, tensor: Tensor, size: Sequence[int], **_: Any) -> list[_Column]:
        if len(size) == tensor.dim() == 2 and self._width(tensor) == 1 and size[1] % self.units == 0:
            return [_Column(self.units, Box(node)) for node in self._nodes(tensor, 1)] * (size[1] // self.units)
        return self._same(False, tensor, size)

    def _of_unsqueeze(self, tensor: Tensor, dim: int) -> list[_Column]:
        if tensor.dim() > 1 or dim not in (1, -1):
            raise UnfitError("a state gets another axis")
        return self._value(tensor).columns or []

    def _of_detach(self, tensor: Tensor) -> list[_Column]:
        columns = self._value(tensor).columns or []
        if all(column.box is not None and column.box.node.value is not None for column in columns):
            return columns  # numbers, which torch itself detaches in `zeros_like`
        raise UnfitError("the step detaches a state from its gradient")

    def _of_permute(self, tensor: Tensor, dims: Sequence[int]) -> list[_Column]:
        if [dim % tensor.dim() for dim in dims] != [*range(tensor.dim())]:
            raise UnfitError("a state is transposed")
        return self._value(tensor).columns or []

    def _split(self, tensor: Tensor, size: Any, dim: int = 0) -> list[list[_Column]]:
        self._check_last(tensor, dim)
        width = tensor.shape[-1]
        sizes = size if isinstance(size, (list, tuple)) else [min(size, width - at) for at in range(0, width, size)]
        ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
        return [self._between(tensor, end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def _of_slice(
        self, tensor: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
    ) -> list[_Column]:
        start, end, step = slice(start, end, step).indices(tensor.shape[dim])
        if (start, end, step) == (0, tensor.shape[dim], 1):
            return self._value(tensor).columns or []
        self._check_last(tensor, dim)
        if step != 1:
            raise UnfitError("a slice of a state with a step")
        return self._between(tensor, start, end)

    def _of_cat(self, tensors: Sequence[Tensor], dim: int = 0) -> list[_Column]:
        self._check_last(tensors[0], dim)
        columns = []
        for tensor in tensors:
            value = self._value(tensor)
            if value.name is not None and value.of_x:
                columns.append(_Column(tensor.shape[-1], None, (value.name, 0, tensor.shape[-1])))
            elif value.columns is not None:
                columns += [_Column(each.width, each.box and Box(each.box.node), each.rows) for each in value.columns]
            else:
                columns += [_Column(self.units, Box(node)) for node in self._nodes(tensor, 1)]
        return columns

    def _check_last(self, tensor: Tensor, dim: int) -> None:
        if dim % tensor.dim() != tensor.dim() - 1:
            raise UnfitError("a state is divided or joined along the batch")

    def _between(self, tensor: Tensor, first: int, last: int) -> list[_Column]:
        at, found = 0, []
        for column in self._value(tensor).columns or ():
            if first <= at and at + column.width <= last:
                found.append(column)
            elif first < at + column.width and at < last:
                raise UnfitError(f"columns {first} to {last} are not whole blocks of {self.units} units")
            at += column.width
        return found

    def _of_mm(self, left: Tensor, right: Tensor) -> list[_Column] | None:
        matrix, value, n = self._value(right), self._value(left), self.units
        if matrix.name is None or matrix.of_x:
            raise UnfitError("a product with a matrix that changes from step to step")
        if not value.of_x:
            if value.name is None:
                raise UnfitError("a product of which the state is the matrix")
            return None
        if right.shape[1] % n:
            raise UnfitError(f"a product with a matrix {list(right.shape)}, not of whole blocks of {n} units")
        if len(left) != self.batch:
            raise UnfitError(f"a tensor {self._shown(left)} next to states of {n} units")
        width = left.shape[-1]
        columns = value.columns if value.name is None else None
        columns = columns or [_Column(width, None, (value.name or "", 0, width))]
        results = []
        for first in range(0, right.shape[1], n):
            terms, row = [], 0
            for column in columns:
                if column.rows is not None:
                    terms.append(Term("input", 1, column.rows, matrix.name, row, first))
                elif column.box is not None and column.width == n:
                    terms.append(Term("product", 1, column.box.node, matrix.name, row, first))
                else:
                    raise UnfitError("a product with a tensor of which the step has changed a part")
                row += column.width
            results.append(_Column(n, Box(total(*terms))))
        return results

    def _of_addmm(self, bias: Tensor, left: Tensor, right: Tensor, beta: float = 1, alpha: float = 1) -> Any:
        products = self._of_mm(left, right)
        if products is None:
            return None
        biases = self._nodes(bias, len(products))
        nodes = [each.box.node for each in products if each.box is not None]
        return [
            _Column(
                self.units, Box(add(multiply(number(alpha), node), multiply(number(beta), biases[k % len(biases)])))
            )
            for k, node in enumerate(nodes)
        ]

    # ---------------------------------------------------------------- means over the units

    def _blocks(self, tensor: Tensor, dim: Any) -> list[Node]:
        """Return the expressions of a tensor's columns, for a reduction along `dim`.

        Raises:
            UnfitError: `dim` is not the axis of the units.
        """
        dims = [each % tensor.dim() for each in ([dim] if isinstance(dim, int) else dim or range(tensor.dim()))]
        if tensor.dim() != 2 or dims != [1]:
            raise UnfitError("a sum along another axis than that of the units")
        return self._nodes(tensor, 1)

    def _of_mean(self, tensor: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> list[_Column]:
        return _number_of_row(_mean_of(self._blocks(tensor, dim)))

    def _of_sum(self, tensor: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> list[_Column]:
        return _number_of_row(multiply(number(tensor.shape[-1]), _mean_of(self._blocks(tensor, dim))))

    def _of_var_mean(
        self, tensor: Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False
    ) -> list[list[_Column]]:
        center, variance = _moments(self._blocks(tensor, dim))
        size = tensor.shape[-1]
        free = size - (1 if correction is None else correction)
        if free <= 0:
            raise UnfitError(f"a variance of {size} numbers")
        return [_number_of_row(multiply(number(size / free), variance)), _number_of_row(center)]

    def _of_var(self, *args: Any, **kwargs: Any) -> list[_Column]:
        return self._of_var_mean(*args, **kwargs)[0]

    def _of_std(self, *args: Any, **kwargs: Any) -> list[_Column]:
        (variance,) = self._of_var(*args, **kwargs)
        assert variance.box is not None
        return _number_of_row(_root(variance.box.node))

    def _of_linalg_vector_norm(
        self, tensor: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False
    ) -> list[_Column]:
        if order != 2:
            raise UnfitError(f"a norm of order {order:g} over the units")
        squares = [multiply(node, node) for node in self._blocks(tensor, dim)]
        return _number_of_row(_root(multiply(number(tensor.shape[-1]), _mean_of(squares))))

    def _of_native_layer_norm(
        self, tensor: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> list[list[_Column]]:
        return self._normed(self._blocks(tensor, list(range(-len(shape), 0))), 1, weight, bias, epsilon)

    def _of_native_group_norm(
        self, tensor: Tensor, weight: Tensor | None, bias: Tensor | None, *sizes: Any
    ) -> list[list[_Column]]:
        *_, groups, epsilon = sizes
        return self._normed(self._blocks(tensor, 1), groups, weight, bias, epsilon)

    def _normed(
        self, nodes: list[Node], groups: int, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> list[list[_Column]]:
        if len(nodes) % groups:
            raise UnfitError(f"a norm over {groups} groups, which are not whole blocks of {self.units} units")
        size, values, centers, scales = len(nodes) // groups, [], [], []
        for first in range(0, len(nodes), size):
            center, variance = _moments(nodes[first : first + size])
            scale = _inverse_root(variance, epsilon)
            values += [multiply(subtract(node, center), scale) for node in nodes[first : first + size]]
            centers += _number_of_row(center)
            scales += _number_of_row(scale)
        return [self._affine(values, weight, bias), centers, scales]

    def _of_fused_rms_norm(
        self, tensor: Tensor, shape: Sequence[int], weight: Tensor | None, epsilon: float | None
    ) -> list[list[_Column]]:
        nodes = self._blocks(tensor, list(range(-len(shape), 0)))
        epsilon = torch.finfo(torch.float32).eps if epsilon is None else epsilon
        scale = _inverse_root(_mean_of([multiply(node, node) for node in nodes]), epsilon)
        return [self._affine([multiply(node, scale) for node in nodes], weight, None), _number_of_row(scale)]

    def _affine(self, nodes: list[Node], weight: Tensor | None, bias: Tensor | None) -> list[_Column]:
        if weight is not None:
            nodes = [multiply(node, own) for node, own in zip(nodes, self._nodes(weight, len(nodes)), strict=True)]
        if bias is not None:
            nodes = [add(node, own) for node, own in zip(nodes, self._nodes(bias, len(nodes)), strict=True)]
        return [_Column(self.units, Box(node)) for node in nodes]


def _number_of_row(node: Node) -> list[_Column]:
    return [_Column(1, Box(node))]


def _mean_of(nodes: Sequence[Node]) -> Node:
    """Return the mean over all units of several blocks."""
    sum_ = nodes[0]
    for each in nodes[1:]:
        sum_ = Node("add", sum_, each)  # not `add`, which would join products of the blocks to another product
    return mean(multiply(number(1 / len(nodes)), sum_))


def _moments(nodes: Sequence[Node]) -> tuple[Node, Node]:
    """Return the mean and the variance over all units of several blocks.

    The variance has no gradient by way of the mean, because the deviations from it are zero in all.
    """
    center = _mean_of(nodes)
    deviations = [subtract(node, Node("fixed", center)) for node in nodes]
    return center, _mean_of([multiply(each, each) for each in deviations])


def _inverse_root(variance: Node, epsilon: float) -> Node:
    return divide(ONE, Node("sqrt", add(variance, number(epsilon))))


def _root(square: Node) -> Node:
    """Return a root that has no gradient at zero, as torch's norms and standard deviations."""
    is_positive = Node(">", square, ZERO)
    return select(is_positive, Node("sqrt", select(is_positive, square, ONE)), ZERO)
