"""A call of a recurrence: what it consists of, and the result that a back end returns for it.

An operation's declaration is one step in PyTorch, its shapes, and the variants in which kernels are tested. A call adds
the inputs, or what they are computed from, the weight, the state, the parameters, and a trace for gradient norms.

A parameter of many operations is the activation: the pointwise function in h_t = act(x_t + W h_{t-1}), in the numerical
forms of the papers' programs. z is the pre-activation `[..., n]`, b a trainable vector. In the complex forms unit j has
two real columns, 2j (real part) and 2j+1 (imaginary part). b has one entry for each complex unit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor


class Kind(StrEnum):
    IDENTITY = "identity"
    TANH = "tanh"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    MODRELU = "modrelu"
    COMPLEX_MODRELU = "complex_modrelu"
    COMPLEX_MODRELU_SMOOTH = "complex_modrelu_smooth"


@dataclass(frozen=True)
class Activation:
    """An activation.

    * identity, tanh, relu, leaky_relu: f(z + b); `slope` is the slope of leaky ReLU for negative inputs.
    * modrelu: sign(z) max(q + b, 0) with q = |z| + epsilon and sign(0) = 0. epsilon is 0 for scoRNN, 0.01 in the
      real EURNN program, 0.001 in GORU's.
    * complex_modrelu: (z / q) max(q + b, 0), q = |z| + epsilon; 0 at z = 0 (EURNN's program: epsilon = 0.01).
    * complex_modrelu_smooth: z max(rho + b, 0) / (rho + epsilon), rho = sqrt(epsilon + |z|^2)
      (the uRNN programs: epsilon = 1e-5).
    """

    kind: Kind
    slope: float = 0.1
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.kind is Kind.COMPLEX_MODRELU_SMOOTH and self.epsilon <= 0:
            raise ValueError(f"{self.kind} divides by epsilon at z = 0: it must be positive, not {self.epsilon}")

    @property
    def is_complex(self) -> bool:
        return self.kind in (Kind.COMPLEX_MODRELU, Kind.COMPLEX_MODRELU_SMOOTH)

    @property
    def number(self) -> str:
        """The name of its number, on which its gradient may depend."""
        return "slope" if self.kind is Kind.LEAKY_RELU else "epsilon"

    def bias_size(self, features: int) -> int:
        """Return the length of b for a state with this number of real features."""
        return features // 2 if self.is_complex else features

    def by_column(self, bias: Tensor) -> Tensor:
        """Return b with an entry for each real feature; the two columns of a complex unit share one."""
        return bias.repeat_interleave(2) if self.is_complex else bias

    def by_unit(self, gradient: Tensor) -> Tensor:
        """Return the gradient of b from that of `by_column` `[..., n]`, the same for both columns of a unit."""
        return gradient[..., ::2] if self.is_complex else gradient

    def __call__(self, z: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return act(z; b) for z `[..., n]`, elementwise or over pairs of columns; the shape is z's."""
        match self.kind:
            case Kind.MODRELU:
                return z.sign() * _shifted(z.abs() + self.epsilon, bias)
            case Kind.COMPLEX_MODRELU | Kind.COMPLEX_MODRELU_SMOOTH:
                pairs = z.reshape(*z.shape[:-1], -1, 2)
                scale = self._complex_scale(pairs.square().sum(-1), bias)
                return (pairs * scale.unsqueeze(-1)).reshape(z.shape)
        shifted = z if bias is None else z + bias
        match self.kind:
            case Kind.TANH:
                return shifted.tanh()
            case Kind.RELU:
                return shifted.relu()
            case Kind.LEAKY_RELU:
                return torch.where(shifted >= 0, shifted, self.slope * shifted)
        return shifted

    def _complex_scale(self, squared_modulus: Tensor, bias: Tensor | None) -> Tensor:
        if self.kind is Kind.COMPLEX_MODRELU_SMOOTH:
            rho = (squared_modulus + self.epsilon).sqrt()
            return _shifted(rho, bias) / (rho + self.epsilon)
        # Autograd must not reach the root's infinite slope at 0, where the output is 0 for any scale.
        zero = squared_modulus == 0
        q = torch.where(zero, 1.0, squared_modulus).sqrt() + self.epsilon
        return torch.where(zero, 0.0, _shifted(q, bias) / q)


def _shifted(modulus: Tensor, bias: Tensor | None) -> Tensor:
    return (modulus if bias is None else modulus + bias).relu()


IDENTITY = Activation(Kind.IDENTITY)
TANH = Activation(Kind.TANH)
RELU = Activation(Kind.RELU)
LEAKY_RELU = Activation(Kind.LEAKY_RELU)
MODRELU = Activation(Kind.MODRELU)


State = tuple[Tensor, ...]
"""The state that a recurrence carries from step to step: h, or h and c, each `[B, n]`."""

Step = Callable[..., State]
"""A function of x_t `[B, gates * n]` and the state's tensors `[B, n]` that returns the next state."""


@dataclass(frozen=True)
class Form:
    """A choice of an operation's parameters for which its kernels are compared with the reference.

    Attributes:
        parameters: the parameters that are not vectors, by name.
        vectors: the lengths of the parameters that are vectors, by name.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, int] = field(default_factory=dict)


class Declaration:
    """A recurrence s_t = step(x_t, s_{t-1}); n is the number of features of each tensor of its state.

    Attributes:
        name: the name of the function that returns the step.
        folder: the package that declares the operation. Its modules `cpu` and `cuda`, if any, contain its kernels.
        step: returns the step for a weight and the parameters.
        states: names of the state's tensors.
        gates: number of blocks of n features in x.
        rows: number of blocks of n rows in the weight.
        sources: number of blocks of n columns in the weight. With a parameter `heads` a block has n / heads columns.
        diagonal: whether the units are independent, so that the weight has numbers for each unit instead,
            `[rows * n]`. With one row it is the diagonal of a matrix, or one diagonal for each step and batch row,
            `[T, B, n]`. The step then takes `[rows * n]`, or one step's `[B, n]`.
        traced_states: the names of the states in a `GradientTrace`: "h" for the first, whatever the paper calls it.
            Only the first `traced` states are traced; a stabiliser, on which no output depends, has no gradient.
        check: returns the reason why n and the parameters do not fit, or None.
        widths: returns the number of features of x and of the weight, from n and the parameters, if they do not follow
            from the blocks. There is then one weight for each step and batch row, `[T, B, width]`, or a matrix that
            maps x_t to these weights, `[width, features of x]`.
        weights: returns the weights that the steps take, `[T, B, width]`, from x, the weight and the parameters, if the
            weight is a tensor for all steps; `widths` then returns its shape. Kernels compute them themselves.
        shape: returns the shape of a weight for all steps, from n and the parameters, if it does not follow from the
            blocks. The steps then apply W in parts.
        output: returns the output of a step `[B, outputs]` from x_t, the step's weight, the state and the parameters;
            if None, the output is the first state.
        forms: returns the variants to test at n features; None if only the tests of models compare its kernels.
        annotations: the types of the parameters, as the step's function declares them, by name.
        kernels: the kernels by the names of their back ends; see `kernels.kernel`, which registers them.
    """

    def __init__(
        self,
        step: Callable[..., Step],
        states: tuple[str, ...],
        gates: int,
        rows: int,
        sources: int,
        diagonal: bool,
        traced: int | None,
        check: Callable[..., str | None],
        widths: Callable[..., tuple[int, Any]] | None,
        weights: Callable[..., Tensor] | None,
        shape: Callable[..., tuple[int, int]] | None,
        output: Callable[..., Tensor] | None,
        forms: Callable[[int], Iterable[Form]] | None,
    ) -> None:
        self.name, self.folder, self.__doc__ = step.__name__, step.__module__, step.__doc__
        self.step, self.states, self.check = step, states, check
        self.gates, self.rows, self.sources, self.diagonal = gates, rows, sources, diagonal
        self.traced_states = ("h", *states[1:traced])
        self.widths, self.weights, self.shape = widths, weights, shape
        self.output, self.forms = output, forms
        self.kernels: dict[str, Any] = {}
        self._signature = inspect.signature(step)
        named = list(self._signature.parameters.values())[1:]  # without the weight
        self.annotations = {each.name: str(each.annotation) for each in named}
        self._defaults = {each.name: each.default for each in named}
        self._positional = [each.name for each in named if each.kind is each.POSITIONAL_OR_KEYWORD]

    def matrix_shape(self, n: int, parameters: Mapping[str, Any]) -> tuple[int, int]:
        """Return the shape of a weight that is a matrix for all steps, neither diagonal nor one per step."""
        if self.shape is not None:
            return self.shape(n, **parameters)
        return self.rows * n, self.sources * n // max(1, parameters.get("heads", 1))

    def bind(self, weight: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return every parameter by name, including defaults.

        Raises:
            TypeError: a parameter is missing or unknown.
        """
        values = {**self._defaults, **dict(zip(self._positional, args, strict=False)), **kwargs}
        repeated = kwargs and any(name in kwargs for name in self._positional[: len(args)])
        is_whole = len(args) <= len(self._positional) and len(values) == len(self._defaults) and not repeated
        if is_whole and all(value is not inspect.Parameter.empty for value in values.values()):
            return values  # the usual case, in a tenth of the time
        bound = self._signature.bind(weight, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])


