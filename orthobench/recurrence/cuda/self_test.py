"""The self-test of the CUDA kernels: before its first use, each variant of an operation is compared with the reference.

A kernel may be wrong on an untried device, because of a compiler, a driver or a new architecture. The test compares
values and gradients with the reference in float64 on the same device. For `recurrence` it also measures how the norm of
a state drifts over 1,000 steps of an orthogonal W, which reveals a bias far below the rounding of one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthobench.recurrence import kernel_case, kernels, reference
from orthobench.recurrence.call import IDENTITY, Activation, Call, Result
from orthobench.recurrence.cuda.launch import TestedKernel
from orthobench.recurrence.operation import Operation
from orthobench.recurrence.ops import operations
from orthobench.recurrence.ops.plain import recurrence

STEPS = 4
DRIFT_STEPS = 1000
TOLERANCE = 3e-5
"""Relative Frobenius distance from float64. Over these steps float32 stays below 3e-6, whereas TF32 has 5e-4."""
DRIFT_TOLERANCE = 5e-7 * DRIFT_STEPS
"""Relative change of the norm. Float32 stays below 1e-5; a sum that rounds towards zero loses 4e-3."""
MAX_BATCH = 512
CLASSES = (64, 128, 192, 256, 512)
"""The largest number of features of each size class; one more class has all larger numbers."""

RunCall = Callable[[Call], Result]


@dataclass(frozen=True)
class KernelVariant:
    """A compiled variant of an operation: the operation, the kinds of its parameters, and its size class.

    Attributes:
        operation: the operation's name.
        details: words that name the kernel's variant, such as the activation's kind.
        size_class: the largest number of features in the class; None for the class without a limit.
    """

    operation: str
    details: tuple[str, ...]
    size_class: int | None

    def __str__(self) -> str:
        limit = f"n > {CLASSES[-1]}" if self.size_class is None else f"n <= {self.size_class}"
        return f"{' '.join((self.operation, *self.details))}, {limit}"


@dataclass(frozen=True)
class SelfTestErrors:
    """What a test measured: the largest relative errors by name, and the reason for a failure or None."""

    errors: Mapping[str, float]
    reason: str | None


def size_class(features: int) -> int | None:
    """Return the size class of a number of features, named by its largest number; None above all classes."""
    return next((limit for limit in CLASSES if features <= limit), None)


def forms(call: Call) -> tuple[KernelVariant, ...]:
    """Return the variants that a call needs: its own, and for `recurrence` also the test of the norm's drift."""
    limit = size_class(features(call))
    own = KernelVariant(call.operation.name, _details(call.parameters), limit)
    if call.operation is not recurrence:
        return (own,)
    return own, KernelVariant("recurrence", ("norm",), limit)


def features(call: Call) -> int:
    """Return n for a call, whose state may be missing."""
    return call.x.shape[-1] // call.operation.gates


