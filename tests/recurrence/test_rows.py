"""A bad number in one sequence of a batch changes no bit of the others, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench import recurrence as recurrences
from orthobench.recurrence import (
    TANH,
    Convolution,
    Projection,
    cross_entropy,
    gated_scan,
    gated_sum,
    head_norm,
    layer_norm,
    project,
    reading,
    recurrence,
    short_convolution,
    skip_gelu,
    use_backend,
)
from orthobench.recurrence.cpu import call_c

pytestmark = [
    pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)"),
    pytest.mark.grid,
]
STEPS, BATCH, BAD, N = 35, 19, 3, 18  # more steps than a chunk has, more rows than a tile, no whole vector
Function = Callable[..., Sequence[Tensor]]


def outcome(function: Function, tensors: Sequence[Tensor], spoil: tuple[str, int, float] | None) -> list[Tensor]:
    """The results and the gradients of a random loss by those of the tensors that have rows, `[..., B, n]`.

    Args:
        function: maps the tensors to results.
        tensors: its arguments.
        spoil: "argument" or "gradient", which of them has one bad number, and that number; or None.
    """
    leaves = [tensor.float().clone() for tensor in tensors]
    kind, index, value = spoil or ("", 0, 0.0)
    if kind == "argument":
        _spoil(leaves[index], value)
    with use_backend("cpu"):
        results = function(*[leaf.requires_grad_() for leaf in leaves])
    generator = torch.Generator().manual_seed(5)
    ways = [torch.randn(result.shape, generator=generator) for result in results]
    if kind == "gradient":
        _spoil(ways[index], value)
    own = [leaf for leaf in leaves if _has_rows(leaf)]
    return [*(each.detach() for each in results), *torch.autograd.grad(results, own, ways)]


def _has_rows(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and tensor.shape[-2] == BATCH


def _spoil(tensor: Tensor, value: float) -> None:
    row = tensor[..., BAD, :]
    row.view(-1, row.shape[-1])[len(row) // 2 if row.dim() > 1 else 0, row.shape[-1] // 2] = value


def assert_rows_are_apart(function: Function, tensors: Sequence[Tensor]) -> None:
    clean = outcome(function, tensors, None)
    others = [row for row in range(BATCH) if row != BAD]
    arguments = [("argument", k) for k, tensor in enumerate(tensors) if _has_rows(tensor)]
    count = len(clean) - len(arguments)
    gradients = [("gradient", k) for k in range(count) if clean[k].dim() and clean[k].numel()]
    for kind, index in [*arguments, *gradients]:
        for value in (math.nan, math.inf):
            spoiled = outcome(function, tensors, (kind, index, value))
            assert kind == "gradient" or value == value or any(bool(each.isnan().any()) for each in spoiled)
            for k, (actual, expected) in enumerate(zip(spoiled, clean, strict=True)):
                if expected.dim():
                    same = torch.equal(actual[..., others, :], expected[..., others, :])
                    assert same, f"{value} in {kind} {index} changes result {k} of other rows"


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_operation(name: str, arguments: Sequence[Any]) -> tuple[Function, list[Tensor]]:
    """An operation as a function of its tensors: x, the weight, the state and the parameters."""
    indices = [k for k, argument in enumerate(arguments) if isinstance(argument, Tensor)]
    operation: Any = getattr(recurrences, name)
    width = len(operation.states)

    def function(*tensors: Tensor) -> list[Tensor]:
        full = list(arguments)
        for index, tensor in zip(indices, tensors, strict=True):
            full[index] = tensor
        x, weight, *rest = full
        y, final = operation(x, weight, tuple(rest[:width]), None, *rest[width:])
        return [y, *final]

    return function, [arguments[index] for index in indices]


def projected(function: Function, inputs: int, x: Tensor, *others: Tensor) -> tuple[Function, list[Tensor]]:
    """The same function whose x is a projection of inputs that have a gradient."""

    def of_inputs(u: Tensor, weight: Tensor, bias: Tensor, *others: Tensor) -> Sequence[Tensor]:
        return function(Projection(u, weight, bias), *others)

    width = x.shape[-1]
    tensors = [normal(STEPS, BATCH, inputs, seed=1), normal(width, inputs, seed=2), normal(width, seed=3), *others]
    return of_inputs, tensors


def test_nan_row_of_an_operation_leaves_the_others_unchanged(case: Any) -> None:
    assert_rows_are_apart(*in_operation(case.op, case.arguments(STEPS, BATCH, N, 0)))


@pytest.mark.parametrize("op", ["recurrence", "lstm", "gru", "lem", "slstm", "mlstm"])
def test_nan_row_of_a_projection_leaves_the_others_unchanged(op: str) -> None:
    operation: Any = getattr(recurrences, op)
    if op == "mlstm":
        arguments = [normal(STEPS, BATCH, 2 * 4 * 5), normal(STEPS, BATCH, 4), normal(BATCH, 2 * (5 * 6 + 1)), 2]
    else:
        gates = operation.gates
        weight = normal(gates * N, N, seed=4) / N**0.5
        state = [normal(BATCH, N, seed=6 + k).abs() for k in range(len(operation.states))]
        arguments = [normal(STEPS, BATCH, gates * N), weight, *state, *([0.7] if op == "lem" else [])]
    function, tensors = in_operation(op, arguments)
    assert_rows_are_apart(*projected(function, 4, *tensors))


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize(("heads", "size"), [(2, 9), (1, 16), (3, 21)])
def test_nan_row_of_slstm_leaves_the_others_unchanged(heads: int, size: int, exponential: bool) -> None:
    n = heads * size
    state = [normal(BATCH, n, seed=k) for k in range(4)]
    state[2] = state[2].abs() + 0.5
    arguments = [normal(STEPS, BATCH, 4 * n), normal(4 * n, size, seed=9) / size**0.5, *state, exponential, heads]
    assert_rows_are_apart(*in_operation("slstm", arguments))


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize(("heads", "size"), [(1, 1), (2, 5), (1, 16), (2, 21), (1, 40)])
def test_nan_row_of_mlstm_leaves_the_others_unchanged(heads: int, size: int, exponential: bool, reads: bool) -> None:
    x, gates = normal(STEPS, BATCH, (4 if reads else 2) * heads * size), normal(STEPS, BATCH, 2 * heads, seed=1)
    gates[..., heads:] = gates[..., heads:].abs().neg() / 4 if exponential else 3 + gates[..., heads:]
    state = normal(BATCH, heads * (size * (size + 1) + 1), seed=2)
    assert_rows_are_apart(*in_operation("mlstm", [x, gates, state, heads, exponential, reads]))


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(("width", "size", "rank"), [(5, 3, 2), (21, 16, 4)])
def test_nan_row_of_the_selective_scan_leaves_the_others_unchanged(
    width: int, size: int, rank: int, negative: bool
) -> None:
    rates = -normal(size * width, seed=3).exp()
    arguments = [normal(STEPS, BATCH, width), normal(STEPS, BATCH, rank + 2 * size, seed=1)]
    arguments += [normal(BATCH, size * width, seed=2), rates, normal(width, rank, seed=4), normal(width, seed=5)]
    assert_rows_are_apart(*in_operation("selective_scan", [*arguments, size, negative]))


@pytest.mark.parametrize("gate", [False, True])
def test_nan_row_of_a_gated_scan_leaves_the_others_unchanged(gate: bool) -> None:
    """With the convolution, the projection, the weights' map and the gate in one kernel."""
    width, size, rank, inputs = 21, 5, 2, 4

    def function(u: Tensor, start: Tensor, before: Tensor, *shared: Tensor) -> list[Tensor]:
        mapped, taps, gate_map, weight, rates, step_weight, step_bias, skip = shared
        x = Convolution(Projection(u, mapped), taps, before)
        z = Projection(u, gate_map) if gate else None
        named = {"rates": -rates.exp(), "step_weight": step_weight, "step_bias": step_bias, "state_size": size}
        o, (final,) = gated_scan(x, weight, (start,), None, skip, z, **named, negative=False)
        return [o, final]

    own = [(STEPS, BATCH, inputs), (BATCH, size * width), (3, BATCH, width)]
    shared = [(width, inputs), (4, width), (width, inputs), (rank + 2 * size, width)]
    vectors = [(size * width,), (width, rank), (width,), (width,)]
    assert_rows_are_apart(function, [0.5 * normal(*shape, seed=k) for k, shape in enumerate([*own, *shared, *vectors])])


