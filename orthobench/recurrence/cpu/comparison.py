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
from orthobench.recurrence.cpu import native, workspace
from orthobench.recurrence.memory_layout import memory_blocks
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
        **{name: functools.partial(_operation_agrees, forms) for name, forms in by_name.items()},
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
    return {name: functools.partial(_with_gradients, function) for name, function in functions.items()}


def _with_gradients(agrees: Callable[[], bool]) -> bool:
    """Call the function where torch records gradients, whatever the mode of the caller."""
    with torch.inference_mode(False), torch.enable_grad():
        return agrees()


def _operation_agrees(forms: list[_Form]) -> bool:
    """Return whether the kernels agree in each form, and with inputs that the kernel projects."""
    return all(
        _form_agrees(operation, parameters, tuple(vectors), _arguments(operation, vectors, shape))
        for operation, parameters, vectors in forms
        for shape in _weight_shapes(operation, parameters)
    ) and all(
        _projected_form_agrees(operation, parameters, operation.gates * _FEATURES, _arguments(operation, {}, shape))
        for operation, parameters, _ in forms
        for shape in _weight_shapes(operation, parameters)
        if not operation.diagonal
    )


def _form_agrees(
    operation: Operation[...],
    parameters: Mapping[str, Any],
    names: Sequence[str],
    arguments: Sequence[Tensor],
    definition: Callable[[Call], Result] = reference.run,
) -> bool:
    """Return whether the kernel agrees with the definition, norms of gradients included; see `evaluate`."""
    form = (operation, parameters, names, arguments)
    expected = evaluate(definition, *form, torch.float64, traced=True)
    try:
        actual = evaluate(cpu.run, *form, torch.float32, traced=True)
    except MemoryError:  # the error code of a kernel
        return False
    return all(_is_close(actual[name], value) for name, value in expected.items())


def _agrees(
    kernel: Callable[..., Sequence[Tensor]],
    definition: Callable[..., Sequence[Tensor]],
    arguments: Sequence[Tensor],
    inputs: int = 0,
) -> bool:
    """Return whether results and gradients of a kernel in float32 agree with those of its definition in float64.

    The first `inputs` of the arguments have no gradients.
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
    return all(map(_is_close, actual, results(definition, torch.float64)))


def _projected_form_agrees(
    operation: Operation[...], parameters: Mapping[str, Any], width: int, arguments: Sequence[Tensor]
) -> bool:
    """Return whether the kernel that makes x from a projection agrees, or True if the operation has none.

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

    if not cpu.projects(projected_call(*(argument.float() for argument in arguments))):
        return True
    return _agrees(in_kernel, defined, arguments, inputs=operation.name not in cpu.INPUT_GRADIENTS)


def _projection_agrees() -> bool:
    """Return whether the products of `project` agree, and those of its gradients."""
    dx, inputs = normal(_STEPS, _BATCH, _FEATURES, seed=0), normal(_STEPS, _BATCH, 5, seed=1)
    weight, bias = normal(_FEATURES, 5, seed=2), normal(_FEATURES, seed=3)
    x, dinputs = workspace.take(*dx.shape), workspace.take(*inputs.shape)
    native.linear(inputs.float(), native.pack(weight.float()), bias.float(), x)
    native.linear(dx.float(), native.pack_transposed(weight.float()), None, dinputs)
    dweight = native.weight_gradient(dx.float(), inputs.float(), None)
    expected = inputs @ weight.T + bias, dx @ weight, dx.flatten(0, 1).T @ inputs.flatten(0, 1)
    return all(map(_is_close, (x, dinputs, dweight), expected))


def _readout_agrees() -> bool:
    """Return whether an output map agrees that the loop makes in value and gradient."""
    sizes = (_STEPS, _BATCH, 5), (_FEATURES, 5), (_FEATURES, _FEATURES), (_BATCH, _FEATURES), (7, _FEATURES), (7,)

    def in_kernel(u: Tensor, input_weight: Tensor, weight: Tensor, state: Tensor, *output_map: Tensor) -> list[Tensor]:
        call = operations.recurrence.call(Projection(u, input_weight, None), weight, (state,), activation=TANH)
        with kernels.expect(*output_map):
            outputs, _ = cpu.run(call)
        return [readout.joined(outputs, *output_map) for _ in range(2)]  # of the loop, and of a product

    def defined(u: Tensor, input_weight: Tensor, weight: Tensor, state: Tensor, *output_map: Tensor) -> list[Tensor]:
        x = torch.nn.functional.linear(u, input_weight)
        outputs, _ = reference.run(operations.recurrence.call(x, weight, (state,), activation=TANH))
        return [torch.nn.functional.linear(outputs, *output_map)] * 2

    return _agrees(in_kernel, defined, [normal(*size, seed=seed) for seed, size in enumerate(sizes)], inputs=1)


