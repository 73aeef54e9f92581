"""Operations: recurrences that can be called, and the choice of the back end that runs a call.

An operation checks its arguments first. By default (`auto`), the kernels for the call's device run it: C on the CPU and
CUDA C++ or Triton on CUDA, all in float32. `reference` runs all other calls.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Concatenate, Generic, ParamSpec

import torch
from torch import Tensor

from orthobench.recurrence import backends, kernels, plain_tensors, reference
from orthobench.recurrence.call import (
    Call,
    Convolution,
    Declaration,
    Form,
    GradientTrace,
    Inputs,
    Known,
    Projection,
    Result,
    State,
    Step,
    Weight,
    tensors_of,
)
from orthobench.recurrence.kernels import Kernel
from orthobench.recurrence.passes.convolution import short_convolution
from orthobench.recurrence.projection import add_to_first, project

_logger = logging.getLogger("orthobench.recurrence")
_logged: set[str] = set()
_SIGNATURES = 1000  # that an operation keeps; tests of many lengths have more


def run(call: Call) -> Result:
    """Run a call on the chosen back end and record its name.

    Raises:
        BackendError: the back end cannot run the call.
    """
    name = choose(call)
    if not _is_of_sum(call):
        backends.record_used(name)
    kernel = kernel_of(call, name)
    if (x := _resolved(call.x, kernel, call.parameters)) is not call.x:
        call = replace(call, x=x)
    if call.is_mapped and not kernel.makes_weights:
        assert isinstance(call.x, Tensor)
        assert isinstance(call.weight, Tensor)
        call = replace(call, weight=project(call.x, call.weight))
    result: Result = _module(name).run(call)
    return result


def kernel_of(call: Call, name: str) -> type[Kernel]:
    """Return the kernel that runs a call on a back end; the reference's kernel never computes inputs itself."""
    return kernels.find(call.operation, name) or Kernel


def _resolved(x: Inputs, kernel: type[Kernel], parameters: Mapping[str, Any]) -> Inputs:
    """Return the call's inputs, after computing what the kernel does not compute itself."""
    source = x.source if isinstance(x, Convolution) else x
    adds = kernel.adds_first or isinstance(source, Tensor) or source.first is None
    if isinstance(x, Tensor) or (adds and kernel.makes(x, parameters)):
        return x
    if isinstance(x, Convolution):
        x = replace(x, source=resolved(x.source))
        return x if kernel.makes(x, parameters) else resolved(x)
    return resolved(x)


def resolved(x: Inputs) -> Tensor:
    """Return the inputs, computed from their projection or convolution."""
    if isinstance(x, Convolution):
        return short_convolution(resolved(x.source), x.weight, x.before, x.bias)
    if isinstance(x, Tensor):
        return x
    projected = project(x.inputs, x.weight, x.bias)
    return projected if x.first is None else add_to_first(projected, x.first)


def choose(call: Call) -> str:
    """Return the name of the back end for this call, one of BACKENDS.

    Raises:
        BackendError: the back end set by `use_backend` or `set_backend` cannot run the call.
    """
    if plain_tensors.needs_torch() or _is_of_sum(call):
        return backends.REFERENCE
    name = backends.chosen_backend()
    if name != backends.AUTO:
        if reason := _unsupported(name, call) or _module(name).unusable(call):
            raise backends.BackendError(f"{call.operation.name}: back end {name} cannot serve this: {reason}")
        return name
    device = call.x.device.type
    if device not in backends.BACKENDS or call.x.dtype != torch.float32:
        return backends.REFERENCE
    if reason := _unsupported(device, call):
        _log_once(logging.INFO, f"{call.operation.name}: not on back end {device}: {reason}")
    elif reason := _module(device).unusable(call):
        slower = _module(device).SLOWER_WITHOUT
        consequence = f"the recurrences run in PyTorch instead, {slower} (back end {backends.REFERENCE})"
        _log_once(logging.WARNING, f"{reason}; {consequence}; orthobench doctor shows what to do")
    else:
        return device
    return backends.REFERENCE


def _is_of_sum(call: Call) -> bool:
    """Return whether a trace asks for something that only the reference records."""
    return call.trace is not None and call.trace.of_sum


def _unsupported(name: str, call: Call) -> str | None:
    if name != backends.REFERENCE and not call.is_plain:
        return "a tensor is not plain: it wraps another one, is sparse, or has a negative bit"
    try:
        reason: str | None = _module(name).unsupported(call)
    except ImportError as error:
        return f"it cannot be imported ({error})"
    return reason


