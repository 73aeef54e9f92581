"""The comparison of freshly compiled C kernels with the reference, on a small case of each operation and form.

A compiler, its flags or its processor may make wrong code without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthobench.recurrence import cpu, native, operations, reference
from orthobench.recurrence.activations import LEAKY_RELU, MODRELU, Activation, Kind
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.operation import Operation
from orthobench.recurrence.trace import GradientTrace

_STEPS, _BATCH, _FEATURES = 3, 17, 38  # a full tile of rows and a panel of columns, each with a remainder
_TOLERANCE = 1e-4  # relative; float32 stays below 1e-5
_Form = tuple[Operation[...], dict[str, Any], dict[str, int]]


def _forms() -> Iterator[_Form]:
    """Yield each operation with its parameters, and with the lengths of those that are vectors."""
    n = _FEATURES
    for kind in Kind:
        activation = LEAKY_RELU if kind is Kind.LEAKY_RELU else Activation(kind, epsilon=0.01)
        for step_size in (None, 0.1):
            for vectors in ({}, {"bias": activation.bias_size(n)}):
                yield operations.recurrence, {"activation": activation, "step_size": step_size}, vectors
    yield operations.gated_recurrence, {"step_size": 0.3}, {}
    yield operations.lstm, {}, {}
    yield operations.gru, {}, {}
    yield operations.gru, {"reset_after": True}, {"candidate_bias": n}
    yield operations.gru, {"activation": MODRELU}, {"activation_bias": n}
    yield operations.gru, {"activation": MODRELU, "reset_after": True}, {"candidate_bias": n, "activation_bias": n}
    yield operations.cornn, {"step_size": 0.3, "frequency": 2.7, "damping": 1.3}, {}
    yield operations.lem, {"step_size": 0.7}, {}
    yield operations.lipschitz, {"step_size": 0.3}, {}
    yield operations.diagonal_recurrence, {}, {}
    yield operations.diagonal_recurrence, {"is_complex": True}, {}


def _weight_shapes(operation: Operation[...]) -> list[tuple[int, ...]]:
    n = _FEATURES
    return [(n,), (_STEPS, _BATCH, n)] if operation.diagonal else [(operation.rows * n, operation.sources * n)]


def comparisons() -> dict[str, Callable[[], bool]]:
    """Return for each operation, and for `project`, a function that tells whether the kernels agree."""
    by_name: dict[str, list[_Form]] = {}
    for form in _forms():
        by_name.setdefault(form[0].name, []).append(form)
    functions: dict[str, Callable[[], bool]] = {
        name: functools.partial(_operation_agrees, forms) for name, forms in by_name.items()
    }
    return {**functions, "project": _projection_agrees}


def _operation_agrees(forms: list[_Form]) -> bool:
    with torch.inference_mode(False), torch.enable_grad():
        for form in forms:
            for weight_shape in _weight_shapes(form[0]):
                expected = _evaluate(reference.run, *form, weight_shape, torch.float64)
                try:
                    actual = _evaluate(cpu.run, *form, weight_shape, torch.float32)
                except MemoryError:  # the error code of a kernel
                    return False
                if not all(map(_is_close, actual, expected)):
                    return False
    return True


def _projection_agrees() -> bool:
    """Return whether the product that gives the gradient of `project` agrees."""
    with torch.inference_mode(False), torch.no_grad():
        dx, inputs = _normal(_STEPS, _BATCH, _FEATURES, seed=0), _normal(_STEPS, _BATCH, 5, seed=1)
        actual = native.weight_gradient(dx.float(), inputs.float(), None)
        return _is_close(actual, dx.flatten(0, 1).T @ inputs.flatten(0, 1))


def _evaluate(
    run: Callable[[Call], Result],
    operation: Operation[...],
    parameters: Mapping[str, Any],
    vectors: Mapping[str, int],
    weight_shape: tuple[int, ...],
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return outputs, final states, gradients by all arguments, and gradient norms through time."""
    n, width = _FEATURES, len(operation.states)
    shapes = [(_STEPS, _BATCH, operation.gates * n), weight_shape, *[(_BATCH, n)] * width]
    arguments = [_normal(*shape, seed=seed).to(dtype) for seed, shape in enumerate(shapes)]
    arguments += [0.5 * _normal(length, seed=10 + i).to(dtype) for i, length in enumerate(vectors.values())]
    arguments[1] /= n**0.5
    x, weight, *others = [argument.requires_grad_() for argument in arguments]
    trace = GradientTrace()
    values = {**parameters, **dict(zip(vectors, others[width:], strict=True))}
    outputs, final = run(operation.call(x, weight, tuple(others[:width]), trace, **values))
    results = (outputs, *final)
    directions = [_normal(*result.shape, seed=20 + i).to(dtype) for i, result in enumerate(results)]
    gradients = torch.autograd.grad(results, arguments, directions)
    return [*(result.detach() for result in results), *gradients, *trace.norms.values()]


def _normal(*shape: int, seed: int) -> Tensor:
    """Return normal numbers that float32 holds; NumPy's old generator gives the same ones in every version."""
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape).astype(np.float32)).double()


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    """Return whether the relative Frobenius distance is small, with a floor for sums that cancel."""
    scale = float(expected.norm()) + 0.1 * expected.numel() ** 0.5
    distance = float((actual.double() - expected).norm())
    return bool(distance <= _TOLERANCE * scale)  # False for NaN