class GradientTrace:
    """The norms of a loss's gradients with respect to the states of a recurrence.

    The backward pass of a recurrence that received the trace fills it. `norms[state]` is `[time, batch]`: for every
    sample the Euclidean norm of the total derivative dL/ds_t, through the output at t and through all later steps.

    With `of_sum`, `sums[state]` is `[time]`: the norm of their sum over the batch. Kernels do not compute this sum, so
    the reference runs the recurrence, and no run's record of back ends names it.
    """

    def __init__(self, of_sum: bool = False) -> None:
        self.of_sum = of_sum
        self.norms: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}

    def frobenius(self, state: str = "h") -> Tensor:
        """Return ||dL/dh_t||_F over the whole batch, `[time]`."""
        return self.norms[state].square().sum(-1).sqrt()

    def expect(self, x: Tensor, states: Sequence[str]) -> tuple[Tensor, ...]:
        """Return, for each state, a tensor of zeros `[T, B]` that a backward pass fills; x is `[T, B, *]`."""
        for state in states:
            self.norms[state] = x.new_zeros(x.shape[:2], dtype=x.dtype.to_real())
        return tuple(self.norms[state] for state in states)

    def watch(self, state: str, steps: Sequence[Tensor]) -> None:
        """Record the gradient that autograd accumulates in each of these tensors `[batch, n]`, one for each step."""
        first = steps[0]
        norms = first.new_zeros(len(steps), len(first), dtype=first.dtype.to_real())
        self.norms[state] = norms
        sums = norms.new_zeros(len(steps))
        if self.of_sum:
            self.sums[state] = sums

        def record(gradient: Tensor, t: int) -> None:
            norms[t] = torch.linalg.vector_norm(gradient, dim=-1)
            if self.of_sum:
                sums[t] = torch.linalg.vector_norm(gradient.sum(0))

        for t, step in enumerate(steps):
            if step.requires_grad:
                # t=t, because all hooks would otherwise record the last step.
                step.register_hook(lambda gradient, t=t: record(gradient, t))


