"""The sLSTM in C against the definition: heads, projections, ragged sizes, kinks, and the gates' limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from orthobench.recurrence import GradientTrace, Projection, reference, slstm, spread_heads
from orthobench.recurrence.call import Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu

pytestmark = [
    pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)"),
    pytest.mark.grid,
]
CASE = SimpleNamespace(name="slstm", op="slstm")


def arguments(steps: int, batch: int, heads: int, size: int, exponential: bool, fresh: bool, seed: int) -> list[Any]:
    """x, the weight, the state, which is zero or any, and the parameters; float64."""
    generator = torch.Generator().manual_seed(seed)
    n = heads * size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, weight = normal(steps, batch, 4 * n), normal(4 * n, size) / size**0.5
    state = [torch.zeros(batch, n, dtype=torch.float64) if fresh else normal(batch, n) for _ in range(4)]
    if not fresh:
        state[2] = state[2].abs() + 0.5
    return [x, weight, *state, exponential, heads]


def run(module: Any, problem: list[Any], trace: GradientTrace | None = None) -> Result:
    x, weight, *state = problem[:6]
    result: Result = module.run(slstm.call(x, weight, tuple(state), trace, *problem[6:]))
    return result


def test_heads_equal_a_block_diagonal_matrix() -> None:
    """Value and gradient of the definition, whose weight has each head's columns alone."""
    problem = arguments(5, 2, 3, 2, False, False, seed=1)
    blocks = problem[1].requires_grad_()
    dense = torch.cat([torch.block_diag(*gate.split(2)) for gate in blocks.chunk(4)])
    assert torch.equal(spread_heads(blocks, 3), dense)
    y, _ = run(reference, problem)
    expected, _ = run(reference, [problem[0], dense, *problem[2:6], False, 1])
    torch.testing.assert_close(y, expected)
    gradients = [torch.autograd.grad(each.square().sum(), blocks) for each in (y, expected)]
    torch.testing.assert_close(*gradients)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 40),
    heads=st.integers(1, 4),
    size=st.integers(1, 40),
    exponential=st.booleans(),
    fresh=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_kernels_match_the_reference(agree: Any, seed: int, **sizes: Any) -> None:
    """In value, in every gradient and in the trace."""
    agree(cpu, CASE, arguments(**sizes, seed=seed), torch.float32, 2e-5)


@pytest.mark.parametrize(("heads", "size", "inputs"), [(1, 17, 1), (2, 19, 3), (4, 32, 1), (3, 5, 40)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_projections_match(heads: int, size: int, inputs: int, has_bias: bool) -> None:
    """The gradients of U, b and the inputs too, each alone and all."""
    generator = torch.Generator().manual_seed(2)
    steps, batch, n = 23, 30, heads * size
    _, weight, *state, exponential, heads = arguments(1, batch, heads, size, False, False, seed=3)
    u, input_weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((steps, batch, inputs), (4 * n, inputs), (4 * n,))
    )
    tensors = [input_weight / inputs**0.5, weight, *state, u, *([bias] if has_bias else [])]
    for trained in ({0}, {1}, {6}, set(range(len(tensors)))):
        results = []
        for backend, dtype in ((cpu, torch.float32), (reference, torch.float64)):
            leaves = [tensor.detach().to(dtype).requires_grad_(k in trained) for k, tensor in enumerate(tensors)]
            mapped, blocks, *start = leaves[:6]
            projection = Projection(leaves[6], mapped, leaves[7] if has_bias else None)
            x = projection if backend is cpu else torch.nn.functional.linear(leaves[6], mapped, projection.bias)
            call = slstm.call(x, blocks, tuple(start), None, exponential, heads)
            assert backend is reference or cpu.makes(call)
            y, final = backend.run(call)
            loss = y.square().sum() + sum(each.sin().sum() for each in final)
            results.append((y.detach(), *torch.autograd.grad(loss, [leaves[k] for k in sorted(trained)])))
        for actual, expected in zip(*results, strict=True):
            assert float((actual.double() - expected).norm()) <= 1e-5 * (1 + float(expected.norm()))


@pytest.mark.parametrize("read", range(5))
def test_loss_of_one_result_matches(read: int) -> None:
    """Of the outputs alone, and of each part of the final state alone."""
    results = []
    for module, kind in ((cpu, torch.float32), (reference, torch.float64)):
        problem = arguments(20, 3, 2, 9, False, False, seed=4)
        leaves = [tensor.to(kind).requires_grad_() for tensor in problem[:6]]
        y, final = run(module, [*leaves, *problem[6:]])
        results.append(torch.autograd.grad((y, *final)[read].square().sum(), leaves))
    for actual, expected in zip(*results, strict=True):
        assert float((actual.double() - expected).norm()) <= 2e-5 * (1 + float(expected.norm()))


def test_numbers_without_gradients_are_the_same() -> None:
    """Then c and n of one step are kept alone."""
    problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(19, 6, 2, 18, False, False, seed=5)]
    y, final = run(cpu, problem)
    again, same = run(cpu, [problem[0].clone().requires_grad_(), *problem[1:]])
    assert torch.equal(y, again)
    assert all(map(torch.equal, final, same))


