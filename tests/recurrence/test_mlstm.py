"""The mLSTM in C, in chunks and by the definition, against a literal transcription and the paper's parallel form."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.definition import assert_finite_differences, assert_losses_of_one_result
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence import GradientTrace, Projection, mlstm, reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.mlstm.cuda import MLSTM, chunk

pytestmark = pytest.mark.grid

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
CASE = SimpleNamespace(name="mlstm", op="mlstm")
KERNELS = [
    pytest.param(cpu, torch.float32, 1e-4, id="c", marks=in_c),
    pytest.param(MLSTM, torch.float64, 1e-10, id="chunks"),
]
B, HEADS, D = 2, 3, 4


def arguments(
    steps: int, batch: int, heads: int, size: int, exponential: bool, fresh: bool, seed: int, reads: bool = True
) -> list[Any]:
    """x, the gates, the state, which is zero or any, and the parameters; float64.

    Half the normalisers are below 1 and half above. The forget gates are not far from 1, so m stays near 0.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, gates = normal(steps, batch, (4 if reads else 2) * heads * size), normal(steps, batch, 2 * heads)
    gates[..., heads:] = gates[..., heads:].abs().neg() / 4 if exponential else 3 + gates[..., heads:]
    state = normal(batch, heads * (size * (size + 1) + 1))
    return [x, gates, torch.zeros_like(state) if fresh else state, heads, exponential, reads]


def call_of(problem: list[Any], trace: GradientTrace | None = None) -> Call:
    x, gates, state, *parameters = problem
    return mlstm.call(x, gates, (state,), trace, *parameters)


def run(module: Any, problem: list[Any], trace: GradientTrace | None = None) -> Result:
    result: Result = module.run(call_of(problem, trace))
    return result


