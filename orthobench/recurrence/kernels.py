"""The kernels of operations, how they register, and the autograd function that runs them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function

from orthobench.recurrence import first_derivative
from orthobench.recurrence.call import Call, Convolution, Declaration, Projection, Result, State


class OutputMap:
    """An output map y_t = V h_t + c, and its result for a recurrence's outputs h once a kernel has computed it.

    Attributes:
        weight: V `[p, n]`.
        bias: c `[p]`.
        outputs, y: h `[T, B, n]` and y `[T, B, p]`, or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias
        self.outputs: Tensor | None = None
        self.y: Tensor | None = None


_expected: ContextVar[OutputMap | None] = ContextVar("expected_output_map", default=None)


@contextmanager
def expect(output_map: OutputMap | None) -> Iterator[None]:
    """Announce to the recurrences in the block that this output map, or none, will read their outputs."""
    token = _expected.set(output_map)
    try:
        yield
    finally:
        _expected.reset(token)


@dataclass(slots=True, eq=False)
class Arguments:
    """The contiguous arguments of a kernel except x: the weight, the initial state and the parameters by name."""

    weight: Tensor
    state: State
    parameters: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Tape:
    """The inputs of a kernel's backward pass.

    Attributes:
        states: every state at every step, `[T, B, n]`.
        saved: what `forward` returned in addition to the states.
        gradient: dL/d(first state) at every step, `[T, B, n]`, or None if the loss does not use it.
        final: dL/d(final state), `[B, n]`, or None; None for the first state if `gradient` includes it.
        norms: tensors to fill with ||dL/ds_t||, `[T, B]` for each state; empty without a trace.
        needs_weight: whether dL/dW is needed.
        output_gradient: dL/dy `[T, B, p]` of an output map, or None. Its part of dL/dh_t is not in `gradient`.
        needs_inputs: whether dL/dx is needed, or for a projection the gradient of its inputs.
    """

    states: State
    saved: tuple[Tensor | None, ...]
    gradient: Tensor | None
    final: tuple[Tensor | None, ...]
    norms: tuple[Tensor, ...]
    needs_weight: bool
    output_gradient: Tensor | None = None
    needs_inputs: bool = True

    def last(self, index: int = 0) -> Tensor:
        """Return the gradient of one state at the last step only, `[B, n]`, from `final`."""
        final = self.final[index]
        return torch.zeros_like(self.states[index][0]) if final is None else final

    def all_steps(self) -> Tensor:
        """Return the first state's gradient at every step, `[T, B, n]`, for kernels that need it in this shape."""
        if self.gradient is not None:
            return self.gradient
        gradient = torch.zeros_like(self.states[0])
        gradient[-1] = self.last()
        return gradient


@dataclass(slots=True, eq=False)
class Gradients:
    """dL/dx, dL/dW, dL/d(initial state), and the gradients of the parameters that are tensors, by name.

    For a projection, dL/dx is the gradient of its inputs, or None.
    """

    x: Tensor | None
    weight: Tensor | None
    state: tuple[Tensor, ...]
    parameters: Mapping[str, Tensor | None] = field(default_factory=dict)


class Kernel:
    """An operation's forward and backward pass on one back end, and what else they compute.

    Attributes:
        reads: whether the passes compute an output map y_t = V h_t + c of a recurrence that projects its inputs. The
            parameters then include V and c as "output_weight" and "output_bias", forward returns y `[T, B, p]` as a
            third value, and backward takes `Tape.output_gradient`.
        forgets_states: whether `forward` returns the outputs instead of the states at every step. What it saves then
            begins with the final state.
        returns_ends: whether `forward` returns, of all steps, only the first state, followed by the final state
            `[B, n]`. `Tape.states` then has the first state alone.
        makes_weights: whether the passes compute the weights of the steps from the map of a mapped call.
        adds_first: whether the passes that compute a projection add its `first`.
        gates_outputs: whether the passes apply a skip and a gate to the outputs (`gated_scan`).
    """

    reads: ClassVar[bool] = False
    forgets_states: ClassVar[bool] = False
    returns_ends: ClassVar[bool] = False
    makes_weights: ClassVar[bool] = False
    adds_first: ClassVar[bool] = False
    gates_outputs: ClassVar[bool] = False

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        """Return the reason why the kernel does not support a call's parameters, or None."""
        return None

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        """Return whether the passes of a call with these parameters compute these inputs themselves."""
        return False

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        """Return every state at every step, `[T, B, n]`, and with `keep` everything else that backward needs.

        Both are tuples of tensors, and what is saved may contain None.
        """
        raise NotImplementedError

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        """Return the gradients and fill the tape's norms."""
        raise NotImplementedError

    @classmethod
    def run(cls, call: Call) -> Result:
        """Run all steps, under autograd if a gradient is needed."""
        return run(cls, call)


_K = TypeVar("_K", bound=Kernel)


def kernel(operation: Declaration, backend: str) -> Callable[[type[_K]], type[_K]]:
    """Register a class as the kernel of an operation on a back end."""

    def register(cls: type[_K]) -> type[_K]:
        operation.kernels[backend] = cls
        return cls

    return register


@functools.cache
def find(operation: Declaration, backend: str) -> type[Kernel] | None:
    """Return the kernel of an operation on a back end, or None.

    The first call imports the module of the operation's folder that registers it, such as `ops.plain.cpu`. A dense cell
    needs none, because its kernel follows from the declaration.

    Raises:
        ImportError: the module cannot be imported.
    """
    name = f"{operation.folder}.{backend}"
    # Only for a package, because an operation of a plugin may be declared in a
    # plain module, without kernels next to it.
    if hasattr(sys.modules.get(operation.folder), "__path__") and importlib.util.find_spec(name):
        importlib.import_module(name)
    is_built_in = operation.folder.startswith(f"{__package__}.ops.")
    if is_built_in and backend in ("cpu", "cuda") and backend not in operation.kernels:
        importlib.import_module(f"{__package__}.{backend}.dense").register(operation)
    return operation.kernels.get(backend)


