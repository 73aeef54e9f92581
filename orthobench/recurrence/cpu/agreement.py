"""Compare a C kernel with its definition on one small case: outputs, final states and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Inputs, Projection, Result
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.kernel_case import distance, evaluate, normal
from orthobench.recurrence.operation import Operation

STEPS, BATCH, FEATURES = 3, 17, 38  # a full tile of rows and a panel of columns, each with a remainder
TOLERANCE = 1e-4  # relative; float32 stays below 1e-5


def operation_agrees(operation: Operation[...]) -> bool:
    """Return whether the kernels agree in each variant, and with inputs that the kernel projects."""
    assert operation.forms is not None
    forms = list(operation.forms(FEATURES))
    cases = [(form, shape) for form in forms for shape in _weight_shapes(operation, form.parameters)]
    return all(
        form_agrees(operation, form.parameters, tuple(form.vectors), _arguments(operation, form.vectors, shape))
        for form, shape in cases
    ) and all(
        projected_form_agrees(operation, form.parameters, operation.gates * FEATURES, _arguments(operation, {}, shape))
        for form, shape in cases
        if not operation.diagonal
    )


def _weight_shapes(operation: Operation[...], parameters: Mapping[str, Any]) -> list[tuple[int, ...]]:
    n = FEATURES
    if not operation.diagonal:
        return [operation.matrix_shape(n, parameters)]
    return [(operation.rows * n,), *([(STEPS, BATCH, n)] if operation.rows == 1 else [])]


def _arguments(operation: Operation[...], vectors: Mapping[str, int], weight_shape: tuple[int, ...]) -> list[Tensor]:
    """Return x, the weight, the initial state and the vectors for a variant."""
    n = FEATURES
    x, weight = normal(STEPS, BATCH, operation.gates * n, seed=0), normal(*weight_shape, seed=1) / n**0.5
    others = [0.5 * normal(length, seed=10 + i) for i, length in enumerate(vectors.values())]
    return [x, weight, *_start(operation), *others]


def _start(operation: Operation[...]) -> list[Tensor]:
    """Return the initial state, in which a normaliser is positive because outputs are divided by it."""
    states = {name: normal(BATCH, FEATURES, seed=2 + i) for i, name in enumerate(operation.states)}
    return [state.abs() + 0.5 if name == "n" else state for name, state in states.items()]


def form_agrees(
    operation: Operation[...],
    parameters: Mapping[str, Any],
    names: Sequence[str],
    arguments: Sequence[Tensor],
    definition: Callable[[Call], Result] = reference.run,
) -> bool:
    """Return whether the kernel agrees with the definition, including the norms of gradients; see `evaluate`."""
    form = (operation, parameters, names, arguments)
    expected = evaluate(definition, *form, torch.float64, traced=True)
    try:
        actual = evaluate(cpu.run, *form, torch.float32, traced=True)
    except MemoryError:  # the error code of a kernel
        return False
    return all(is_close(actual[name], value) for name, value in expected.items())


def projected_form_agrees(
    operation: Operation[...], parameters: Mapping[str, Any], width: int, arguments: Sequence[Tensor]
) -> bool:
    """Return whether the kernel that computes x from a projection agrees, or True if the operation has no such kernel.

    `width` is the number of features of x. The arguments are x, which gives T and B, the weight and the state.
    """
    x, *others = arguments
    shapes = [(*x.shape[:2], 5), (width, 5), (width,)]
    arguments = [*(normal(*shape, seed=10 + i) for i, shape in enumerate(shapes)), *others]

    def in_kernel(*leaves: Tensor) -> list[Tensor]:
        outputs, final = cpu.run(projected_call(*leaves))
        return [outputs, *final]

    def projected_call(*leaves: Tensor) -> Call:
        u, input_weight, bias, weight, *state = leaves
        call = operation.call(u.new_empty(*u.shape[:2], width), weight, tuple(state), **parameters)
        return replace(call, x=Projection(u, input_weight, bias))

    def defined(u: Tensor, input_weight: Tensor, bias: Tensor, weight: Tensor, *state: Tensor) -> list[Tensor]:
        x = torch.nn.functional.linear(u, input_weight, bias)
        outputs, final = reference.run(operation.call(x, weight, state, **parameters))
        return [outputs, *final]

    single = [argument.float() for argument in arguments]
    if not cpu.makes(projected_call(*single)):
        return True
    has_gradient = cpu.makes(projected_call(single[0].requires_grad_(), *single[1:]))
    return agrees(in_kernel, defined, arguments, inputs=0 if has_gradient else 1)


def few_inputs_agree(
    operation: Operation[...],
    parameters: Mapping[str, Any],
    names: Sequence[str],
    arguments: Sequence[Tensor],
    has_first: bool = False,
) -> bool:
    """Return whether the kernel agrees if it computes x from 2 inputs, which need no gradient.

    Args:
        arguments: x, which gives the sizes, the weight and the initial state, followed by the parameters in `names`.
        has_first: whether the projection has an addend for the first step.
    """
    x, *others = arguments
    shapes = [(*x.shape[:2], 2), (x.shape[2], 2), *([x.shape[1:]] if has_first else [])]
    projection = [normal(*shape, seed=10 + i) for i, shape in enumerate(shapes)]
    width = len(operation.states)

    def results(run: Callable[[Call], Result], x: Inputs, weight: Tensor, *others: Tensor) -> list[Tensor]:
        vectors = dict(zip(names, others[width:], strict=True))
        call = operation.call(x, weight, others[:width], None, **parameters, **vectors)
        assert run is reference.run or cpu.makes(call)
        outputs, final = run(call)
        return [*([outputs] if outputs.numel() else []), *final]

    def in_kernel(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        first = others[0] if has_first else None
        return results(cpu.run, Projection(u, input_weight, first=first), *others[has_first:])

    def defined(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        x = torch.nn.functional.linear(u, input_weight)
        x = torch.cat((x[:1] + others[0], x[1:])) if has_first else x
        return results(reference.run, x, *others[has_first:])

    return agrees(in_kernel, defined, [*projection, *others], inputs=1)


def agrees(
    kernel: Callable[..., Sequence[Tensor]],
    definition: Callable[..., Sequence[Tensor]],
    arguments: Sequence[Tensor],
    inputs: int = 0,
) -> bool:
    """Return whether a float32 kernel agrees with its float64 definition in results and gradients.

    The first `inputs` arguments have no gradients.
    """

    def results(function: Callable[..., Sequence[Tensor]], dtype: torch.dtype) -> list[Tensor]:
        leaves = [argument.detach().to(dtype) for argument in arguments]
        by = [leaf.requires_grad_() for leaf in leaves[inputs:]]
        values = function(*leaves)
        directions = [normal(*value.shape, seed=20 + i).to(dtype) for i, value in enumerate(values)]
        gradients = torch.autograd.grad(values, by, directions, allow_unused=True, materialize_grads=True)
        return [*(value.detach() for value in values), *gradients]

    try:
        actual = results(kernel, torch.float32)
    except MemoryError:  # the error code of a kernel
        return False
    return all(map(is_close, actual, results(definition, torch.float64)))


def is_close(actual: Tensor, expected: Tensor) -> bool:
    return distance(actual, expected) <= TOLERANCE  # False for NaN
