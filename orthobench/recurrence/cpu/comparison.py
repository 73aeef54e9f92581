"""The comparison of freshly compiled C kernels with the reference, on a small case of each form.

A compiler, its flags or its processor may make wrong code without an error.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import (
    convolution,
    entropy,
    head_normalization,
    kernels,
    normalization,
    operations,
    pointwise,
    readout,
    reference,
    selective_gate,
)
from orthobench.recurrence.activations import IDENTITY, LEAKY_RELU, MODRELU, RELU, TANH, Activation, Kind
from orthobench.recurrence.call import Call, Convolution, Inputs, Projection, Result
from orthobench.recurrence.comparison import distance, evaluate, normal
from orthobench.recurrence.cpu import backend as cpu
from orthobench.recurrence.cpu import native
from orthobench.recurrence.operation import Operation

_STEPS, _BATCH, _FEATURES = 3, 17, 38  # a full tile of rows and a panel of columns, each with a remainder
_TOLERANCE = 1e-4  # relative; float32 stays below 1e-5
_CONVOLVED = (  # taps, inputs, corrections a step, whether outputs are read, keys, values; 32 and 32 have kernels apart
    (4, 1, 8, False, 5, 18),
    (4, 0, 1, True, 5, 18),
    (3, 2, 1, True, 5, 18),
    (4, 1, 2, True, 32, 32),
)
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
    for activation in (IDENTITY, RELU, TANH):
        yield operations.independent_recurrence, {"activation": activation}, {}
    for cell in (operations.min_gru, operations.min_lstm):
        yield cell, {"positive": True}, {}
        yield cell, {"positive": False}, {}
    yield operations.oscillators, {}, {}
    yield operations.slstm, {"heads": 2}, {}
    yield operations.slstm, {"exponential_forget": True}, {}


def _weight_shapes(operation: Operation[...], parameters: Mapping[str, Any]) -> list[tuple[int, ...]]:
    n = _FEATURES
    if not operation.diagonal:
        return [operation.matrix_shape(n, parameters)]
    return [(operation.rows * n,), *([(_STEPS, _BATCH, n)] if operation.rows == 1 else [])]


def comparisons() -> dict[str, Callable[[], bool]]:
    """Return for each operation and other kernel a function that tells whether the kernels agree."""
    by_name: dict[str, list[_Form]] = {}
    for form in _forms():
        by_name.setdefault(form[0].name, []).append(form)
    functions: dict[str, Callable[[], bool]] = {
        name: functools.partial(_operation_agrees, forms) for name, forms in by_name.items()
    }
    return {
        **functions,
        "delta_rule": _delta_rule_agrees,
        "selective_scan": _selective_scan_agrees,
        "mlstm": _mlstm_agrees,
        "short_convolution": _convolution_agrees,
        "project": _projection_agrees,
        "readout": _readout_agrees,
        "layer_norm": _normalization_agrees,
        "pointwise": _pointwise_agrees,
        "head_norm": _head_norm_agrees,
        "cross_entropy": _entropy_agrees,
    }


def _operation_agrees(forms: list[_Form]) -> bool:
    """Return whether the kernels agree in each form, and with inputs that the kernel projects."""
    with torch.inference_mode(False), torch.enable_grad():
        for operation, parameters, vectors in forms:
            for weight_shape in _weight_shapes(operation, parameters):
                names, arguments = tuple(vectors), _arguments(operation, vectors, weight_shape)
                expected = evaluate(reference.run, operation, parameters, names, arguments, torch.float64, traced=True)
                try:
                    actual = evaluate(cpu.run, operation, parameters, names, arguments, torch.float32, traced=True)
                except MemoryError:  # the error code of a kernel
                    return False
                if not all(_is_close(actual[name], value) for name, value in expected.items()):
                    return False
        return all(
            _projected_form_agrees(operation, parameters, operation.gates * _FEATURES, _arguments(operation, {}, shape))
            for operation, parameters, _ in forms
            for shape in _weight_shapes(operation, parameters)
            if not operation.diagonal
        )


def _projected_form_agrees(
    operation: Operation[...], parameters: Mapping[str, Any], width: int, arguments: Sequence[Tensor]
) -> bool:
    """Return whether the kernel that makes x from a projection agrees, or True if the operation has none.

    `width` is the number of features of x. The arguments are x, which gives T and B, the weight and the state.
    """
    x, *others = arguments
    shapes = [(*x.shape[:2], 5), (width, 5), (width,)]
    arguments = [*(normal(*shape, seed=10 + i) for i, shape in enumerate(shapes)), *others]

    def gradients(run: Callable[[Call], Result], dtype: torch.dtype) -> list[Tensor] | None:
        leaves = [argument.detach().to(dtype).requires_grad_() for argument in arguments]
        u, input_weight, bias, weight, *state = leaves
        makes_gradient = operation.name in cpu.INPUT_GRADIENTS
        u.requires_grad_(makes_gradient)
        x = torch.nn.functional.linear(u, input_weight, bias)
        call = operation.call(x, weight, tuple(state), **parameters)
        if run is cpu.run:
            call = replace(call, x=Projection(u, input_weight, bias))
            if not cpu.projects(call):
                return None
        outputs, final = run(call)
        results = [outputs, *final]
        directions = [normal(*result.shape, seed=20 + i).to(dtype) for i, result in enumerate(results)]
        by_leaf = torch.autograd.grad(results, leaves if makes_gradient else leaves[1:], directions)
        return [*(result.detach() for result in results), *by_leaf]

    try:
        actual = gradients(cpu.run, torch.float32)
    except MemoryError:
        return False
    expected = [] if actual is None else gradients(reference.run, torch.float64)
    return actual is None or all(map(_is_close, actual, expected or []))


@torch.inference_mode(False)
@torch.no_grad()
def _projection_agrees() -> bool:
    """Return whether the products of `project` agree, and those of its gradients."""
    dx, inputs = normal(_STEPS, _BATCH, _FEATURES, seed=0), normal(_STEPS, _BATCH, 5, seed=1)
    weight, bias = normal(_FEATURES, 5, seed=2), normal(_FEATURES, seed=3)
    x, dinputs = torch.empty(dx.shape), torch.empty(inputs.shape)
    native.linear(inputs.float(), native.pack(weight.float()), bias.float(), x)
    native.linear(dx.float(), native.pack_transposed(weight.float()), None, dinputs)
    dweight = native.weight_gradient(dx.float(), inputs.float(), None)
    expected = inputs @ weight.T + bias, dx @ weight, dx.flatten(0, 1).T @ inputs.flatten(0, 1)
    return all(map(_is_close, (x, dinputs, dweight), expected))


@torch.inference_mode(False)
@torch.enable_grad()
def _readout_agrees() -> bool:
    """Return whether an output map agrees that the loop makes in value and gradient."""
    sizes = (_STEPS, _BATCH, 5), (_FEATURES, 5), (_FEATURES, _FEATURES), (_BATCH, _FEATURES), (7, _FEATURES), (7,)
    way, results = normal(_STEPS, _BATCH, 7, seed=9), []
    for run, dtype in ((cpu.run, torch.float32), (reference.run, torch.float64)):
        u, *leaves = (normal(*size, seed=seed).to(dtype) for seed, size in enumerate(sizes))
        input_weight, weight, state, output_weight, bias = (leaf.requires_grad_() for leaf in leaves)
        in_loop = run is cpu.run
        x = Projection(u, input_weight, None) if in_loop else torch.nn.functional.linear(u, input_weight)
        try:
            with kernels.expect(output_weight, bias):
                outputs, _ = run(operations.recurrence.call(x, weight, (state,), activation=TANH))
            read = readout.joined if in_loop else torch.nn.functional.linear
            y, again = (read(outputs, output_weight, bias) for _ in range(2))  # of the loop, and of a product
            results.append([y.detach(), again.detach(), *torch.autograd.grad(y, leaves, way.to(dtype))])
        except MemoryError:
            return False
    return all(map(_is_close, *results))


@torch.inference_mode(False)
@torch.enable_grad()
def _normalization_agrees() -> bool:
    """Return whether the layer normalisation and its gradients agree."""
    leaves = [normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(((_BATCH, 21), (21,), (21,)))]
    y, way = torch.nn.functional.layer_norm(leaves[0], (21,), leaves[1], leaves[2]), normal(_BATCH, 21, seed=3)
    inputs, weight, bias = (leaf.detach().float() for leaf in leaves)
    actual, scales = normalization.in_c(inputs, weight, bias)
    expected = (y.detach(), *torch.autograd.grad(y, leaves, way))
    return all(map(_is_close, (actual, *normalization.gradients(inputs, weight, scales, way.float())), expected))


@torch.inference_mode(False)
@torch.enable_grad()
def _pointwise_agrees() -> bool:
    """Return whether the passes between products agree with torch's, with whole vectors and a rest."""
    x, skip, v, values = (normal(*shape, seed=i) for i, shape in enumerate(((5, 37), (37,), (5, 37), (5, 74))))
    direction = normal(5, 37, seed=9)

    def results(dtype: torch.dtype, function: Callable[..., Tensor], *arguments: Tensor) -> list[Tensor]:
        leaves = [argument.to(dtype).requires_grad_() for argument in arguments]
        y = function(*leaves)
        return [y.detach(), *torch.autograd.grad(y, leaves, direction.to(dtype))]

    return all(
        _is_close(actual, expected)
        for kernel, definition, arguments in (
            (pointwise._SkipGelu.apply, pointwise.skip_gelu, (3 * x, skip, v)),
            (pointwise._GatedSum.apply, pointwise.gated_sum, (x, values)),
        )
        for actual, expected in zip(
            results(torch.float32, kernel, *arguments), results(torch.float64, definition, *arguments), strict=True
        )
    )


