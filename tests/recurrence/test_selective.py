"""The selective scan in C and in pieces, against a literal transcription and the definition."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.definition import assert_finite_differences, assert_losses_of_one_result
from torch import Tensor
from torch.nn.functional import linear

from orthobench.recurrence import GradientTrace, delta_rule, kernels, reference, selective_scan
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.selective import cuda as selective_pieces
from orthobench.recurrence.ops.selective.cuda import SelectiveScan

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
CASE = SimpleNamespace(name="selective_scan", op="selective_scan")


def run_in_pieces(call: Call) -> Result:
    return kernels.run(SelectiveScan, call)


PIECES = SimpleNamespace(run=run_in_pieces)
KERNELS = [
    pytest.param(cpu, torch.float32, 2e-5, id="c", marks=in_c),
    pytest.param(PIECES, torch.float64, 1e-12, id="pieces"),
]


def arguments(steps: int, batch: int, width: int, size: int, rank: int, negative: bool, seed: int) -> list[Any]:
    """x, the selection, the state and the parameters; float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, weight, start = normal(steps, batch, width), normal(steps, batch, rank + 2 * size), normal(batch, size * width)
    return [x, weight, start, -normal(size * width).exp(), normal(width, rank), normal(width), size, negative]


def call_of(problem: list[Any], trace: GradientTrace | None = None) -> Call:
    x, weight, start, *parameters = problem
    return selective_scan.call(x, weight, (start,), trace, *parameters)