@pytest.mark.parametrize(("keys", "values", "factors"), [(3, 5, 1), (16, 35, 1), (21, 16, 8)])
@pytest.mark.parametrize("taps", [0, 4])
def test_nan_row_of_the_delta_rule_leaves_the_others_unchanged(keys: int, values: int, factors: int, taps: int) -> None:
    heads = 2
    width = heads * (keys + factors * (keys + values))
    betas, decays = normal(STEPS, BATCH, heads * factors, seed=1).sigmoid(), normal(STEPS, BATCH, heads, seed=2)
    arguments = [normal(STEPS, BATCH, width) / keys**0.5, torch.cat((2 * betas, -decays.exp()), dim=-1)]
    arguments += [normal(BATCH, heads * keys * values, seed=3), heads, keys, factors, True, 1e-6]
    function, tensors = in_operation("delta_rule", arguments)
    if not taps:
        assert_rows_are_apart(function, tensors)
        return

    def convolved(u: Tensor, weight: Tensor, before: Tensor, *others: Tensor) -> Sequence[Tensor]:
        return function(Convolution(u, weight, before), *others)

    filters = [normal(taps, width, seed=5), normal(taps - 1, BATCH, width, seed=6)]
    assert_rows_are_apart(convolved, [tensors[0], *filters, *tensors[1:]])