@torch.inference_mode(False)
@torch.enable_grad()
def _head_norm_agrees() -> bool:
    """Return whether the normalisation of heads agrees without a gate, and with one that is read or made."""
    heads, size, inputs = 2, 21, 3
    shapes = [(_STEPS, _BATCH, heads * size), (size,), (_STEPS, _BATCH, heads * size), (heads * size, inputs)]
    arguments, way = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)], normal(*shapes[0], seed=5)
    u = normal(_STEPS, _BATCH, inputs, seed=6)
    for used in ((0, 1), (0, 1, 2), (0, 1, 3)):
        results = []
        for function, dtype in (
            (head_normalization.in_c, torch.float32),
            (head_normalization.in_pytorch, torch.float64),
        ):
            leaves = [arguments[i].to(dtype).requires_grad_() for i in used]
            y, weight, *gates = leaves
            gate: list[Tensor | Projection] = [Projection(u.to(dtype), each) if 3 in used else each for each in gates]
            h = function(y, weight, 0.1, *gate)
            results.append([h.detach(), *torch.autograd.grad(h, leaves, way.to(dtype))])
        if not all(map(_is_close, *results)):
            return False
    return True


def _entropy_agrees() -> bool:
    """Return whether the cross-entropy and its gradient agree."""
    with torch.inference_mode(False), torch.enable_grad():
        logits, gradient = normal(_BATCH, _FEATURES, seed=0).requires_grad_(), torch.empty(_BATCH, _FEATURES)
        targets = torch.arange(_BATCH)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        (expected,) = torch.autograd.grad(loss, logits)
        actual = entropy.mean(logits.detach().float(), targets, gradient)
        return abs(actual - loss.item()) <= _TOLERANCE and _is_close(_BATCH * gradient, _BATCH * expected)


