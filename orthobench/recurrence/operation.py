"""The declaration of a recurrence: its shapes, its parameters and one step of it in PyTorch.

A declared operation checks its arguments and passes the call to a back end. `reference` differentiates the declared
step; the other back ends have kernels for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec

from torch import Tensor

from orthobench.recurrence import dispatch
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result, State, Weight
from orthobench.recurrence.trace import GradientTrace

P = ParamSpec("P")
Step = Callable[..., State]
"""A function of x_t `[B, gates * n]` and the state's tensors `[B, n]` that returns the next state."""


class Operation(Generic[P]):
    """A recurrence s_t = step(x_t, s_{t-1}); n is the number of features of each tensor of its state.

    Attributes:
        name: the name of the function that makes the step.
        step: makes the step from the weight and the parameters.
        states: names of the state's tensors.
        gates: number of blocks of n features in x.
        rows: number of blocks of n rows in the weight.
        sources: number of blocks of n columns in the weight. With a parameter `heads` a block has n / heads columns.
        diagonal: whether the weight has numbers of each unit instead, `[rows * n]`: the units are independent. With one
            row it is the diagonal of a matrix, or one diagonal for each step and row, `[T, B, n]`. The step is made
            from `[rows * n]`, or from one step's `[B, n]`.
        traced_states: the names of the states in a `GradientTrace`: "h" for the first, whatever the paper calls it.
            `traced` says how many, the first ones; a stabiliser, on which no output depends, has no gradient.
        check: returns the reason why n and the parameters do not fit, or None.
        widths: returns the number of features of x and of the weight, from n and the parameters, where the blocks do
            not give them. The weight is then one for each step and row, `[T, B, width]`, or a matrix that makes them
            from x_t, `[width, features of x]`.
        output: makes the output of a step `[B, outputs]` from x_t, the step's weight, the state and the parameters;
            None: the output is the first state.
    """

    def __init__(
        self,
        step: Callable[Concatenate[Any, P], Step],
        states: tuple[str, ...],
        gates: int,
        rows: int,
        sources: int,
        diagonal: bool,
        traced: int | None,
        check: Callable[..., str | None],
        widths: Callable[..., tuple[int, int]] | None = None,
        output: Callable[..., Tensor] | None = None,
    ) -> None:
        self.name, self.__doc__ = step.__name__, step.__doc__
        self.step, self.states, self.check = step, states, check
        self.gates, self.rows, self.sources, self.diagonal = gates, rows, sources, diagonal
        self.traced_states = ("h", *states[1:traced])
        self.widths, self.output = widths, output
        self._signature = inspect.signature(step)

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
            x: projected inputs `[T, B, gates * n]`, their projection or convolution; T and B are at least 1.
            weight: `[rows * n, sources * n]`; of a diagonal operation `[rows * n]`, or with one row `[T, B, n]`; see
                also `widths`.
            state: the initial state, tensors `[B, n]`.
            trace: receives ||dL/ds_t|| in the backward pass.
            args: the operation's parameters.
            kwargs: the operation's parameters by name.

        Returns:
            The outputs of every step, `[T, B, n]` for the first state, and the final state, tensors `[B, n]`. A loss of
            the final state alone trains faster from the latter: its gradient does not have the size of all states.

        Raises:
            ValueError: shapes, types or devices do not fit.
            BackendError: the chosen back end cannot serve the call.
        """
        return dispatch.run(self.call(x, weight, state, trace, *args, **kwargs))

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
        parameters = self._parameters(weight, *args, **kwargs)
        self._check(x, weight, state, parameters)
        return Call(self, x, weight, state, parameters, trace)

    def chosen_backend(self, x: Tensor, weight: Weight, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the name of the back end that would serve this call.

        Raises:
            BackendError: the chosen back end cannot serve it.
        """
        return dispatch.choose(Call(self, x, weight, (), self._parameters(weight, *args, **kwargs)))

    def matrix_shape(self, n: int, parameters: Mapping[str, Any]) -> tuple[int, int]:
        """Return the shape of a weight that is neither diagonal nor one for each step."""
        return self.rows * n, self.sources * n // max(1, parameters.get("heads", 1))

    def _parameters(self, weight: Weight, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        bound = self._signature.bind(weight, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])

    def _check(self, x: Inputs, weight: Weight, state: State, parameters: dict[str, Any]) -> None:
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
        width, weight_width = self.widths(n, **parameters) if self.widths else (self.gates * n, n)
        shapes: dict[str, tuple[Inputs, tuple[int, ...]]] = {"x": (x, (x.shape[0], batch, width))}
        tensors = [*state, *(value for value in parameters.values() if isinstance(value, Tensor))]
        if isinstance(weight, Tensor):
            per_step = self.widths is not None or (weight.dim() == 3 and self.rows == 1)
            diagonal = (x.shape[0], batch, weight_width) if per_step else (self.rows * n,)
            matrix = (weight_width, width) if self.widths else self.matrix_shape(n, parameters)
            is_matrix = weight.dim() == 2 if self.widths else not self.diagonal
            shapes["weight"] = weight, matrix if is_matrix else diagonal
            tensors.append(weight)
        elif self.rows * self.sources * self.gates != 1 or self.diagonal or self.widths:
            raise ValueError(f"{self.name}: the weight should be a tensor")
        shapes |= {f"{name}0": (tensor, (batch, n)) for name, tensor in zip(self.states, state, strict=True)}
        for name, (tensor, shape) in shapes.items():
            if tensor.shape != shape:
                raise ValueError(f"{self.name}: {name} {list(tensor.shape)} should be {list(shape)}")
        for tensor in tensors:
            if (tensor.dtype, tensor.device) != (x.dtype, x.device):
                raise ValueError(f"{self.name}: {tensor.dtype} on {tensor.device} beside x, {x.dtype} on {x.device}")
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
                    f"{self.name}: {tensor.dtype} on {tensor.device} beside inputs, {x.dtype} on {x.device}"
                )

    def _check_projection(self, x: Projection) -> None:
        inputs, weight, bias = x.inputs, x.weight, x.bias
        fits = weight.dim() == 2 and inputs.shape[-1:] == weight.shape[1:]
        if not fits or (bias is not None and bias.shape != weight.shape[:1]):
            sizes = [list(tensor.shape) for tensor in (inputs, weight, bias) if tensor is not None]
            raise ValueError(f"{self.name}: inputs, their weight and bias do not fit: {', '.join(map(str, sizes))}")
        for tensor in (weight, bias):
            if tensor is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
                raise ValueError(
                    f"{self.name}: {tensor.dtype} on {tensor.device} beside inputs, {x.dtype} on {x.device}"
                )


def operation(
    states: tuple[str, ...] = ("h",),
    gates: int = 1,
    rows: int | None = None,
    sources: int = 1,
    diagonal: bool = False,
    traced: int | None = None,
    check: Callable[..., str | None] = lambda n, **parameters: None,
    widths: Callable[..., tuple[int, int]] | None = None,
    output: Callable[..., Tensor] | None = None,
) -> Callable[[Callable[Concatenate[Any, P], Step]], Operation[P]]:
    """Declare an operation by the function that makes its step; see `Operation`. `rows` is `gates` by default."""
    rows = gates if rows is None else rows
    return lambda step: Operation(step, states, gates, rows, sources, diagonal, traced, check, widths, output)