Multiply = Callable[[Tensor], Tensor]
"""A function that maps rows h `[B, n]` to h W^T `[B, n]`."""

Weight = Tensor | Multiply

Result = tuple[Tensor, State]
"""The first state at every step, `[T, B, n]`, and the final state, tensors `[B, n]`."""


@dataclass(slots=True, eq=False)
class Projection:
    """The inputs x_t = U u_t + b of a recurrence; a back end may compute them step by step, without storing all of x.

    Attributes:
        inputs: u `[T, B, m]`.
        weight: U `[gates * n, m]`.
        bias: b `[gates * n]` or None.
        first: an addend of the first step's x `[B, gates * n]`, or None.
    """

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None = None
    first: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.inputs.shape[:-1], self.weight.shape[0]))

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs.dtype

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @property
    def is_cuda(self) -> bool:
        return self.inputs.is_cuda

    def dim(self) -> int:
        return self.inputs.dim()


@dataclass(slots=True, eq=False)
class Convolution:
    """The inputs x of a recurrence, if they are a short convolution (see `short_convolution`).

    A back end may compute them a few steps at a time, so that x is never stored whole.

    Attributes:
        source: the convolution's input, `[T, B, n]`.
        weight: `[taps, n]`.
        before: the source before the first step, `[taps - 1, B, n]`.
        bias: `[n]` or None.
    """

    source: Tensor | Projection
    weight: Tensor
    before: Tensor
    bias: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.source.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def is_cuda(self) -> bool:
        return self.source.is_cuda

    def dim(self) -> int:
        return self.source.dim()


Inputs = Tensor | Projection | Convolution
"""The inputs of a recurrence, or what they are computed from."""


def tensors_of(x: Inputs) -> tuple[Tensor | None, ...]:
    """Return the inputs, or the 4, 5 or 7 tensors from which they are computed; None for those that are absent."""
    if isinstance(x, Projection):
        return x.inputs, x.weight, x.bias, x.first
    return (*tensors_of(x.source), x.weight, x.before, x.bias) if isinstance(x, Convolution) else (x,)


@dataclass(slots=True, eq=False)
class Known:
    """What calls with the same shapes, types, devices and other values have in common, found out once.

    Attributes:
        fits: whether the CUDA back end has a kernel for them.
    """

    fits: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """A checked call of an operation.

    x is `[T, B, gates * n]`, the state's tensors are `[B, n]`, and `parameters` has every parameter by name. `is_plain`
    says whether kernels can read all tensors, see `plain_tensors.are_plain`. `known` is shared with similar calls.
    """

    operation: Declaration
    x: Inputs
    weight: Weight
    state: State
    parameters: Mapping[str, Any]
    trace: GradientTrace | None = None
    is_plain: bool = True
    known: Known = field(default_factory=Known)

    @property
    def is_mapped(self) -> bool:
        """Whether the weight is a matrix that maps x to the weights of all steps."""
        maps = self.operation.widths is not None and self.operation.weights is None
        return maps and isinstance(self.weight, Tensor) and self.weight.dim() == 2
