"""Compare a kernel with the reference on one case: outputs, final states, gradients and gradient norms.

For tests, and for the self-test of the CUDA kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthobench.recurrence.call import Call, GradientTrace, Result
from orthobench.recurrence.operation import Operation


def evaluate(
    run: Callable[[Call], Result],
    operation: Operation[...],
    parameters: Mapping[str, Any],
    names: Sequence[str],
    arguments: Sequence[Tensor],
    dtype: torch.dtype,
    traced: bool = False,
) -> dict[str, Tensor]:
    """Return outputs, final states, gradients of a linear loss for all arguments, and gradient norms through time.

    Without a trace, the result also has the gradients of a loss that depends only on the final states.

    Args:
        run: the `run` of a back end.
        parameters: the operation's parameters that are not vectors.
        names: the names of the parameters that are vectors.
        arguments: x, the weight and the initial state, followed by the vectors.
        dtype: the type of the computation.
        traced: whether to record gradient norms.
    """
    width = len(operation.states)
    x, weight, *others = [argument.detach().to(dtype).requires_grad_() for argument in arguments]
    trace = GradientTrace() if traced else None
    values = {**parameters, **dict(zip(names, others[width:], strict=True))}
    outputs, final = run(operation.call(x, weight, tuple(others[:width]), trace, **values))
    results = {
        "outputs": outputs,
        **{f"final {name}": each for name, each in zip(operation.states, final, strict=True)},
    }
    directions = [
        normal(*result.shape, seed=20 + i).to(result.device, dtype) for i, result in enumerate(results.values())
    ]
    leaves = dict(
        zip(("x", "W", *(f"{name}0" for name in operation.states), *names), (x, weight, *others), strict=True)
    )
    unused = {"allow_unused": True, "materialize_grads": True}  # the weight may be numbers of rows
    by = [*leaves.values()]
    gradients = torch.autograd.grad([*results.values()], by, directions, retain_graph=not traced, **unused)
    # A loss of only the final state may take another path through the kernels. It would fill a trace a second time.
    ends = () if traced else torch.autograd.grad(final, by, directions[1:], **unused)
    return {
        **{name: result.detach() for name, result in results.items()},
        **{f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)},
        **{f"gradient of {name} by the end": gradient for name, gradient in zip(leaves, ends, strict=False)},
        **{f"norms of {name}": norms for name, norms in (trace.norms if trace is not None else {}).items()},
    }


def problem(operation: Operation[...], parameters: Mapping[str, Any], n: int, batch: int, steps: int) -> list[Tensor]:
    """Return x, the weight, the initial state and the parameters that are tensors, as float32 values in float64.

    The operation has a matrix or is diagonal. Of `parameters`, tensors give only the lengths of vectors.
    """
    if operation.diagonal:
        weight = 0.8 * normal(operation.rows * n, seed=1).tanh()
    else:
        weight = normal(*operation.matrix_shape(n, parameters), seed=1) / n**0.5
    state = [normal(batch, n, seed=2 + i) for i in range(len(operation.states))]
    # The sLSTM divides by its state n, which is a sum of exponentials.
    state = [0.5 + each.abs() if name == "n" else each for name, each in zip(operation.states, state, strict=True)]
    vectors = [value for value in parameters.values() if isinstance(value, Tensor)]
    drawn = [0.5 * normal(len(vector), seed=10 + i) for i, vector in enumerate(vectors)]
    x = normal(steps, batch, operation.gates * n, seed=0)
    return [x, *map(single, (weight, *state, *drawn))]


def single(tensor: Tensor) -> Tensor:
    """Round to float32, and return the numbers in float64."""
    return tensor.float().double()


def normal(*shape: int, seed: int) -> Tensor:
    """Draw normal numbers, rounded to float32, with NumPy's old generator, which is the same in every version."""
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape).astype(np.float32)).double()


def distance(actual: Tensor, expected: Tensor) -> float:
    """Return the relative Frobenius distance, with a floor for sums that cancel; 0 without values, NaN if any is."""
    scale = float(expected.norm()) + 0.1 * math.sqrt(max(1, expected.numel()))
    return float((actual.double() - expected).norm()) / scale