def _details(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    words = []
    for name, value in parameters.items():
        if isinstance(value, Activation):
            words.append(value.kind.value)
        elif isinstance(value, Tensor) or (isinstance(value, bool) and value) or name == "step_size":
            words += [name] if value is not None else []
    return tuple(words)


def measure(run: RunCall, call: Call, form: KernelVariant) -> SelfTestErrors:
    """Measure one variant at the call's size and parameters, with a function that runs calls with the kernels.

    Raises:
        RuntimeError: the kernels cannot be compiled or launched, or the device lacks memory.
    """
    n, batch, device = features(call), min(call.x.shape[1], MAX_BATCH), call.x.device
    # Switched on, because a kernel's first call may come from an evaluation, which computes no gradients.
    with torch.inference_mode(False), torch.enable_grad():
        if form.details == ("norm",):
            return _drift(run, n, batch, device)
        assert isinstance(call.operation, Operation)
        return _agreement(run, call.operation, call.parameters, n, batch, device)


def _agreement(
    run: RunCall, operation: Operation[...], parameters: Mapping[str, Any], n: int, batch: int, device: torch.device
) -> SelfTestErrors:
    kernel = kernels.find(operation, "cuda")
    own = (
        kernel.problem(parameters, n, batch, STEPS) if kernel is not None and issubclass(kernel, TestedKernel) else None
    )
    arguments = [argument.to(device) for argument in own or problem(operation, parameters, n, batch)]
    names = tuple(name for name, value in parameters.items() if isinstance(value, Tensor))
    scalars = {name: value for name, value in parameters.items() if name not in names}
    expected = kernel_case.evaluate(reference.run, operation, scalars, names, arguments, torch.float64)
    rows = arguments[1].reshape(-1, arguments[1].shape[-1])
    if not float((rows @ rows.T).norm()) > 0:
        return SelfTestErrors({}, "the device computes nothing: a product of W is 0")
    actual = kernel_case.evaluate(run, operation, scalars, names, arguments, torch.float32)
    errors = {name: kernel_case.distance(actual[name], value) for name, value in expected.items()}
    wrong = [f"{name} {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE]  # NaN is wrong
    reason = f"differs from the reference: {', '.join(wrong)} (limit {TOLERANCE:.0e})" if wrong else None
    return SelfTestErrors(errors, reason)


def problem(operation: Operation[...], parameters: Mapping[str, Any], n: int, batch: int) -> list[Tensor]:
    """Return x, the weight, the initial state and the parameters that are vectors, as float32 values in float64.

    If an activation follows the product, x is computed from pre-activations that stay away from its kinks. A unit that
    crosses a kink would have a different gradient, however small the kernel's error is.
    """
    if operation.diagonal:
        weight = 0.8 * kernel_case.normal(operation.rows * n, seed=1).tanh()
    else:
        weight = kernel_case.normal(*operation.matrix_shape(n, parameters), seed=1) / n**0.5
    state = [kernel_case.normal(batch, n, seed=2 + i) for i in range(len(operation.states))]
    # The sLSTM divides by its state n, which is a sum of exponentials.
    state = [0.5 + each.abs() if name == "n" else each for name, each in zip(operation.states, state, strict=True)]
    vectors = [value for value in parameters.values() if isinstance(value, Tensor)]
    activation: Activation | None = parameters.get("activation")
    if operation is not recurrence or activation is None:
        x = kernel_case.normal(STEPS, batch, operation.gates * n, seed=0)
        drawn = [0.5 * kernel_case.normal(len(vector), seed=10 + i) for i, vector in enumerate(vectors)]
        return [x, _single(weight), *map(_single, state), *map(_single, drawn)]
    weight = _single(weight)
    generator = np.random.RandomState(10)
    drawn = [_single(torch.from_numpy(-0.5 + 0.04 * generator.rand(len(vector)))) for vector in vectors]
    step = operation.step(weight, **{**parameters, **({"bias": drawn[0]} if drawn else {})})
    h, steps = state[0], []
    for _ in range(STEPS):
        x = _single(_pre_activations(batch, n, activation, generator) - h @ weight.T)
        (h,) = step(x, h)
        steps.append(x)
    return [torch.stack(steps), weight, *state, *drawn]


def _pre_activations(batch: int, n: int, activation: Activation, generator: np.random.RandomState) -> Tensor:
    """Return z `[B, n]` with magnitudes of 0.1 to 0.4 or 0.6 to 1.2, because the kinks are at 0 and near 0.5."""
    pairs = n // 2 if activation.is_complex else n
    size = torch.from_numpy(generator.uniform(0.1, 0.4, (batch, pairs)))
    large = torch.from_numpy(generator.uniform(0.6, 1.2, (batch, pairs)))
    size = torch.where(torch.from_numpy(generator.rand(batch, pairs) < 0.6), large, size)
    if not activation.is_complex:
        return size * torch.from_numpy(generator.choice([-1.0, 1.0], (batch, n)))
    phase = torch.from_numpy(generator.uniform(0, 2 * np.pi, (batch, pairs)))
    return torch.stack((size * phase.cos(), size * phase.sin()), dim=-1).flatten(1)


def _single(tensor: Tensor) -> Tensor:
    """Round to float32, and return the numbers in float64."""
    return tensor.float().double()


def _drift(run: RunCall, n: int, batch: int, device: torch.device) -> SelfTestErrors:
    """Measure |h_T| / |h_0| of h_t = W h_{t-1} with an orthogonal W, relative to W^T h_0 in float64."""
    weight = torch.linalg.qr(kernel_case.normal(n, n, seed=0)).Q.float().to(device)
    start = kernel_case.normal(batch, n, seed=1).float().to(device)
    pieces = 10
    x, h = start.new_zeros(DRIFT_STEPS // pieces, batch, n), start
    with torch.no_grad():
        for _ in range(pieces):
            _, (h,) = run(recurrence.call(x, weight, (h,), None, IDENTITY))
        exact = start.double() @ torch.linalg.matrix_power(weight.double(), DRIFT_STEPS).T
        ratio = float(h.double().norm() / exact.norm())
    drift = abs(ratio - 1)
    limit = f"limit {DRIFT_TOLERANCE:.0e}"
    reason = None
    if not drift <= DRIFT_TOLERANCE:
        reason = (
            f"the norm of a state changes by {ratio - 1:+.1e} over {DRIFT_STEPS} steps of an orthogonal W ({limit})"
        )
    return SelfTestErrors({"norm": drift}, reason)


def examples(device: torch.device) -> list[Call]:
    """Return a call for each operation with compiled kernels and each class of sizes in the papers' models."""
    empty = functools.partial(torch.empty, dtype=torch.float32, device=device)

    def example(operation: Operation[...], n: int, *parameters: Any) -> Call:
        batch = 128
        vectors = [value.to(device) if isinstance(value, Tensor) else value for value in parameters]
        x = empty(1, batch, operation.gates * n)
        shape = operation.matrix_shape(n, operation.bind(None, *vectors))
        weight = empty(operation.rows * n) if operation.diagonal else empty(*shape)
        if operation.widths is not None:
            width, weight_width = operation.widths(n, *vectors)
            x, weight = empty(1, batch, width), empty(1, batch, weight_width)
        state = tuple(empty(batch, n) for _ in operation.states)
        return operation.call(x, weight, state, None, *vectors)

    calls = []
    for operation in operations():
        kernel = kernels.find(operation, "cuda")
        if kernel is not None and issubclass(kernel, TestedKernel):
            calls += kernel.examples(operation, functools.partial(example, operation))
    return calls