PASSES: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "project": (lambda x, w, b: [project(x, w, b)], [(STEPS, BATCH, N), (33, N), (33,)]),
    "layer_norm": (lambda x, w, b: [layer_norm(x, w, b)], [(STEPS, BATCH, N), (N,), (N,)]),
    "head_norm": (lambda x, w: [head_norm(x, w, 0.1)], [(STEPS, BATCH, 2 * N), (N,)]),
    "head_norm with a gate": (
        lambda x, w, g: [head_norm(x, w, 0.1, g)],
        [(STEPS, BATCH, 2 * N), (N,), (STEPS, BATCH, 2 * N)],
    ),
    "head_norm with a map": (
        lambda x, w, u, g: [head_norm(x, w, 0.1, Projection(u, g))],
        [(STEPS, BATCH, 2 * N), (N,), (STEPS, BATCH, 3), (2 * N, 3)],
    ),
    "skip_gelu": (lambda x, s, v: [skip_gelu(x, s, v)], [(STEPS, BATCH, N), (N,), (STEPS, BATCH, N)]),
    "gated_sum": (lambda x, v: [gated_sum(x, v)], [(STEPS, BATCH, N), (STEPS, BATCH, 2 * N)]),
    "short_convolution": (
        lambda x, w, before, b: [short_convolution(x, w, before, b)],
        [(STEPS, BATCH, N), (4, N), (3, BATCH, N), (N,)],
    ),
    "cross_entropy": (
        lambda x: [cross_entropy(x, torch.arange(STEPS * BATCH).view(STEPS, BATCH) % N)],
        [(STEPS, BATCH, N)],
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_nan_row_of_a_pass_leaves_the_others_unchanged(name: str) -> None:
    function, shapes = PASSES[name]
    assert_rows_are_apart(function, [normal(*shape, seed=k) for k, shape in enumerate(shapes)])


@pytest.mark.parametrize("in_loop", [False, True])
def test_nan_row_of_a_readout_leaves_the_others_unchanged(in_loop: bool) -> None:
    u = normal(STEPS, BATCH, 3, seed=7)

    def function(state: Tensor, mapped: Tensor, weight: Tensor, output: Tensor, bias: Tensor) -> list[Tensor]:
        x = Projection(u, mapped, None)
        with reading(output, bias, in_loop) as read:
            states, _ = recurrence(x, weight, (state,), None, TANH)
        return [read(states)]

    shapes = [(BATCH, N), (N, 3), (N, N), (7, N), (7,)]
    assert_rows_are_apart(function, [0.3 * normal(*shape, seed=k) for k, shape in enumerate(shapes)])