def _normalization_agrees() -> bool:
    """Return whether the layer normalisation and its gradients agree."""
    leaves = [normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(((_BATCH, 21), (21,), (21,)))]
    y, way = torch.nn.functional.layer_norm(leaves[0], (21,), leaves[1], leaves[2]), normal(_BATCH, 21, seed=3)
    inputs, weight, bias = (leaf.detach().float() for leaf in leaves)
    actual, scales = normalization.in_c(inputs, weight, bias)
    expected = (y.detach(), *torch.autograd.grad(y, leaves, way))
    return all(map(_is_close, (actual, *normalization.gradients(inputs, weight, scales, way.float())), expected))


def _pointwise_agrees() -> bool:
    """Return whether the passes between products agree with torch's, with whole vectors and a rest."""
    x, skip, v, values = (normal(*shape, seed=i) for i, shape in enumerate(((5, 37), (37,), (5, 37), (5, 74))))
    return all(
        _agrees(_single(kernel), _single(definition), arguments)
        for kernel, definition, arguments in (
            (pointwise._SkipGelu.apply, pointwise.skip_gelu, (3 * x, skip, v)),
            (pointwise._GatedSum.apply, pointwise.gated_sum, (x, values)),
        )
    )


def _single(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Return the function with its result in a list."""
    return lambda *arguments: [function(*arguments)]


def _head_norm_agrees() -> bool:
    """Return whether the normalisation of heads agrees without a gate, and with one that is read or made."""
    heads, size, inputs = 2, 21, 3
    y, weight = normal(_STEPS, _BATCH, heads * size, seed=0), normal(size, seed=1)
    gate, gate_weight = normal(_STEPS, _BATCH, heads * size, seed=2), normal(heads * size, inputs, seed=3)
    u = normal(_STEPS, _BATCH, inputs, seed=6)

    def with_gate(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
        return lambda y, weight, *gates: [function(y, weight, 0.1, *gates)]

    def with_map(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
        return lambda u, y, weight, gate_weight: [function(y, weight, 0.1, Projection(u, gate_weight))]

    in_c, in_pytorch = head_normalization.in_c, head_normalization.in_pytorch
    return (
        _agrees(with_gate(in_c), with_gate(in_pytorch), [y, weight])
        and _agrees(with_gate(in_c), with_gate(in_pytorch), [y, weight, gate])
        and _agrees(with_map(in_c), with_map(in_pytorch), [u, y, weight, gate_weight], inputs=1)
    )


def _entropy_agrees() -> bool:
    """Return whether the cross-entropy and its gradient agree."""
    logits, gradient = normal(_BATCH, _FEATURES, seed=0).requires_grad_(), workspace.take(_BATCH, _FEATURES)
    targets = torch.arange(_BATCH, device="cpu")
    loss = torch.nn.functional.cross_entropy(logits, targets)
    (expected,) = torch.autograd.grad(loss, logits)
    actual = entropy.mean(logits.detach().float(), targets, gradient)
    return abs(actual - loss.item()) <= _TOLERANCE and _is_close(_BATCH * gradient, _BATCH * expected)


def _convolution_agrees() -> bool:
    """Return whether the kernels of the short convolution agree, with sequences of one tile and of several."""
    for steps, taps, has_bias in ((3, 4, True), (37, 4, False), (19, 2, True)):
        shapes = [(steps, 2, _FEATURES), (taps, _FEATURES), (taps - 1, 2, _FEATURES), *[(_FEATURES,)] * has_bias]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        if not _agrees(_single(convolution.in_c), _single(convolution.in_pytorch), arguments):
            return False
    return True


def _delta_rule_agrees() -> bool:
    """Return whether the kernels of the delta rule agree, with whole and part vectors.

    18 steps are two chunks of one correction a step, and with 8 corrections two groups of chunks.
    """
    heads, batch, steps = 2, 3, 18
    for keys, values, factors, gated, epsilon in ((16, 35, 1, True, 1e-6), (21, 16, 8, False, None)):
        parameters = {"heads": heads, "key_size": keys, "factors": factors, "gated": gated, "epsilon": epsilon}
        x = normal(steps, batch, heads * (keys + factors * (keys + values)), seed=0) / keys**0.5
        weight = _betas_and_decays(steps, batch, heads * factors, heads * gated)
        arguments = [x, weight, normal(batch, heads * keys * values, seed=2)]
        if not _form_agrees(operations.delta_rule, parameters, (), arguments):
            return False
    return all(_convolved_delta_rule_agrees(*form) for form in _CONVOLVED)


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

    def results(run: Callable[[Call], Result], x: Inputs, weight: Tensor, start: Tensor) -> list[Tensor]:
        call = operations.delta_rule.call(x, weight, (start,), None, heads, keys, factors, True, 1e-6, reads)
        assert run is reference.run or (cpu.convolves(call) and cpu.projects(call) == bool(inputs))
        y, (end,) = run(call)
        return [y, end] if reads else [end]

    def in_kernel(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        *filters, weight, start = others
        return results(cpu.run, Convolution(Projection(u, input_weight) if inputs else u, *filters), weight, start)

    def defined(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        *filters, weight, start = others
        u = torch.nn.functional.linear(u, input_weight) if inputs else u
        return results(reference.run, convolution.in_pytorch(u, *filters), weight, start)

    return _agrees(in_kernel, defined, arguments, inputs=bool(inputs))


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
        parameters, names = {"state_size": size, "negative": negative}, ("rates", "step_weight", "step_bias")
        if not _form_agrees(operations.selective_scan, parameters, names, arguments, _with_weights):
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
    filters = [(taps, width), (taps - 1, batch, width), (width,)]
    gates = [(width,), (width, inputs) if inputs else (steps, batch, width)]
    selection = [(rank + 2 * size, width), (batch, size * width), (size * width,), (width, rank), (width,)]
    shapes = [(steps, batch, inputs or width), (width, inputs or 1), *filters, *gates, *selection]
    arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    arguments[-3] = -arguments[-3].exp()  # the rates

    def call_on(x: Inputs, selection: Tensor, start: Tensor, rates: Tensor, *step: Tensor) -> Call:
        weight, bias = step
        return operations.selective_scan.call(x, selection, (start,), None, rates, weight, bias, size, False, reads)

    def in_kernel(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        weight, before, bias, skip, gate, *selection = others
        x = Convolution(Projection(u, input_weight) if inputs else u, weight, before, bias if has_bias else None)
        call = call_on(x, *selection)
        if reads:
            gates = {"skip": skip, "gate_weight" if inputs else "gate": gate}
            call = replace(call, parameters={**call.parameters, **gates})
        assert cpu.convolves(call)
        assert cpu.projects(call) == bool(inputs)
        y, (end,) = cpu.run(call)
        return [y, end] if reads else [end]

    def defined(u: Tensor, input_weight: Tensor, *others: Tensor) -> list[Tensor]:
        weight, before, bias, skip, gate, *selection = others
        projected = torch.nn.functional.linear(u, input_weight) if inputs else u
        x = convolution.in_pytorch(projected, weight, before, bias if has_bias else None)
        y, (end,) = _with_weights(call_on(x, *selection))
        if not reads:
            return [end]
        return [selective_gate.in_pytorch(y, x, skip, torch.nn.functional.linear(u, gate) if inputs else gate), end]

    return _agrees(in_kernel, defined, arguments, inputs=bool(inputs))


def _with_weights(call: Call) -> Result:
    """Run the reference; torch makes the weights of a mapped call."""
    weight = torch.nn.functional.linear(call.x, call.weight) if call.is_mapped else call.weight  # type: ignore[arg-type]
    return reference.run(replace(call, weight=weight))


def _mlstm_agrees() -> bool:
    """Return whether the kernels of the mLSTM agree, with whole vectors and parts, and with chunks and a rest."""
    heads = 2
    sizes = ((3, 3, 16, False), (35, 2, 37, False), (5, 3, 70, True))
    for (steps, batch, size, exponential), reads in itertools.product(sizes, (True, False)):
        width = memory_blocks(reads) * heads * size
        parameters = {"heads": heads, "exponential_forget": exponential, "reads": reads}
        shapes = [(steps, batch, width), (steps, batch, 2 * heads), (batch, heads * (size * (size + 1) + 1))]
        arguments = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        if not _form_agrees(operations.mlstm, parameters, (), arguments):
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