@functools.cache
def _module(name: str) -> ModuleType:
    """Import a back end's module, which has `run`, `unsupported` and `unusable`; the import may take seconds."""
    if name == backends.REFERENCE:
        return reference
    return importlib.import_module({"cpu": f"{__package__}.cpu.native", "cuda": f"{__package__}.cuda.backend"}[name])


def _log_once(level: int, message: str) -> None:
    if message not in _logged:
        # Once, because training makes the same call again in every iteration.
        _logged.add(message)
        _logger.log(level, "%s", message)


P = ParamSpec("P")


class Operation(Declaration, Generic[P]):
    """A recurrence, as its step declares it; see `Declaration` for the attributes."""

    def __init__(self, *declaration: Any) -> None:
        super().__init__(*declaration)
        self._fitting: dict[tuple[Any, ...], Known] = {}  # by the signatures of arguments that fit

    def __call__(
        self,
        x: Inputs,
        weight: Weight,
        state: State,
        trace: GradientTrace | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Result:
        """Run all steps.

        Args:
            x: projected inputs `[T, B, gates * n]`, or their projection or convolution; T and B are at least 1.
            weight: `[rows * n, sources * n]`; for a diagonal operation `[rows * n]`, or with one row `[T, B, n]`; see
                also `widths`.
            state: the initial state, tensors `[B, n]`.
            trace: receives ||dL/ds_t|| in the backward pass.
            args: the operation's parameters.
            kwargs: the operation's parameters by name.

        Returns:
            The outputs of every step, `[T, B, n]` for the first state, and the final state, tensors `[B, n]`. A loss of
            only the final state trains faster from the latter, because its gradient is smaller than all states.

        Raises:
            ValueError: shapes, types or devices do not fit.
            BackendError: the chosen back end cannot run the call.
        """
        return run(self.call(x, weight, state, trace, *args, **kwargs))

    def call(
        self,
        x: Inputs,
        weight: Weight,
        state: State,
        trace: GradientTrace | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Call:
        """Return the checked call, for a back end to run; see `__call__`.

        Raises:
            ValueError: shapes, types or devices do not fit.
        """
        parameters = self.bind(weight, *args, **kwargs)
        values = (*tensors_of(x), *state, *parameters.values(), weight)
        known = self._check(x, weight, state, parameters, values)
        return Call(self, x, weight, state, parameters, trace, plain_tensors.are_plain(values), known)

    def chosen_backend(self, x: Tensor, weight: Weight, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the name of the back end that would run this call.

        Raises:
            BackendError: the chosen back end cannot run it.
        """
        return choose(Call(self, x, weight, (), self.bind(weight, *args, **kwargs)))

    def _check(
        self, x: Inputs, weight: Weight, state: State, parameters: dict[str, Any], values: tuple[Any, ...]
    ) -> Known:
        """Check the arguments, once for each combination of shapes, types, devices and other values."""
        signature: list[Any] = [type(x)]
        for value in values:
            if isinstance(value, Tensor):
                signature += value.shape, value.dtype, value.device
            elif value is not weight:
                signature.append(value)
        key = tuple(signature)
        try:
            if (known := self._fitting.get(key)) is not None:
                return known
        except TypeError:  # a value has no hash, such as a size that is a symbol
            key = ()
        self._check_all(x, weight, state, parameters)
        if len(self._fitting) >= _SIGNATURES:
            self._fitting.clear()
        known = Known()
        if key:
            self._fitting[key] = known
        return known

    def _check_all(self, x: Inputs, weight: Weight, state: State, parameters: dict[str, Any]) -> None:
        if isinstance(x, Convolution):
            self._check_convolution(x)
        source = x.source if isinstance(x, Convolution) else x
        if isinstance(source, Projection):
            self._check_projection(source)
        if x.dim() != 3 or 0 in x.shape:
            raise ValueError(f"{self.name}: x {list(x.shape)} should be [time, batch, features], none of them 0")
        if len(state) != len(self.states):
            raise ValueError(f"{self.name}: the state should be {len(self.states)} tensors, not {len(state)}")
        n, batch = state[0].shape[-1], x.shape[1]
        if self.widths and (reason := self.check(n, **parameters)):
            raise ValueError(f"{self.name}: {reason}")
        width: int
        weight_width: Any
        width, weight_width = self.widths(n, **parameters) if self.widths else (self.gates * n, n)
        shapes: dict[str, tuple[Inputs, tuple[int, ...]]] = {"x": (x, (x.shape[0], batch, width))}
        tensors = [*state, *(value for value in parameters.values() if isinstance(value, Tensor))]
        if isinstance(weight, Tensor):
            per_step = self.widths is not None or (weight.dim() == 3 and self.rows == 1)
            diagonal = (x.shape[0], batch, weight_width) if per_step else (self.rows * n,)
            matrix = (weight_width, width) if self.widths else self.matrix_shape(n, parameters)
            is_matrix = weight.dim() == 2 if self.widths else not self.diagonal
            shapes["weight"] = weight, weight_width if self.weights else matrix if is_matrix else diagonal
            tensors.append(weight)
        elif self.rows * self.sources * self.gates != 1 or self.diagonal or self.widths:
            raise ValueError(f"{self.name}: the weight should be a tensor")
        shapes |= {f"{name}0": (tensor, (batch, n)) for name, tensor in zip(self.states, state, strict=True)}
        for name, (tensor, shape) in shapes.items():
            if tensor.shape != shape:
                raise ValueError(f"{self.name}: {name} {list(tensor.shape)} should be {list(shape)}")
        for tensor in tensors:
            if (tensor.dtype, tensor.device) != (x.dtype, x.device):
                raise ValueError(f"{self.name}: {tensor.dtype} on {tensor.device}, but x is {x.dtype} on {x.device}")
        if reason := self.check(n, **parameters):
            raise ValueError(f"{self.name}: {reason}")

    def _check_convolution(self, x: Convolution) -> None:
        weight, before, bias = x.weight, x.before, x.bias
        taps, width = len(weight) if weight.dim() else 0, x.shape[-1]
        if taps < 2 or weight.shape != (taps, width) or before.shape != (taps - 1, *x.shape[1:]):
            sizes = ", ".join(str(list(each.shape)) for each in (x, weight, before))
            raise ValueError(f"{self.name}: source, weight and earlier inputs of the convolution do not fit: {sizes}")
        if bias is not None and bias.shape != (width,):
            raise ValueError(f"{self.name}: the bias {list(bias.shape)} of the convolution should be [{width}]")
        for tensor in (weight, before, *(() if bias is None else (bias,))):
            if (tensor.dtype, tensor.device) != (x.dtype, x.device):
                raise ValueError(
                    f"{self.name}: {tensor.dtype} on {tensor.device}, but the inputs are {x.dtype} on {x.device}"
                )

    def _check_projection(self, x: Projection) -> None:
        inputs, weight, bias, first = x.inputs, x.weight, x.bias, x.first
        fits = weight.dim() == 2 and inputs.shape[-1:] == weight.shape[1:]
        fits = fits and (first is None or first.shape == x.shape[1:])
        if not fits or (bias is not None and bias.shape != weight.shape[:1]):
            sizes = [list(tensor.shape) for tensor in (inputs, weight, bias, first) if tensor is not None]
            raise ValueError(f"{self.name}: inputs, their weight and bias do not fit: {', '.join(map(str, sizes))}")
        for tensor in (weight, bias, first):
            if tensor is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
                raise ValueError(
                    f"{self.name}: {tensor.dtype} on {tensor.device}, but the inputs are {x.dtype} on {x.device}"
                )


def operation(
    states: tuple[str, ...] = ("h",),
    gates: int = 1,
    rows: int | None = None,
    sources: int = 1,
    diagonal: bool = False,
    traced: int | None = None,
    check: Callable[..., str | None] = lambda n, **parameters: None,
    widths: Callable[..., tuple[int, Any]] | None = None,
    weights: Callable[..., Tensor] | None = None,
    shape: Callable[..., tuple[int, int]] | None = None,
    output: Callable[..., Tensor] | None = None,
    forms: Callable[[int], Iterable[Form]] | None = lambda n: [Form()],
) -> Callable[[Callable[Concatenate[Any, P], Step]], Operation[P]]:
    """Declare an operation by the function that returns its step; see `Declaration`. `rows` is `gates` by default."""
    rows = gates if rows is None else rows
    return lambda step: Operation(
        step, states, gates, rows, sources, diagonal, traced, check, widths, weights, shape, output, forms
    )