def run(kernel: type[Kernel], call: Call) -> Result:
    """Run a kernel, under autograd if a gradient is needed.

    For a projection, x holds its inputs, and the parameters include `input_weight`, `input_bias` and `input_first`. For
    a convolution, x holds its source or the source's inputs, and they include `convolution`, `before` and
    `convolution_bias`.
    """
    assert isinstance(call.weight, Tensor)
    parameters, source = dict(call.parameters), call.x
    if isinstance(source, Convolution):
        parameters |= {"convolution": source.weight, "before": source.before, "convolution_bias": source.bias}
        source = source.source
    if isinstance(source, Projection):
        parameters |= {"input_weight": source.weight, "input_bias": source.bias, "input_first": source.first}
        source = source.inputs
    norms = call.trace.expect(source, call.operation.traced_states) if call.trace is not None else ()
    tensors = [source, call.weight, *call.state]
    vectors = {name: value for name, value in parameters.items() if isinstance(value, Tensor)}
    needs_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (*tensors, *vectors.values()))
    output_map = _output_map(kernel, call.state[0], parameters) if needs_gradient and not norms else None
    if output_map is not None:
        own = {"output_weight": output_map.weight, "output_bias": output_map.bias}
        parameters, vectors = parameters | own, vectors | own
    # For example, torch.linalg.solve returns W column by column.
    x, weight, *state = [tensor.contiguous() for tensor in tensors]
    vectors = {name: value.contiguous() for name, value in vectors.items()}
    if not needs_gradient:
        states, saved = kernel.forward(x, Arguments(weight, tuple(state), parameters | vectors), False)
        return states[0], _final(kernel, states, saved)
    # The norms go through `forward`, because a Function has no other way to its context; in a tuple, because
    # autograd would take a tensor for an input.
    form = (kernel, parameters, tuple(vectors), norms, len(state))
    outputs, *others = _KernelFunction.apply(*form, x, weight, *state, *vectors.values())
    if output_map is not None:
        output_map.outputs, output_map.y = outputs, others.pop()
    return outputs, tuple(others)


def _output_map(kernel: type[Kernel], state: Tensor, parameters: Container[str]) -> OutputMap | None:
    """Return the expected output map if a kernel computes it, given the initial state `[B, n]` and the parameters."""
    output_map = _expected.get()
    if output_map is None or not kernel.reads or "input_weight" not in parameters:
        return None
    return output_map if output_map.weight.shape[1] == state.shape[1] else None


def _final(kernel: type[Kernel], states: State, saved: tuple[Tensor | None, ...]) -> State:
    if kernel.forgets_states:
        return tuple(each for each in saved[: len(states)] if each is not None)
    if kernel.returns_ends:
        return states[1:]
    # Clones, because a view of the last step would keep the states of all steps in memory.
    return tuple(state[-1].clone() for state in states)


class _KernelFunction(Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernel: type[Kernel],
        parameters: Mapping[str, Any],
        names: tuple[str, ...],
        norms: tuple[Tensor, ...],
        width: int,
        x: Tensor,
        weight: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the outputs of all steps, the final state, and y if there is an output map.

        `tensors` are the state's `width` tensors, then the parameters called `names`.
        """
        state, vectors = tensors[:width], dict(zip(names, tensors[width:], strict=True))
        states, saved, *y = kernel.forward(x, Arguments(weight, state, {**parameters, **vectors}), True)
        ctx.kernel, ctx.names, ctx.norms, ctx.width = kernel, names, norms, width
        ctx.parameters = {name: value for name, value in parameters.items() if name not in vectors}
        # x is not needed again. If it were kept, it would be the largest tensor of a training step.
        kept = states[:1] if kernel.returns_ends else states
        ctx.save_for_backward(weight, *tensors, *kept, *saved)
        ctx.set_materialize_grads(False)
        return states[0], *_final(kernel, states, saved), *y

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, tensors: State, gradient: Tensor | None, *others: Tensor | None) -> Any:
        """Return the gradients; None stays None, because writing zeros of the size of all states would be slow."""
        weight, *saved = tensors
        width, names = ctx.width, ctx.names
        state, vectors, rest = saved[:width], saved[width : width + len(names)], saved[width + len(names) :]
        kept = 1 if ctx.kernel.returns_ends else width
        final, output_gradient = others[:width], others[width] if len(others) > width else None
        if gradient is not None and final[0] is not None and not ctx.kernel.forgets_states:
            # A copy, because another node of the graph may hold the same gradient.
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            gradient[-1] += final[0]
            final = (None, *final[1:])
        tape = Tape(
            states=tuple(rest[:kept]),
            saved=tuple(rest[kept:]),
            gradient=None if gradient is None else gradient.contiguous(),
            final=tuple(None if each is None else each.contiguous() for each in final),
            norms=ctx.norms,
            needs_weight=ctx.needs_input_grad[6],
            output_gradient=None if output_gradient is None else output_gradient.contiguous(),
            needs_inputs=ctx.needs_input_grad[5],
        )
        parameters = ctx.parameters | dict(zip(names, vectors, strict=True))
        result = ctx.kernel.backward(Arguments(weight, tuple(state), parameters), tape)
        by_name = (result.parameters.get(name) for name in names)
        return *(None,) * 5, result.x, result.weight, *result.state, *by_name