@pytest.mark.parametrize("exponential", [False, True])
def test_reference_matches_the_equation(exponential: bool) -> None:
    """With the authors' stabiliser, from a state of any kind."""
    steps, batch, heads, d = 5, 3, 2, 3
    problem = arguments(steps, batch, heads, d, exponential, False, seed=1)
    y, (final,) = run(reference, problem)
    x, gates, start = (tensor.numpy() for tensor in problem[:3])
    for row in range(batch):
        memories, m = start[row, :-heads].reshape(heads, d + 1, d).copy(), start[row, -heads:].copy()
        for t in range(steps):
            for j in range(heads):
                q, k, v, o = x[t, row].reshape(4, heads, d)[:, j]
                i, f = gates[t, row].reshape(2, heads)[:, j]
                faded = m[j] + (f if exponential else -np.log1p(np.exp(-f)))
                m[j] = max(faded, i)
                written = np.outer([*v, 1], k / math.sqrt(d))
                memories[j] = np.exp(faded - m[j]) * memories[j] + np.exp(i - m[j]) * written
                read = memories[j] @ q
                expected = read[:-1] / max(abs(read[-1]), np.exp(-m[j])) / (1 + np.exp(-o))
                np.testing.assert_allclose(y[t, row, j * d : (j + 1) * d], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(final[row], [*memories.ravel(), *m], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("exponential", [False, True])
def test_final_state_without_readings_is_the_same(exponential: bool) -> None:
    x, gates, state, *_ = problem = arguments(9, 3, 2, 3, exponential, False, seed=16)
    y, (final,) = run(reference, [x[..., 6:18], gates, state, 2, exponential, False])
    assert y.shape == (9, 3, 0)
    assert torch.equal(final, run(reference, problem)[1][0])


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("exponential", [False, True])
def test_gradients_of_the_reference_match_finite_differences(exponential: bool, reads: bool) -> None:
    assert_finite_differences(call_of, arguments(3, 2, 2, 2, exponential, False, seed=2, reads=reads))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.integers(1, 70),
    batch=st.integers(1, 9),
    heads=st.integers(1, 3),
    size=st.integers(1, 40),
    exponential=st.booleans(),
    fresh=st.booleans(),
    reads=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_kernels_match_the_reference(
    module: Any, dtype: torch.dtype, tolerance: float, agree: Any, seed: int, **sizes: Any
) -> None:
    """In value, in every gradient and in the trace."""
    agree(module, CASE, arguments(**sizes, seed=seed), dtype, tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("size", [16, 32, 47, 64, 70])
@pytest.mark.parametrize("reads", [True, False])
def test_sizes_of_whole_and_partial_vectors_match(
    module: Any, dtype: torch.dtype, tolerance: float, size: int, reads: bool, agree: Any
) -> None:
    agree(module, CASE, arguments(37, 2, 2, size, False, False, seed=3, reads=reads), dtype, tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 31, 32, 33, 150])
def test_gradients_of_the_final_state_match(
    module: Any, dtype: torch.dtype, tolerance: float, exponential: bool, steps: int
) -> None:
    """Without a trace, and of a loss that reads C, n and m each, or m alone."""
    problem = arguments(steps, 3, 2, 7, exponential, False, seed=17, reads=False)
    way = torch.randn(3, 2 * (7 * 8 + 1), generator=torch.Generator().manual_seed(18), dtype=torch.float64)
    for first in (0, 2 * 7 * 8):
        results = []
        for each, kind in ((module, dtype), (reference, torch.float64)):
            leaves = [tensor.float().to(kind).requires_grad_() for tensor in problem[:3]]
            _, (final,) = run(each, [*leaves, *problem[3:]])
            results.append(torch.autograd.grad((final * way.to(kind))[:, first:].sum(), leaves, materialize_grads=True))
        for actual, expected in zip(*results, strict=True):
            assert float((actual.double() - expected).norm()) <= tolerance * (1 + float(expected.norm()))


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("traced", [False, True])
def test_loss_of_one_result_matches(module: Any, dtype: torch.dtype, tolerance: float, traced: bool) -> None:
    """A loss of the outputs alone, and one of the final state alone."""
    problem = arguments(40, 2, 2, 5, False, False, seed=4)
    assert_losses_of_one_result(call_of, problem, module, dtype, tolerance, traced)


@in_c
@pytest.mark.parametrize(("heads", "size", "inputs"), [(1, 17, 1), (2, 19, 3), (4, 32, 1), (3, 5, 40)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("reads", [True, False])
def test_projections_match(heads: int, size: int, inputs: int, has_bias: bool, reads: bool) -> None:
    """The gradient of the inputs too."""
    generator = torch.Generator().manual_seed(5)
    steps, batch, width = 41, 7, (4 if reads else 2) * heads * size
    _, gates, state, *parameters = arguments(steps, batch, heads, size, False, False, seed=6, reads=reads)
    u, input_weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((steps, batch, inputs), (width, inputs), (width,))
    )
    tensors = [input_weight / inputs**0.5, gates, state, u, *([bias] if has_bias else [])]
    results = []
    for backend, dtype in ((cpu, torch.float32), (reference, torch.float64)):
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
        projection = Projection(leaves[3], leaves[0], leaves[4] if has_bias else None)
        x = projection if backend is cpu else torch.nn.functional.linear(leaves[3], leaves[0], projection.bias)
        call = mlstm.call(x, leaves[1], (leaves[2],), None, *parameters)
        assert backend is reference or cpu.makes(call)
        y, (final,) = backend.run(call)
        gradients = torch.autograd.grad(y.square().sum() + final.sin().sum(), leaves)
        results.append((y.detach(), *gradients))
    for actual, expected in zip(*results, strict=True):
        assert float((actual.double() - expected).norm()) <= 1e-4 * (1 + float(expected.norm()))


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize("reads", [True, False])
def test_projections_match_on_narrower_vectors(reads: bool) -> None:
    test_projections_match(2, 11, 19, True, reads)


@in_c
@pytest.mark.parametrize("reads", [True, False])
def test_thread_count_changes_no_number(reads: bool, same_with_threads: Any) -> None:
    same_with_threads(CASE, arguments(70, 7, 2, 20, False, False, seed=8, reads=reads))


@in_c
@pytest.mark.parametrize("reads", [True, False])
def test_thread_count_does_not_change_the_gradient_of_the_inputs(reads: bool, restored_threads: None) -> None:
    _, gates, state, *parameters = arguments(41, 9, 2, 11, False, False, seed=14, reads=reads)
    generator, results = torch.Generator().manual_seed(15), []
    shapes = ((41, 9, 19), (88 if reads else 44, 19))
    leaves = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        call = mlstm.call(Projection(*leaves), gates.float(), (state.float(),), None, *parameters)
        y, (final,) = cpu.run(call)
        results.append(torch.autograd.grad(y.square().sum() + final.square().sum(), leaves))
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("heads", "size"), [(3, 3), (2, 8), (1, 21)])
@pytest.mark.parametrize("reads", [True, False])
def test_kernels_match_on_narrower_vectors(heads: int, size: int, reads: bool, agree: Any) -> None:
    agree(cpu, CASE, arguments(39, 3, heads, size, size == 8, False, seed=9, reads=reads), torch.float32, 1e-4)


@in_c
@pytest.mark.parametrize("reads", [True, False])
def test_equal_numbers_share_a_derivative(reads: bool, agree: Any) -> None:
    """Whole numbers make log f + m = i at many steps, and exp(-m) = |n^T q| = 1 at the first; a kink is as torch's."""
    problem = arguments(6, 4, 1, 1, True, True, seed=10, reads=reads)
    problem[0] = problem[0].sign()
    problem[1] = problem[1].round()
    problem[1][0] = 0
    agree(cpu, CASE, problem, torch.float32, 2e-5)


@in_c
@pytest.mark.parametrize("i", [-1e4, -100.0, 0.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_extreme_gates_stay_finite_and_accurate(i: float, f: float) -> None:
    """Values and gradients are finite, and the values those of float64 to the rounding of the gates' sums.

    Queries and keys are positive, so that no sum of their products cancels.
    """
    x, gates, state, *parameters = arguments(70, 2, 2, 5, False, True, seed=11)
    x[..., :20] = x[..., :20].abs()
    gates = gates + torch.tensor([i, i, f, f], dtype=torch.float64)
    exact, _ = run(reference, [x, gates.float().double(), state, *parameters])
    leaves = [tensor.float().requires_grad_() for tensor in (x, gates, state)]
    y, (final,) = run(cpu, [*leaves, *parameters])
    assert final.isfinite().all()
    for gradient in torch.autograd.grad(y.square().sum() + final[:, :-2].sum(), leaves):
        assert gradient.isfinite().all()
    tolerance = 0.1 if i == 1e4 else 1e-3
    torch.testing.assert_close(y.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("module", [pytest.param(cpu, id="c", marks=in_c), pytest.param(MLSTM, id="chunks")])
@pytest.mark.parametrize("i", [-1e4, -100.0, 0.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_extreme_gates_without_readings_stay_finite(module: Any, i: float, f: float) -> None:
    x, gates, state, *parameters = arguments(70, 2, 2, 5, False, True, seed=11, reads=False)
    gates = gates + torch.tensor([i, i, f, f], dtype=torch.float64)
    _, (exact,) = run(reference, [x, gates.float().double(), state, *parameters])
    leaves = [tensor.float().requires_grad_() for tensor in (x, gates, state)]
    _, (final,) = run(module, [*leaves, *parameters])
    for gradient in torch.autograd.grad(final.square().sum(), leaves):
        assert gradient.isfinite().all()
    tolerance = 0.1 if i == 1e4 else 1e-3
    torch.testing.assert_close(final.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("module", [pytest.param(cpu, id="c", marks=in_c), pytest.param(MLSTM, id="chunks")])
def test_closed_forget_gate_keeps_later_precision_without_readings(module: Any) -> None:
    x, gates, state, *parameters = arguments(40, 2, 1, 5, True, False, seed=19, reads=False)
    gates[5::9, :, 1] = -3e5
    tensors = [tensor.float() for tensor in (x, gates, state)]
    (exact,) = run(reference, [*(tensor.double() for tensor in tensors), *parameters])[1]
    (actual,) = run(module, [*tensors, *parameters])[1]
    torch.testing.assert_close(actual.double(), exact, rtol=1e-4, atol=1e-5)


@in_c
def test_bound_of_the_largest_exponent_matches() -> None:
    """With m below -80 the bound is held at exp(80), and has no derivative by m. The memories are as large."""
    x, gates, state, *parameters = arguments(5, 2, 1, 6, True, False, seed=13)
    gates[..., 0] -= 300
    state[..., :-1] *= 1e34
    state[..., 36:42] *= 0.01
    state[..., -1] = -90
    results = []
    for module, dtype in ((cpu, torch.float32), (reference, torch.float64)):
        leaves = [tensor.float().to(dtype).requires_grad_() for tensor in (x, gates, state)]
        y, _ = run(module, [*leaves, *parameters])
        by_x, by_gates, by_state = torch.autograd.grad(y.square().sum(), leaves)
        results.append((y.detach(), by_x, by_gates, by_state[:, -1]))
    assert results[1][0].norm() > 0.1
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


@in_c
def test_nan_propagates_to_the_final_state() -> None:
    for part in range(2):
        problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(40, 1, 1, 5, False, True, 12, False)]
        problem[part][7, 0, 1] = torch.nan  # of a key, or of a forget gate
        assert bool(run(cpu, problem)[1][0].isnan().any())


@in_c
def test_nan_propagates() -> None:
    for gate in range(4):
        problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(2, 1, 1, 5, False, True, seed=12)]
        problem[0][0, 0, 5 * gate + 2] = torch.nan
        assert bool(run(cpu, problem)[0][0, 0, 2].isnan())
    for gate in range(2):
        problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(2, 1, 1, 5, False, True, seed=12)]
        problem[1][0, 0, gate] = torch.nan
        assert bool(run(cpu, problem)[0][0].isnan().all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "a state of 26 features is not C, n and m of 3 heads"),
        ({"heads": 0}, "a state of 26 features is not C, n and m of 0 heads"),
        ({"x": torch.zeros(2, 1, 5)}, r"x \[2, 1, 5\] should be \[2, 1, 24\]"),
        ({"reads": False}, r"x \[2, 1, 24\] should be \[2, 1, 12\]"),
        ({"gates": torch.zeros(2, 1, 3)}, r"weight \[2, 1, 3\] should be \[2, 1, 4\]"),
    ],
)
def test_incompatible_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    problem = {"x": torch.zeros(2, 1, 24), "gates": torch.zeros(2, 1, 4), "heads": 2, "reads": True, **change}
    with pytest.raises(ValueError, match=message):
        mlstm(problem["x"], problem["gates"], (torch.zeros(1, 26),), None, problem["heads"], reads=problem["reads"])


def parts(steps: int, seed: int = 3, gates=None, dtype=torch.float64) -> list[Tensor]:
    """q, k, v with its last feature, i and log f of `[B, heads, T, *]`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (D, D, D, 1, 1)
    q, k, v, i, f = (torch.randn(B, HEADS, steps, size, generator=generator, dtype=dtype) for size in sizes)
    i, f = (2 * i, 2 * f) if gates is None else (i + gates[0], f + gates[1])
    return [q, k, torch.cat((v, torch.ones_like(v[..., :1])), dim=-1), i, logsigmoid(f)]


def zeros(dtype=torch.float64) -> tuple[Tensor, Tensor]:
    return torch.zeros(B, HEADS, D + 1, D, dtype=dtype), torch.zeros(B, HEADS, 1, 1, dtype=dtype)


def in_chunks(arguments, length, memory, m) -> tuple[Tensor, Tensor, Tensor]:
    readings = []
    for part in zip(*(each.split(length, dim=2) for each in arguments), strict=True):
        read, memory, m = chunk(memory, m, *part)
        readings.append(read)
    return torch.cat(readings, dim=2), memory, m


def parallel(q, k, v, i, log_f) -> Tensor:
    """The paper's parallel form: one matrix of decays over the whole sequence, stabilised by row."""
    total = log_f.cumsum(dim=2)
    steps = q.shape[2]
    exponents = (total - total.mT + i.mT).masked_fill(torch.ones(steps, steps).triu(1).bool(), -math.inf)
    largest = exponents.amax(dim=-1, keepdim=True)
    scores = q @ k.mT * (exponents - largest).exp()
    return scores @ v[..., :-1] / torch.maximum(scores.sum(-1, keepdim=True).abs(), (-largest).exp())


@pytest.mark.parametrize("length", [1, 3, 8, 70])
def test_chunks_match_the_parallel_form_and_its_gradients(length):
    arguments = [each.requires_grad_() for each in parts(70)]
    actual, expected = in_chunks(arguments, length, *zeros())[0], parallel(*arguments)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)
    way = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pairs = (torch.autograd.grad((way * each).sum(), [*arguments[:2], *arguments[3:]]) for each in (actual, expected))
    for gradient, other in zip(*pairs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("length", [4, 40])
def test_memory_after_chunks_equals_single_steps(length):
    """With the authors' stabiliser m_t = max(log f + m_{t-1}, i), from a state of any kind."""
    arguments, generator = parts(40), torch.Generator().manual_seed(2)
    start = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in zeros()]
    _, memory, m = in_chunks(arguments, length, *start)
    expected, stabiliser = start
    _, k, v, i, log_f = arguments
    for t in range(40):
        before, stabiliser = (
            log_f[:, :, t, None] + stabiliser,
            torch.maximum(log_f[:, :, t, None] + stabiliser, i[:, :, t, None]),
        )
        written = v[:, :, t, :, None] * k[:, :, t, None]
        expected = (before - stabiliser).exp() * expected + (i[:, :, t, None] - stabiliser).exp() * written
    torch.testing.assert_close(m, stabiliser, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(memory, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("i", [-1e4, -100.0, 0.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_chunks_with_extreme_gates_stay_finite(i, f):
    """Values and gradients are finite, and the values those of single steps in float64.

    float32 holds a sum of 1e4 and a logarithm to 1e-3, so the shares of the steps are as exact.
    """
    arguments = parts(70, gates=(i, f), dtype=torch.float32)
    read, memory, m = in_chunks([each.requires_grad_() for each in arguments], 32, *zeros(torch.float32))
    assert memory.isfinite().all()
    assert m.isfinite().all()
    for gradient in torch.autograd.grad(read.square().sum() + memory.sum(), arguments):
        assert gradient.isfinite().all()
    exact = in_chunks([each.detach().double() for each in arguments], 1, *zeros())[0]
    torch.testing.assert_close(read.double(), exact, rtol=0.1 if i == 1e4 else 1e-3, atol=0.1 if i == 1e4 else 1e-3)


def test_closed_forget_gate_keeps_later_precision():
    """Steps after it have shares with the error of their own sums, not of one through the closed gate."""
    arguments = parts(32, gates=(0.0, 3.0), dtype=torch.float32)
    arguments[4][:, :, 5::9] = -3e5
    read = in_chunks(arguments, 32, *zeros(torch.float32))[0]
    exact = in_chunks([each.double() for each in arguments], 1, *zeros())[0]
    torch.testing.assert_close(read.double(), exact, rtol=1e-4, atol=1e-5)
