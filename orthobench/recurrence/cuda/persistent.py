"""Kernels in CUDA C++ that run all steps of a recurrence in one launch: their choice, arguments and gradients.

A cell is a pair of structs in a header of its operation's folder. `plans` divides it over the GPU, and `nvrtc` compiles
it for its size. A launch costs a few microseconds of Python: the arguments are one structure, packed into bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.recurrence.call import Call, Convolution, Projection
from orthobench.recurrence.cuda import launch, nvrtc, plans
from orthobench.recurrence.cuda.plans import Direction, Plan
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_PACKED = struct.Struct("24P2i3f4x")  # the structure Arguments of `cell.cuh`
_ABSENT = (None,) * 4
OptionalTensors = Sequence[Tensor | None]


@functools.cache
def problem(device: torch.device) -> str | None:
    """Return why kernels in CUDA C++ cannot be compiled for a device, or None."""
    try:
        nvrtc.describe(device)
    except nvrtc.UnavailableError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Loaded:
    """A kernel that is ready to run on batches of one size."""

    launch: nvrtc.Launch
    grid: int

    def __call__(
        self,
        steps: int,
        batch: int,
        input: Tensor,
        weight: Tensor,
        output: Tensor,
        *,
        second: Tensor | None = None,
        saved: Tensor | None = None,
        constants: Sequence[float] = (),
        vectors: OptionalTensors = (),
        start: OptionalTensors = (),
        end: OptionalTensors = (),
        sums: OptionalTensors = (),
        trace: OptionalTensors = (),
    ) -> None:
        """Launch it; `cell.cuh` describes the arguments. All tensors are contiguous and in float32."""
        tensors = (
            *(input, second, weight),
            *(*vectors, *_ABSENT[len(vectors) : 4]),
            *(*start, *_ABSENT[len(start) : 4]),
            *(output, saved),
            *(*end, *_ABSENT[len(end) : 4]),
            *(*sums, *_ABSENT[len(sums) : 4]),
            *(*trace, *_ABSENT[len(trace) : 3]),
        )
        addresses = [0 if each is None else each.data_ptr() for each in tensors]
        self.launch(self.grid, _PACKED.pack(*addresses, steps, batch, *(*constants, 0.0, 0.0, 0.0)[:3]))


@functools.cache
def find(direction: Direction, n: int, heads: int, batch: int, device: torch.device) -> Loaded | None:
    """Return a direction's kernel for heads of n units, or None if no cluster of the device can hold their weights.

    Raises:
        RuntimeError: it does not compile or load.
    """
    chosen = plan(direction, n, heads, batch, device)
    return None if chosen is None else Loaded(loaded(direction, chosen, device), chosen.grid(batch))


@functools.cache
def plan(direction: Direction, n: int, heads: int, batch: int, device: torch.device) -> Plan | None:
    """Return a direction's plan for heads of n units, or None if no cluster of the device can hold their weights."""
    return plans.plan(direction, n, heads, batch, nvrtc.describe(device))


@functools.cache
def loaded(direction: Direction, chosen: Plan, device: torch.device) -> nvrtc.Launch:
    """Compile and load the kernel of a plan."""
    program = plans.source(direction, chosen)
    return nvrtc.load(program, "persistent", device, chosen.threads, chosen.shared, chosen.cluster)


@dataclass(frozen=True, eq=False)  # each step looks them up, and their identity is found fastest
class Cells:
    """The two directions of a cell, and its constants (`Constants` of `cell.cuh`)."""

    forward: Direction
    backward: Direction
    constants: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        header: str,
        name: str,
        constants: tuple[float, ...] = (),
        options: str = "",
        backward: str | None = None,
    ) -> Cells:
        """Return the structs nameForward and nameBackward of a header, with template arguments for both or each."""
        struct = f"{name}Backward{options if backward is None else backward}"
        numbers = Direction(header, struct).constants
        # One sum travels instead of several values. Two values are gathered, as they were when a GPU timed them.
        scatters = numbers["PHASES"] == numbers["PRODUCTS"] == 1 and numbers["VALUES"] > 2
        return cls(Direction(header, f"{name}Forward{options}"), Direction(header, struct, True, scatters), constants)