@torch.inference_mode(False)
@torch.enable_grad()
def _convolution_agrees() -> bool:
    """Return whether the kernels of the short convolution agree, with sequences of one tile and of several."""
    for steps, taps, has_bias in ((3, 4, True), (37, 4, False), (19, 2, True)):
        shapes = [(steps, 2, _FEATURES), (taps, _FEATURES), (taps - 1, 2, _FEATURES), *[(_FEATURES,)] * has_bias]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        results = []
        for function, dtype in ((convolution.in_c, torch.float32), (convolution.in_pytorch, torch.float64)):
            leaves = [argument.to(dtype).requires_grad_() for argument in arguments]
            y = function(*leaves)
            gradients = torch.autograd.grad(y, leaves, normal(*y.shape, seed=9).to(dtype))
            results.append((y.detach(), *gradients))
        if not all(map(_is_close, *results)):
            return False
    return True


@torch.inference_mode(False)
@torch.enable_grad()
def _delta_rule_agrees() -> bool:
    """Return whether the kernels of the delta rule agree, with whole and part vectors.

    18 steps are two chunks of one correction a step, and with 8 corrections two groups of chunks.
    """
    heads, batch, steps = 2, 3, 18
    try:
        for keys, values, factors, gated, epsilon in ((16, 35, 1, True, 1e-6), (21, 16, 8, False, None)):
            parameters = {"heads": heads, "key_size": keys, "factors": factors, "gated": gated, "epsilon": epsilon}
            x = normal(steps, batch, heads * (keys + factors * (keys + values)), seed=0) / keys**0.5
            weight = _betas_and_decays(steps, batch, heads * factors, heads * gated)
            arguments = [x, weight, normal(batch, heads * keys * values, seed=2)]
            form = (operations.delta_rule, parameters, (), arguments)
            expected = evaluate(reference.run, *form, torch.float64, True)
            actual = evaluate(cpu.run, *form, torch.float32, True)
            if not all(_is_close(actual[name], value) for name, value in expected.items()):
                return False
        return all(_convolved_delta_rule_agrees(*form) for form in _CONVOLVED)
    except MemoryError:  # the error code of a kernel
        return False


