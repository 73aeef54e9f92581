"""Compare the C kernels with the reference, on a small case of each form, for `doctor --retest` and for tests.

A compiler may generate wrong code for some flags or processors without reporting an error.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from orthobench.recurrence import kernels, reference, workspace
from orthobench.recurrence.call import TANH, Projection
from orthobench.recurrence.cpu import cayley, matrix_products, optimiser
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.cpu.agreement import BATCH, FEATURES, STEPS, TOLERANCE, agrees, is_close, operation_agrees
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.operation import Operation
from orthobench.recurrence.ops import operations
from orthobench.recurrence.ops.plain import recurrence
from orthobench.recurrence.passes import (
    convolution,
    cross_entropy,
    gated_sum,
    head_norm,
    layer_norm,
    turned_heads,
)


def comparisons() -> dict[str, Callable[[], bool]]:
    """Return, for each operation and other kernel, a function that checks whether the kernels agree."""
    functions = {
        **{each.name: _comparison(each) for each in operations() if kernels.find(each, "cpu") is not None},
        "short_convolution": _convolution_agrees,
        "project": _projection_agrees,
        "readout": _readout_agrees,
        "layer_norm": _normalization_agrees,
        "pointwise": _pointwise_agrees,
        "head_norm": _head_norm_agrees,
        "turned_heads": _turned_heads_agree,
        "cross_entropy": _entropy_agrees,
        "optimiser": _steps_agree,
        "scaled_cayley": _cayley_agrees,
    }
    return {name: functools.partial(_with_gradients, function) for name, function in functions.items()}


def _comparison(operation: Operation[...]) -> Callable[[], bool]:
    """Return the comparison of an operation's kernels: over its variants, or else the one in its folder."""
    if operation.forms is not None:
        return functools.partial(operation_agrees, operation)
    function: Callable[[], bool] = getattr(
        importlib.import_module(f"{operation.folder}.comparison"), f"{operation.name}_agrees"
    )
    return function


def _with_gradients(agrees: Callable[[], bool]) -> bool:
    """Call the function with torch's gradients enabled, whatever the caller's mode."""
    with torch.inference_mode(False), torch.enable_grad():
        return agrees()


def _projection_agrees() -> bool:
    """Return whether the products of `project` and of its gradients agree."""
    dx, inputs = normal(STEPS, BATCH, FEATURES, seed=0), normal(STEPS, BATCH, 5, seed=1)
    weight, bias = normal(FEATURES, 5, seed=2), normal(FEATURES, seed=3)
    x, dinputs = workspace.take(*dx.shape), workspace.take(*inputs.shape)
    matrix_products.linear(inputs.float(), matrix_products.pack(weight.float()), bias.float(), x)
    matrix_products.linear(dx.float(), matrix_products.pack_transposed(weight.float()), None, dinputs)
    dweight = matrix_products.weight_gradient(dx.float(), inputs.float(), None)
    expected = inputs @ weight.T + bias, dx @ weight, dx.flatten(0, 1).T @ inputs.flatten(0, 1)
    return all(map(is_close, (x, dinputs, dweight), expected))


def _readout_agrees() -> bool:
    """Return whether an output map that the loop computes agrees in value and gradient."""
    sizes = (STEPS, BATCH, 5), (FEATURES, 5), (FEATURES, FEATURES), (BATCH, FEATURES), (7, FEATURES), (7,)

    def in_kernel(u: Tensor, input_weight: Tensor, weight: Tensor, state: Tensor, *output_map: Tensor) -> list[Tensor]:
        expected = kernels.OutputMap(*output_map)
        with kernels.expect(expected):
            cpu.run(recurrence.call(Projection(u, input_weight, None), weight, (state,), activation=TANH))
        assert expected.y is not None
        return [expected.y]

    def defined(u: Tensor, input_weight: Tensor, weight: Tensor, state: Tensor, *output_map: Tensor) -> list[Tensor]:
        x = torch.nn.functional.linear(u, input_weight)
        outputs, _ = reference.run(recurrence.call(x, weight, (state,), activation=TANH))
        return [torch.nn.functional.linear(outputs, *output_map)]

    return agrees(in_kernel, defined, [normal(*size, seed=seed) for seed, size in enumerate(sizes)], inputs=1)


def _normalization_agrees() -> bool:
    """Return whether the layer normalisation and its gradients agree."""
    leaves = [normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(((BATCH, 21), (21,), (21,)))]
    y, way = torch.nn.functional.layer_norm(leaves[0], (21,), leaves[1], leaves[2]), normal(BATCH, 21, seed=3)
    inputs, weight, bias = (leaf.detach().float() for leaf in leaves)
    actual, scales = layer_norm.in_c(inputs, weight, bias)
    expected = (y.detach(), *torch.autograd.grad(y, leaves, way))
    return all(map(is_close, (actual, *layer_norm.gradients(inputs, weight, scales, way.float())), expected))


def _pointwise_agrees() -> bool:
    """Return whether the passes between products agree with torch's, for whole vectors and a remainder."""
    x, skip, v, values = (normal(*shape, seed=i) for i, shape in enumerate(((5, 37), (37,), (5, 37), (5, 74))))
    return all(
        agrees(_single(kernel), _single(definition), arguments)
        for kernel, definition, arguments in (
            (gated_sum._SkipGelu.apply, gated_sum.skip_gelu, (3 * x, skip, v)),
            (gated_sum._GatedSum.apply, gated_sum.gated_sum, (x, values)),
        )
    )