def misfit(cells: Cells, n: int, heads: int, batch: int, device: torch.device) -> str | None:
    """Return why a device cannot hold the weights of heads of n units, or None."""
    for direction in (cells.forward, cells.backward):
        if plan(direction, n, heads, batch, device) is None:
            return f"the weights of {n * heads} units do not fit into the registers of this GPU's largest cluster"
    return None


class CompiledKernel(launch.TestedKernel):
    """A kernel in CUDA C++.

    Attributes:
        other: the kernel in Triton where this one cannot run, or None.
    """

    other: ClassVar[type[launch.TritonKernel] | None] = None

    @classmethod
    def misfit(cls, call: Call) -> str | None:
        """Return why this kernel does not run a call, or None."""
        return problem(call.x.device) or cls.unsupported(call.parameters)


class PersistentKernel(CompiledKernel):
    """The kernel of an operation whose cell is declared in a header.

    If it does not fit, `other` runs. What is saved begins with the inputs of a projection or None, and with what the
    backward kernel reads or None if `other` has run. A projection and its gradients are products of this class, because
    each operation that autograd records costs the host more than a launch.

    Attributes:
        states: the number of states.
        vectors: the names of the parameters that are vectors of the cell, in the order of its sums.
    """

    returns_ends = True
    states: ClassVar[int] = 1
    vectors: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        """Return the cell for these parameters."""
        raise NotImplementedError

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        return isinstance(x, Projection)

    @staticmethod
    def saves(parameters: Mapping[str, Any]) -> bool:
        """Return whether the backward kernel reads what the forward kernel saves, and not h."""
        return True

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, extra: Tensor) -> Tensor:
        """Return dL/dW from the outputs of the backward kernel, the states h and what the forward kernel saved."""
        return launch.weight_gradient(dx, h, arguments.state[0])

    @classmethod
    def misfit(cls, call: Call) -> str | None:
        """Return why this kernel does not run a call, or None."""
        if reason := super().misfit(call):
            return reason
        n = call.x.shape[-1] // call.operation.gates
        heads = call.parameters.get("heads", 1)
        return misfit(cls.cells(call.parameters), n // heads, heads, call.x.shape[1], call.x.device)

    @classmethod
    def _kernels(cls, x: Tensor, arguments: Arguments) -> tuple[Cells, Loaded, Loaded] | None:
        heads, (batch, n) = arguments.parameters.get("heads", 1), arguments.state[0].shape
        cells = cls.cells(arguments.parameters)
        pair = pair_of(cells, n // heads, heads, batch, x.device)
        return None if pair is None else (cells, *pair)

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        inputs, parameters = None, arguments.parameters
        if (input_weight := parameters.get("input_weight")) is not None:
            inputs, x = x, _projected(x, input_weight, parameters["input_bias"])
        kernels = cls._kernels(x, arguments)
        if kernels is None:
            assert cls.other is not None
            states, more = cls.other.forward(x, arguments, keep)
            return (states[0], *(each[-1].clone() for each in states)), (inputs, None, *states, *more)
        cells, run, _ = kernels
        steps, (batch, n) = x.shape[0], arguments.state[0].shape
        h = x.new_empty(steps, batch, n)
        numbers = cells.forward.constants["SAVED"]
        needs_saved = keep and numbers and cls.saves(parameters)
        saved = x.new_empty(steps, batch, numbers * n) if needs_saved else None
        final = [x.new_empty(batch, n) for _ in range(cls.states)]
        run(
            *(steps, batch, x, arguments.weight, h),
            saved=saved,
            constants=cells.constants,
            vectors=cls.vector_tensors(parameters),
            start=arguments.state,
            end=final,
        )
        return (h, *final), (inputs, h if saved is None else saved)

    @classmethod
    def vector_tensors(cls, parameters: Mapping[str, Any]) -> OptionalTensors:
        """Return the vectors of the cell `[n]`, or None for those that are absent."""
        return [parameters[name] for name in cls.vectors]

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        inputs, saved, *others = tape.saved
        if saved is None:
            assert cls.other is not None
            tape.states = tuple(each for each in others[: cls.states] if each is not None)
            tape.saved = tuple(others[cls.states :])
            return _of_inputs(cls.other.backward(arguments, tape), inputs, arguments, tape)
        h = tape.states[0]
        kernels = cls._kernels(h, arguments)
        assert kernels is not None
        cells, _, run = kernels
        numbers, (steps, batch, n) = cells.backward.constants, h.shape
        dx = h.new_empty(steps, batch, numbers["OUTPUTS"] * n)
        more = h.new_empty(steps, batch, numbers["SAVED"] * n) if numbers["SAVED"] else None
        d_state = [torch.empty_like(state) for state in arguments.state]
        vectors = cls.vector_tensors(arguments.parameters)
        sums = [None if vector is None else h.new_empty(batch, n) for vector in vectors]
        trace = [torch.empty_like(h) for _ in tape.norms]
        run(
            *(steps, batch, saved, arguments.weight, dx),
            second=tape.gradient,
            saved=more,
            constants=cells.constants,
            vectors=vectors,
            start=tape.final,
            end=d_state,
            sums=sums,
            trace=trace,
        )
        for norms, total in zip(tape.norms, trace, strict=True):
            launch.record(norms, total)
        d_weight = cls.weight_gradient(dx, more, h, arguments, saved) if tape.needs_weight else None
        by_name = {
            name: cls.total(arguments, each) for name, each in zip(cls.vectors, sums, strict=True) if each is not None
        }
        return _of_inputs(Gradients(dx, d_weight, tuple(d_state), by_name), inputs, arguments, tape)

    @staticmethod
    def total(arguments: Arguments, sums: Tensor) -> Tensor:
        """Return a vector's gradient from the sums of its rows `[B, n]`."""
        return sums.sum(0)


def _projected(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return U u + b `[T, B, k]` from u `[T, B, m]`, in their own type also under `torch.autocast`."""
    steps, batch, features = inputs.shape
    x = inputs.new_empty(steps, batch, weight.shape[0])
    rows, result = inputs.view(-1, features), x.view(-1, weight.shape[0])
    if bias is None:
        # With `out`, because autocast leaves such products alone.
        torch.mm(rows, weight.t(), out=result)
    else:
        torch.addmm(bias, rows, weight.t(), out=result)
    return x


def _of_inputs(gradients: Gradients, inputs: Tensor | None, arguments: Arguments, tape: Tape) -> Gradients:
    """Return the gradients of the inputs of a projection, its weight and its bias in place of dL/dx."""
    if inputs is None:
        return gradients
    weight, bias = arguments.parameters["input_weight"], arguments.parameters["input_bias"]
    assert gradients.x is not None
    dx, rows = gradients.x.view(-1, weight.shape[0]), inputs.view(-1, inputs.shape[-1])
    gradients.x = torch.mm(dx, weight).view_as(inputs) if tape.needs_inputs else None
    d_weight = torch.mm(dx.t(), rows) if weight.requires_grad else None
    d_bias = dx.sum(0) if bias is not None and bias.requires_grad else None
    gradients.parameters = {**gradients.parameters, "input_weight": d_weight, "input_bias": d_bias}
    return gradients


@functools.cache
def pair_of(cells: Cells, n: int, heads: int, batch: int, device: torch.device) -> tuple[Loaded, Loaded] | None:
    """Return the kernels of both directions, or None if one of them does not fit or nothing can compile them.

    Raises:
        RuntimeError: one does not compile or load.
    """
    directions = cells.forward, cells.backward
    if problem(device) or None in [plan(direction, n, heads, batch, device) for direction in directions]:
        return None
    with ThreadPoolExecutor(2) as pool:  # the compiler runs on two cores
        both = pool.map(lambda each: find(each, n, heads, batch, device), directions)
        first, second = both
    assert first is not None
    assert second is not None
    return first, second