def test_thread_count_changes_no_number(same_with_threads: Any) -> None:
    same_with_threads(CASE, arguments(70, 37, 2, 20, False, False, seed=6))


@pytest.mark.usefixtures("lesser_machine")
def test_projections_match_on_narrower_vectors() -> None:
    test_projections_match(2, 11, 19, True)


def test_thread_count_does_not_change_the_gradient_of_the_inputs(restored_threads: None) -> None:
    _, weight, *state, exponential, heads = arguments(1, 30, 2, 11, False, False, seed=15)
    generator, results = torch.Generator().manual_seed(16), []
    leaves = [torch.randn(*shape, generator=generator).requires_grad_() for shape in ((23, 30, 19), (88, 19))]
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        start = tuple(each.float() for each in state)
        call = slstm.call(Projection(*leaves), weight.float(), start, None, exponential, heads)
        y, _ = cpu.run(call)
        results.append(torch.autograd.grad(y.square().sum(), leaves))
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("heads", "size"), [(3, 1), (2, 8), (4, 21)])
@pytest.mark.parametrize("fresh", [False, True])
def test_kernels_match_on_narrower_vectors(heads: int, size: int, fresh: bool, agree: Any) -> None:
    agree(cpu, CASE, arguments(18, 13, heads, size, size == 8, fresh, seed=7), torch.float32, 2e-5)


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("i", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 100.0, 1e4])
def test_extreme_gates_match(i: float, f: float, exponential: bool, agree: Any) -> None:
    """From zeros and from any state: values and gradients are those of the definition."""
    for fresh in (False, True):
        problem = arguments(9, 2, 2, 5, exponential, fresh, seed=8)
        problem[0][..., :10] += i
        problem[0][..., 10:20] += f
        agree(cpu, CASE, problem, torch.float32, 2e-2 if 1e4 in (abs(i), abs(f)) else 2e-4)


def test_equal_exponents_share_the_derivative_of_the_larger(agree: Any) -> None:
    """With f = exp and whole numbers log f + m is i at many steps; a kink's derivative is torch's."""
    problem = arguments(6, 4, 1, 18, True, False, seed=9)
    problem[0][..., :36] = problem[0][..., :36].round().clamp(-1, 1)
    problem[1].zero_()
    problem[5] = problem[5].round()
    agree(cpu, CASE, problem, torch.float32, 2e-5)


def test_bound_of_the_largest_exponent_at_the_start_matches(agree: Any) -> None:
    """A start with n = 0 and c of any value, whose factor is held at exp(80)."""
    problem = arguments(4, 3, 1, 6, False, True, seed=10)
    problem[0][0, :, :6] -= 90
    problem[3] = 1e-35 * (1 + torch.arange(18.0, dtype=torch.float64).view(3, 6))
    agree(cpu, CASE, problem, torch.float32, 2e-4)


def test_nan_propagates() -> None:
    for gate in range(4):
        problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(2, 1, 1, 5, False, True, seed=11)]
        problem[0][0, 0, 5 * gate + 2] = torch.nan
        assert bool(run(cpu, problem)[0][0, 0, 2].isnan())


@pytest.mark.parametrize(
    ("heads", "message"),
    [(4, r"weight \[24, 3\] should be \[24, 1\]"), (0, r"weight \[24, 3\] should be \[24, 6\]")],
)
def test_indivisible_heads_are_refused(heads: int, message: str) -> None:
    problem = arguments(1, 1, 2, 3, False, True, seed=12)
    with pytest.raises(ValueError, match=message):
        run(reference, [*problem[:7], heads])
    with pytest.raises(ValueError, match="heads=4 should divide the 6 features"):
        run(reference, [problem[0], problem[1][:, :1], *problem[2:7], 4])


@pytest.mark.parametrize("exponential", [False, True])
def test_infinity_matches_the_reference(exponential: bool) -> None:
    """An infinite gate or stabiliser has the weight exp(inf - inf), NaN; an infinite normaliser divides to 0."""
    problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(4, 3, 1, 18, exponential, False, seed=6)]
    spots = [(0, block * 18 + 5 + 72) for block in range(4)] + [(index, 7) for index in range(1, 6)]
    for index, at in spots:
        for value in (float("inf"), float("-inf")):
            spoiled = list(problem)
            spoiled[index] = problem[index].clone()
            spoiled[index].view(-1)[at] = value
            with torch.no_grad():
                (actual, states), (expected, ends) = (run(module, spoiled) for module in (cpu, reference))
            torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(states, ends, equal_nan=True, rtol=1e-4, atol=1e-4)