@pytest.mark.parametrize("negative", [False, True])
def test_reference_matches_the_equation(negative: bool) -> None:
    steps, batch, width, size, rank = 4, 3, 5, 2, 3
    problem = arguments(steps, batch, width, size, rank, negative, seed=1)
    y, (final,) = reference.run(call_of(problem))
    x, weight, start, rates, step_weight, step_bias = (tensor.numpy() for tensor in problem[:6])
    for row in range(batch):
        h = start[row].reshape(size, width).copy()
        for t in range(steps):
            r, b, c = np.split(weight[t, row], [rank, rank + size])
            for d in range(width):
                delta = np.log1p(np.exp(step_weight[d] @ r + step_bias[d]))
                for n in range(size):
                    a = np.exp(delta * rates.reshape(size, width)[n, d])
                    h[n, d] = (2 * a - 1 if negative else a) * h[n, d] + delta * b[n] * x[t, row, d]
                np.testing.assert_allclose(float(y[t, row, d]), c @ h[:, d], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(final[row].numpy(), h.ravel(), rtol=1e-12)


@pytest.mark.parametrize("negative", [False, True])
def test_gradients_of_the_reference_match_finite_differences(negative: bool) -> None:
    assert_finite_differences(call_of, arguments(3, 2, 2, 3, 2, negative, seed=2))


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 5),
    width=st.integers(1, 40),
    size=st.sampled_from([1, 2, 5, 16, 17]),
    rank=st.integers(1, 9),
    negative=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_kernels_match_the_reference(
    module: Any, dtype: torch.dtype, tolerance: float, agree: Any, seed: int, **sizes: Any
) -> None:
    """In value, in every gradient and in the trace."""
    agree(module, CASE, arguments(**sizes, seed=seed), dtype, tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("steps", [15, 16, 17, 63, 64, 65, 150])
def test_chunks_of_steps_match(module: Any, dtype: torch.dtype, tolerance: float, steps: int, agree: Any) -> None:
    """Sequences that are shorter than a chunk or a piece, equal to it, or several of them with a rest."""
    agree(module, CASE, arguments(steps, 2, 18, 3, 2, steps % 2 == 0, seed=3), dtype, 5 * tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("traced", [False, True])
def test_loss_of_one_result_matches(module: Any, dtype: torch.dtype, tolerance: float, traced: bool) -> None:
    """A loss of the outputs alone, and one of the final state alone."""
    problem = arguments(20, 2, 5, 16, 2, True, seed=4)
    assert_losses_of_one_result(call_of, problem, module, dtype, tolerance, traced)


def saved_sizes(call: Call) -> tuple[Tensor, list[int]]:
    """The outputs of the reference, and the numbers in each tensor that it keeps for the backward pass."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y, _ = reference.run(call)
    return y, sizes


def test_reference_recomputes_the_steps_of_long_sequences() -> None:
    """Fewer states are kept than there are steps, and the numbers are the same."""
    sizes_of_a_step = []
    for length in (10, 400):
        problem = arguments(length, 2, 8, 16, 2, False, seed=5)
        leaves = [tensor.requires_grad_() for tensor in problem[:6]]
        y, sizes = saved_sizes(call_of([*leaves, *problem[6:]]))
        sizes_of_a_step.append(sum(sizes) / length)
        gradients = torch.autograd.grad(y.square().sum(), leaves)
        in_pieces, _ = run_in_pieces(call_of([*leaves, *problem[6:]]))
        torch.testing.assert_close(in_pieces, y)
        torch.testing.assert_close(torch.autograd.grad(in_pieces.square().sum(), leaves), gradients)
    assert sizes_of_a_step[1] < 0.3 * sizes_of_a_step[0]


def test_chunks_store_few_states() -> None:
    """The kernel for CUDA saves the states between pieces alone."""
    steps, width, size = 1000, 4, 16
    problem = arguments(steps, 1, width, size, 1, False, seed=6)
    x, weight, start = problem[:3]
    others = kernels.Arguments(weight, (start,), call_of(problem).parameters)
    _, (_, _, starts) = SelectiveScan.forward(x, others, True)
    assert starts is not None
    assert len(starts) == -(-steps // selective_pieces._SHORTEST)


def mapped(problem: list[Any], seed: int) -> list[Any]:
    """The problem with a matrix that makes the weights from x in place of the weights."""
    x, weight, *others = problem
    generator = torch.Generator().manual_seed(seed)
    made_by = torch.randn(weight.shape[-1], x.shape[-1], generator=generator, dtype=torch.float64) / x.shape[-1] ** 0.5
    return [x, made_by, *others]


class Mapped:
    """A back end whose calls of a matrix are run with the weights that torch makes of it."""

    @staticmethod
    def run(call: Call) -> Result:
        assert isinstance(call.x, Tensor)
        assert isinstance(call.weight, Tensor)
        assert call.is_mapped
        return reference.run(replace(call, weight=linear(call.x, call.weight)))


def assert_mapped_agrees(problem: list[Any], evaluate: Any) -> None:
    """The kernel makes the weights itself: value, gradients and trace are those of the definition in float64."""
    problem = [tensor.float() if isinstance(tensor, Tensor) else tensor for tensor in mapped(problem, seed=10)]
    exact = [tensor.double() if isinstance(tensor, Tensor) else tensor for tensor in problem]
    actual, expected = evaluate(cpu, CASE, problem), evaluate(Mapped, CASE, exact)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.norm()) + 0.1 * value.numel() ** 0.5
        assert float((actual[name].double() - value).norm()) <= 5e-5 * scale, name


@in_c
@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 27),
    width=st.integers(1, 40),
    size=st.sampled_from([1, 5, 16, 17]),
    rank=st.integers(1, 9),
    negative=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_matrix_computes_the_weights(evaluate: Any, seed: int, **sizes: Any) -> None:
    assert_mapped_agrees(arguments(**sizes, seed=seed), evaluate)


@in_c
def test_matrix_computes_the_weights_of_many_rows(evaluate: Any) -> None:
    """The sums of a group of rows are longer than a panel of the product."""
    assert_mapped_agrees(arguments(34, 80, 34, 2, 3, False, seed=11), evaluate)


def test_matrix_computes_the_weights_of_every_operation_that_has_them(evaluate: Any) -> None:
    generator = torch.Generator().manual_seed(12)
    x, memory = torch.randn(5, 2, 3 * 4, generator=generator), torch.randn(2, 16, generator=generator)
    made_by = torch.randn(1, 12, generator=generator)
    parameters: dict[str, Any] = {"heads": 1, "key_size": 4, "factors": 1, "gated": False, "epsilon": 1e-6}
    actual = delta_rule(x, made_by, (memory,), None, **parameters)
    torch.testing.assert_close(actual, delta_rule(x, linear(x, made_by), (memory,), None, **parameters))


@in_c
@pytest.mark.parametrize("makes_weights", [False, True])
def test_thread_count_changes_no_number(makes_weights: bool, same_with_threads: Any) -> None:
    problem = arguments(70, 7, 20, 16, 3, True, seed=8)
    if makes_weights:
        problem[1] = mapped(problem, seed=9)[1]
    same_with_threads(CASE, problem)


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("width", "size"), [(3, 5), (8, 16), (21, 2)])
def test_kernels_match_on_narrower_vectors(width: int, size: int, agree: Any, evaluate: Any) -> None:
    problem = arguments(18, 3, width, size, 2, True, seed=9)
    agree(cpu, CASE, problem, torch.float32, 2e-5)
    assert_mapped_agrees(problem, evaluate)


@in_c
def test_extreme_steps_keep_or_erase_the_state() -> None:
    """A step of 0 keeps the state to the last bit; one of 100 erases it, or turns its sign; NaN comes out."""
    for negative in (False, True):
        raw = torch.tensor([-200.0, 100, 0, torch.nan]).reshape(4, 1, 1)
        weight = torch.cat((raw, torch.zeros(4, 1, 32)), dim=-1)
        states = []
        for t in range(4):
            start, rates, step_weight = torch.arange(1.0, 49)[None], -torch.ones(48), torch.ones(3, 1)
            call = selective_scan.call(
                torch.zeros(1, 1, 3),
                weight[t : t + 1],
                (start,),
                None,
                rates,
                step_weight,
                torch.zeros(3),
                16,
                negative,
            )
            states.append(cpu.run(call)[1][0] / start)
        same, erased, half, nan = states
        assert bool((same == 1).all())
        torch.testing.assert_close(erased, torch.full_like(erased, -1.0 if negative else 0.0), rtol=0, atol=1e-30)
        torch.testing.assert_close(half, torch.full_like(half, 0.0 if negative else 0.5), rtol=1e-6, atol=2e-7)
        assert bool(nan.isnan().all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 4}, "a state of 30 features is not 4 units of each feature"),
        ({"x": torch.zeros(2, 1, 5)}, r"x \[2, 1, 5\] should be \[2, 1, 10\]"),
        ({"weight": torch.zeros(2, 1, 3)}, r"weight \[2, 1, 3\] should be \[2, 1, 8\]"),
        ({"weight": torch.zeros(8, 3)}, r"weight \[8, 3\] should be \[8, 10\]"),
        ({"rates": torch.zeros(3)}, r"rates \[3\] should be \[30\]"),
        ({"step_bias": torch.zeros(3)}, r"step_bias \[3\] should be \[10\]"),
        ({"step_weight": torch.zeros(3, 2)}, r"step_weight \[3, 2\] should be \[10, rank\]"),
    ],
)
def test_incompatible_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    tensors = {"x": torch.zeros(2, 1, 10), "weight": torch.zeros(2, 1, 8), "rates": torch.zeros(30)}
    problem = {**tensors, "step_weight": torch.zeros(10, 2), "step_bias": torch.zeros(10), "size": 3, **change}
    with pytest.raises(ValueError, match=message):
        selective_scan(
            problem["x"], problem["weight"], (torch.zeros(1, 30),), None,
            problem["rates"], problem["step_weight"], problem["step_bias"], problem["size"],
        )  # fmt: skip