def _betas_and_decays(steps: int, batch: int, betas: int, decays: int) -> Tensor:
    """Return betas in (0, 2) and logarithms of decays in (-1, 0), `[T, B, betas + decays]`."""
    weight = normal(steps, batch, betas + decays, seed=1).sigmoid().neg()
    weight[..., :betas] *= -2
    return weight


def _convolved_delta_rule_agrees(taps: int, inputs: int, factors: int, reads: bool, keys: int, values: int) -> bool:
    """Return whether the kernels agree that make x from its convolution, and with `inputs` also from a projection."""
    heads, batch, steps = 2, 3, 18
    width = heads * ((reads + factors) * keys + factors * values)
    shapes = [(steps, batch, inputs or width), (width, inputs or 1), (taps, width), (taps - 1, batch, width)]
    arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    arguments += [_betas_and_decays(steps, batch, heads * factors, heads), normal(batch, heads * keys * values, seed=5)]

    def gradients(run: Callable[[Call], Result], dtype: torch.dtype) -> list[Tensor]:
        leaves = [argument.to(dtype).requires_grad_() for argument in arguments]
        if inputs:
            leaves[0].requires_grad_(False)
        u, input_weight, *filters, weight, start = leaves
        x: Inputs = Convolution(Projection(u, input_weight) if inputs else u, *filters)
        if run is reference.run:
            x = convolution.in_pytorch(torch.nn.functional.linear(u, input_weight) if inputs else u, *filters)
        call = operations.delta_rule.call(x, weight, (start,), None, heads, keys, factors, True, 1e-6, reads)
        assert run is reference.run or (cpu.convolves(call) and cpu.projects(call) == bool(inputs))
        y, (end,) = run(call)
        results = [y, end] if reads else [end]
        directions = [normal(*result.shape, seed=20 + i).to(dtype) for i, result in enumerate(results)]
        by_leaf = torch.autograd.grad(results, leaves[bool(inputs) :], directions, allow_unused=True)
        return [*(result.detach() for result in results), *(each for each in by_leaf if each is not None)]

    expected = gradients(reference.run, torch.float64)
    return all(map(_is_close, gradients(cpu.run, torch.float32), expected))


@torch.inference_mode(False)
@torch.enable_grad()
def _selective_scan_agrees() -> bool:
    """Return whether the kernels of the selective scan agree, with chunks of steps and a rest, and with a map."""
    batch, width = 3, 21
    for steps, size, rank, negative, mapped in (
        (2, 16, 2, True, False),
        (18, 16, 1, False, True),
        (35, 3, 4, True, False),
        (33, 5, 9, True, True),
    ):
        numbers, x = rank + 2 * size, normal(steps, batch, width, seed=0)
        weight = 0.2 * normal(numbers, width, seed=1) if mapped else normal(steps, batch, numbers, seed=1)
        vectors = (-normal(size * width, seed=2).exp(), normal(width, rank, seed=3), normal(width, seed=4))
        arguments = [x, weight, normal(batch, size * width, seed=5), *vectors]
        form = ({"state_size": size, "negative": negative}, ("rates", "step_weight", "step_bias"), arguments)
        expected = evaluate(_with_weights, operations.selective_scan, *form, torch.float64, True)
        try:
            actual = evaluate(cpu.run, operations.selective_scan, *form, torch.float32, True)
        except MemoryError:
            return False
        if not all(_is_close(actual[name], value) for name, value in expected.items()):
            return False
    return all(
        _convolved_selective_scan_agrees(*form)
        for form in ((4, 1, True, False), (2, 0, False, True), (4, 1, True, True))
    )