def _single(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Return the function with its result in a list."""
    return lambda *arguments: [function(*arguments)]


def _turned_heads_agree() -> bool:
    """Return whether turned heads agree, with all pairs of whole vectors and some pairs of a remainder."""
    for size, pairs in ((32, 16), (21, 9)):
        heads = STEPS, BATCH, 2
        shapes = (STEPS, BATCH, size), (size,), (2, size), (*heads, pairs), (*heads, pairs)
        tensors = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        kernel, definition = (
            functools.partial(each, epsilon=0.1) for each in (turned_heads.in_c, turned_heads.in_pytorch)
        )
        if not agrees(_single(kernel), _single(definition), tensors):
            return False
    return True


def _head_norm_agrees() -> bool:
    """Return whether the normalisation of heads agrees without a gate, and with a gate that is read or computed."""
    heads, size, inputs = 2, 21, 3
    y, weight = normal(STEPS, BATCH, heads * size, seed=0), normal(size, seed=1)
    gate, gate_weight = normal(STEPS, BATCH, heads * size, seed=2), normal(heads * size, inputs, seed=3)
    u = normal(STEPS, BATCH, inputs, seed=6)

    def with_gate(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
        return lambda y, weight, *gates: [function(y, weight, 0.1, *gates)]

    def with_map(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
        return lambda u, y, weight, gate_weight: [function(y, weight, 0.1, Projection(u, gate_weight))]

    in_c, in_pytorch = head_norm.in_c, head_norm.in_pytorch
    return (
        agrees(with_gate(in_c), with_gate(in_pytorch), [y, weight])
        and agrees(with_gate(in_c), with_gate(in_pytorch), [y, weight, gate])
        and agrees(with_map(in_c), with_map(in_pytorch), [u, y, weight, gate_weight], inputs=1)
    )


def _entropy_agrees() -> bool:
    """Return whether the cross-entropy and its gradient agree."""
    logits, gradient = normal(BATCH, FEATURES, seed=0).requires_grad_(), workspace.take(BATCH, FEATURES)
    targets = torch.arange(BATCH, device="cpu")
    loss = torch.nn.functional.cross_entropy(logits, targets)
    (expected,) = torch.autograd.grad(loss, logits)
    actual = cross_entropy.mean(logits.detach().float(), targets, gradient)
    return abs(actual - loss.item()) <= TOLERANCE and is_close(BATCH * gradient, BATCH * expected)


def _steps_agree() -> bool:
    """Return whether steps of optimisers round as torch's operations, for each rule and both ways to average."""
    return all(
        _step_agrees(has_first, has_second, adds, first, second)
        for has_first, has_second, adds in itertools.product((False, True), repeat=3)
        for first, second in ((0.1, 0.001), (1.0, 0.75))
    )


@torch.no_grad()
def _step_agrees(has_first: bool, has_second: bool, adds: bool, first: float, second: float) -> bool:
    kept, inside, divisor, outside, keep, scale = 0.9, 1e-3, 0.987, 0.1, 0.999, -0.0123
    weight, gradient, average, squares = (normal(3, 67, seed=seed).float() for seed in range(4))
    squares.square_()
    actual = weight.clone(), average.clone() if has_first else None, squares.clone() if has_second else None
    numbers = {"first": first, "second": second, "kept": kept, "inside": inside, "divisor": divisor}
    numbers |= {"adds_first": adds, "adds_second": adds, "outside": outside, "keep": keep, "scale": scale}
    optimiser.SteppedWeights([actual]).step([gradient], numbers)
    average = average.mul_(kept).add_(gradient) if adds else average.lerp_(gradient, first)
    top = average if has_first else gradient
    weight.mul_(keep)
    if has_second and adds:
        squares.mul_(kept).addcmul_(gradient, gradient, value=second)
    elif has_second:
        squares.lerp_(gradient * gradient, second)
    if has_second:
        weight.addcdiv_(top, ((squares + inside).sqrt() / divisor).add_(outside), value=scale)
    else:
        weight.add_(top, alpha=scale)
    pairs = zip(actual, (weight, average, squares), strict=True)
    return all(mine is None or torch.equal(mine, expected) for mine, expected in pairs)


def _cayley_agrees() -> bool:
    """Return whether W and the gradient of A agree, for an inverse in either order."""
    n = FEATURES
    entries, gradient = normal(n * (n - 1) // 2, seed=0) / 8, normal(n, n, seed=1)
    signs = torch.ones(n, dtype=torch.float64, device="cpu")
    signs[n // 3 :] = -1
    skew = torch.zeros(n, n, dtype=torch.float64, device="cpu")
    skew[tuple(torch.triu_indices(n, n, 1, device="cpu"))] = entries
    identity = torch.eye(n, dtype=torch.float64, device="cpu")
    shifted = identity + skew - skew.T
    inverse = torch.linalg.inv_ex(shifted).inverse
    v = 2 * inverse.T @ (gradient * signs) @ inverse.T
    expected = (v.T - v)[tuple(torch.triu_indices(n, n, 1, device="cpu"))]
    by_column, by_row = inverse.T.contiguous().T, inverse.contiguous()
    weights = [cayley.cayley_weight(each, signs.float()) for each in (by_column, by_row)]
    return torch.equal(cayley.shifted_skew(entries.float(), n), identity + skew.float() - skew.float().T) and all(
        is_close(weight, (2 * inverse - identity) * signs)
        and is_close(kept, inverse.T)
        and is_close(cayley.cayley_gradient(gradient.float(), kept, signs.float()), expected)
        for weight, kept in weights
    )


def _convolution_agrees() -> bool:
    """Return whether the kernels of the short convolution agree, for sequences of one tile and of several."""
    for steps, taps, has_bias in ((3, 4, True), (37, 4, False), (19, 2, True)):
        shapes = [(steps, 2, FEATURES), (taps, FEATURES), (taps - 1, 2, FEATURES), *[(FEATURES,)] * has_bias]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        if not agrees(_single(convolution.in_c), _single(convolution.in_pytorch), arguments):
            return False
    return True