def _convolved_selective_scan_agrees(taps: int, inputs: int, has_bias: bool, reads: bool) -> bool:
    """Return whether the kernels agree that make x from its convolution, and with `inputs` also from a projection.

    What is read has a skip and a gate.
    """
    steps, batch, width, size, rank = 37, 3, 21, 5, 2
    shapes = [(steps, batch, inputs or width), (width, inputs or 1), (taps, width), (taps - 1, batch, width), (width,)]
    shapes += [(rank + 2 * size, width), (batch, size * width), (width, rank), (width,), (width,)]
    shapes += [(width, inputs) if inputs else (steps, batch, width), (size * width,)]
    arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    arguments[-1] = -arguments[-1].exp()

    def gradients(run: Callable[[Call], Result], dtype: torch.dtype) -> list[Tensor]:
        leaves = [argument.to(dtype).requires_grad_() for argument in arguments]
        if inputs:
            leaves[0].requires_grad_(False)
        u, input_weight, weight, before, bias, selection, start, step_weight, step_bias, skip, gate, rates = leaves
        filters = (weight, before, bias if has_bias else None)
        x: Inputs = Convolution(Projection(u, input_weight) if inputs else u, *filters)
        if run is _with_weights:
            x = convolution.in_pytorch(torch.nn.functional.linear(u, input_weight) if inputs else u, *filters)
        call = operations.selective_scan.call(
            x, selection, (start,), None, rates, step_weight, step_bias, size, False, reads
        )
        if run is cpu.run and reads:
            gates = {"skip": skip, "gate_weight" if inputs else "gate": gate}
            call = replace(call, parameters={**call.parameters, **gates})
        assert run is _with_weights or (cpu.convolves(call) and cpu.projects(call) == bool(inputs))
        y, (end,) = run(call)
        if run is _with_weights and reads:
            assert isinstance(x, Tensor)
            y = selective_gate.in_pytorch(y, x, skip, torch.nn.functional.linear(u, gate) if inputs else gate)
        results = [y, end] if reads else [end]
        directions = [normal(*result.shape, seed=20 + i).to(dtype) for i, result in enumerate(results)]
        by_leaf = torch.autograd.grad(results, leaves[bool(inputs) :], directions, allow_unused=True)
        return [*(result.detach() for result in results), *(each for each in by_leaf if each is not None)]

    try:
        actual = gradients(cpu.run, torch.float32)
    except MemoryError:
        return False
    return all(map(_is_close, actual, gradients(_with_weights, torch.float64)))


def _with_weights(call: Call) -> Result:
    """Run the reference; torch makes the weights of a mapped call."""
    weight = torch.nn.functional.linear(call.x, call.weight) if call.is_mapped else call.weight  # type: ignore[arg-type]
    return reference.run(replace(call, weight=weight))


@torch.inference_mode(False)
@torch.enable_grad()
def _mlstm_agrees() -> bool:
    """Return whether the kernels of the mLSTM agree, with whole vectors and parts, and with chunks and a rest."""
    heads = 2
    sizes = ((3, 3, 16, False), (35, 2, 37, False), (5, 3, 70, True))
    for (steps, batch, size, exponential), reads in itertools.product(sizes, (True, False)):
        width = (4 if reads else 2) * heads * size
        parameters = {"heads": heads, "exponential_forget": exponential, "reads": reads}
        shapes = [(steps, batch, width), (steps, batch, 2 * heads), (batch, heads * (size * (size + 1) + 1))]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        expected = evaluate(reference.run, operations.mlstm, parameters, (), arguments, torch.float64, True)
        try:
            actual = evaluate(cpu.run, operations.mlstm, parameters, (), arguments, torch.float32, True)
        except MemoryError:
            return False
        if not all(_is_close(actual[name], value) for name, value in expected.items()):
            return False
        if not _projected_form_agrees(operations.mlstm, parameters, width, arguments):
            return False
    return True


def _arguments(operation: Operation[...], vectors: Mapping[str, int], weight_shape: tuple[int, ...]) -> list[Tensor]:
    """Return x, the weight, the initial state and the vectors of a form."""
    n = _FEATURES
    x, weight = normal(_STEPS, _BATCH, operation.gates * n, seed=0), normal(*weight_shape, seed=1) / n**0.5
    others = [0.5 * normal(length, seed=10 + i) for i, length in enumerate(vectors.values())]
    return [x, weight, *_start(operation), *others]


def _start(operation: Operation[...]) -> list[Tensor]:
    """Return the initial state; a normaliser, by which outputs are divided, is positive."""
    states = {name: normal(_BATCH, _FEATURES, seed=2 + i) for i, name in enumerate(operation.states)}
    return [state.abs() + 0.5 if name == "n" else state for name, state in states.items()]


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    return distance(actual, expected) <= _TOLERANCE  # False for NaN
