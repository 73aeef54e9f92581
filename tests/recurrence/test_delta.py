"""The delta rule in C and in chunks, against a literal transcription, the definition and products of reflections."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from orthobench.matrices.householder import householder_product
from orthobench.recurrence import GradientTrace, cpu, delta_chunks, delta_rule, native, reference
from orthobench.recurrence.call import Call, Result

Run = Callable[[Call], Result]
in_c = pytest.mark.skipif(bool(native.missing()), reason="no C compiler")
CASE = SimpleNamespace(name="delta_rule", op="delta_rule")
KERNELS = [
    pytest.param(cpu, torch.float32, 2e-5, id="c", marks=in_c),
    pytest.param(delta_chunks, torch.float64, 1e-12, id="chunks"),
]


def arguments(
    steps: int,
    batch: int,
    heads: int,
    keys: int,
    values: int,
    factors: int,
    gated: bool,
    epsilon: float | None,
    seed: int,
) -> list[Any]:
    """x, betas in (0, 2) and log decays below 0, the memory, and the parameters; float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(steps, batch, heads * (keys + factors * (keys + values)))
    if epsilon is None:  # unit keys
        k = x[..., heads * keys : heads * keys * (1 + factors)].unflatten(-1, (-1, keys))
        k /= k.norm(dim=-1, keepdim=True)
    weight = 2 * normal(steps, batch, heads * factors).sigmoid()
    if gated:
        weight = torch.cat((weight, -normal(steps, batch, heads).exp()), dim=-1)
    return [x, weight, normal(batch, heads * keys * values), heads, keys, factors, gated, epsilon]


def call_of(problem: list[Any], trace: GradientTrace | None = None) -> Call:
    x, weight, memory, *parameters = problem
    return delta_rule.call(x, weight, (memory,), trace, *parameters)


def test_the_definition_is_the_equation() -> None:
    """S <- e^g S, then S <- S + beta k (v - S^T k)^T for each key, then q^T S; every row, step and head on its own."""
    steps, batch, heads, keys, values, factors = 4, 3, 2, 3, 5, 2
    for gated in (False, True):
        for epsilon in (None, 0.3):
            problem = arguments(steps, batch, heads, keys, values, factors, gated, epsilon, seed=1)
            y, (final,) = reference.run(call_of(problem))
            x, weight, start = (tensor.numpy() for tensor in problem[:3])
            for row in range(batch):
                for head in range(heads):
                    memory = start[row].reshape(heads, keys, values)[head].copy()
                    for t in range(steps):
                        parts = np.split(x[t, row], [heads * keys, heads * keys * (1 + factors)])
                        q = parts[0].reshape(heads, keys)[head]
                        k, v = parts[1].reshape(factors, heads, keys), parts[2].reshape(factors, heads, values)
                        if gated:
                            memory = np.exp(weight[t, row, heads * factors + head]) * memory
                        for j in range(factors):
                            unit = k[j, head] / np.sqrt((k[j, head] ** 2).sum() + epsilon) if epsilon else k[j, head]
                            beta = weight[t, row, j * heads + head]
                            memory = memory + beta * np.outer(unit, v[j, head] - memory.T @ unit)
                        q = q / np.sqrt((q**2).sum() + epsilon) if epsilon else q
                        np.testing.assert_allclose(
                            y[t, row].reshape(heads, values)[head], memory.T @ q, rtol=1e-12, atol=1e-12
                        )
                    np.testing.assert_allclose(final[row].reshape(heads, keys, values)[head], memory, rtol=1e-12)


def test_gradients_of_the_definition_are_finite_differences() -> None:
    problem = arguments(3, 2, 2, 3, 2, 2, True, 0.1, seed=2)
    leaves = [tensor.requires_grad_() for tensor in problem[:3]]

    def run(*tensors: Tensor) -> Any:
        y, (final,) = reference.run(call_of([*tensors, *problem[3:]]))
        return y, final

    assert torch.autograd.gradcheck(run, leaves)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 9),
    batch=st.integers(1, 5),
    heads=st.integers(1, 3),
    keys=st.integers(1, 40),
    values=st.integers(1, 70),
    factors=st.integers(1, 3),
    gated=st.booleans(),
    epsilon=st.sampled_from([None, 1e-6, 0.1]),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_is_the_reference(
    module: Any, dtype: torch.dtype, tolerance: float, agree: Any, seed: int, **sizes: Any
) -> None:
    """In value, in every gradient and in the trace."""
    agree(module, CASE, arguments(**sizes, seed=seed), dtype, tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize(("keys", "values"), [(16, 16), (32, 32), (64, 32), (65, 33), (128, 128), (1, 1)])
@pytest.mark.parametrize("steps", [63, 64, 65, 150])
def test_chunks_of_steps(
    module: Any, dtype: torch.dtype, tolerance: float, keys: int, values: int, steps: int, agree: Any
) -> None:
    """Sequences that are shorter than a chunk, equal to it, or several chunks with a rest."""
    if keys > 64 and steps != 65:
        pytest.skip("one length of large heads is enough")
    factors, gated = (2, True) if steps == 65 else (1, False)
    agree(module, CASE, arguments(steps, 2, 1, keys, values, factors, gated, 1e-6, seed=3), dtype, 5 * tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("traced", [False, True])
def test_losses_of_one_result(module: Any, dtype: torch.dtype, tolerance: float, traced: bool) -> None:
    """A loss of the outputs alone, and one of the final memory alone."""
    for read in (0, 1):
        results = []
        for run, kind in ((module.run, dtype), (reference.run, torch.float64)):
            problem = arguments(7, 2, 2, 5, 4, 2, True, 1e-6, seed=4)
            leaves = [tensor.to(kind).requires_grad_() for tensor in problem[:3]]
            y, (final,) = run(call_of([*leaves, *problem[3:]], GradientTrace() if traced else None))
            results.append(torch.autograd.grad((y, final)[read].square().sum(), leaves))
        for actual, expected in zip(*results, strict=True):
            assert float((actual.double() - expected).norm()) <= tolerance * (1 + float(expected.norm()))


def test_the_trace_has_the_norms_of_the_memorys_gradient() -> None:
    """||dL/dS_t||: of the loss of the steps after t as a function of S_t, and of the reading at t."""
    problem = arguments(5, 2, 2, 3, 4, 1, True, None, seed=5)
    x, weight, start, *parameters = problem
    trace = GradientTrace()
    y, _ = reference.run(call_of([x.requires_grad_(), *problem[1:]], trace))
    y.square().sum().backward()
    for t in range(5):
        memory = start if t == 0 else None
        _, (memory,) = reference.run(delta_rule.call(x[: t + 1].detach(), weight[: t + 1], (start,), None, *parameters))
        memory = memory.detach().requires_grad_()
        q = x[t, :, :6].detach().unflatten(-1, (2, 3))
        loss = torch.einsum("bhk,bhkv->bhv", q, memory.unflatten(-1, (2, 3, 4))).square().sum()
        if t < 4:
            later, _ = reference.run(
                delta_rule.call(x[t + 1 :].detach(), weight[t + 1 :], (memory,), None, *parameters)
            )
            loss = loss + later.square().sum()
        (gradient,) = torch.autograd.grad(loss, memory)
        torch.testing.assert_close(trace.norms["h"][t], gradient.norm(dim=-1))


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_reflections_are_ornns_product(module: Any, dtype: torch.dtype, tolerance: float) -> None:
    """With unit keys, beta = 2 and values 0, r corrections multiply the memory by H(k_r) ... H(k_1)."""
    factors, n = 3, 6
    problem = arguments(1, 1, 1, n, n, factors, False, None, seed=6)
    x = problem[0]
    x[..., n * (1 + factors) :] = 0
    start = torch.eye(n, dtype=torch.float64).reshape(1, -1)
    weight = torch.full((1, 1, factors), 2.0, dtype=torch.float64)
    tensors = [tensor.to(dtype) for tensor in (x, weight, start)]
    _, (final,) = module.run(call_of([*tensors, *problem[3:]]))
    keys = x[0, 0, n : n * (1 + factors)].reshape(factors, n)
    expected = householder_product(keys.flip(0).T.contiguous())
    torch.testing.assert_close(final.reshape(n, n).double(), expected, rtol=0, atol=10 * tolerance)
    torch.testing.assert_close(expected @ expected.T, torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_the_memory_does_not_grow_and_reflections_keep_its_norm(
    module: Any, dtype: torch.dtype, tolerance: float
) -> None:
    """Without values a step contracts for beta in [0, 2]; for beta = 2 it is orthogonal, over 1,000 steps."""
    problem = arguments(1000, 2, 1, 8, 8, 1, False, None, seed=7)
    problem[0][..., 16:] = 0
    starts = problem[2]
    for beta in (problem[1], torch.full_like(problem[1], 2.0)):
        x, weight, start = (tensor.to(dtype) for tensor in (problem[0], beta, starts))
        norms = [start.norm(dim=-1)]
        memory = start
        for piece in range(10):
            part = slice(100 * piece, 100 * (piece + 1))
            _, (memory,) = module.run(call_of([x[part].contiguous(), weight[part].contiguous(), memory, *problem[3:]]))
            norms.append(memory.norm(dim=-1))
        sizes = torch.stack(norms)
        assert bool((sizes[1:] <= sizes[:-1] * (1 + 1e-4)).all())
        if float(beta.min()) == 2:
            torch.testing.assert_close(sizes[-1], sizes[0], rtol=1e-4, atol=0)
        else:
            assert bool((sizes[-1] < 0.5 * sizes[0]).all())


@in_c
def test_threads_change_no_number(evaluate: Any, restored_threads: None) -> None:
    problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(70, 7, 3, 16, 20, 2, True, 1e-6, seed=8)]
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(evaluate(cpu, CASE, problem))
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("keys", "values"), [(3, 5), (8, 8), (21, 35)])
def test_lesser_machines(keys: int, values: int, agree: Any) -> None:
    agree(cpu, CASE, arguments(5, 3, 2, keys, values, 2, True, 1e-6, seed=9), torch.float32, 2e-5)


@in_c
def test_nan_comes_out() -> None:
    problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(4, 2, 1, 5, 5, 1, True, 1e-6, seed=10)]
    problem[0][1, 1, 7] = torch.nan
    y, (final,) = cpu.run(call_of(problem))
    assert not y[:, 0].isnan().any()
    assert not y[0].isnan().any()
    assert y[1:, 1].isnan().all()
    assert final[1].isnan().any()


def test_a_decay_to_zero_forgets_without_nan() -> None:
    """exp(g) = 0: the chunks take no quotient of decays."""
    problem = arguments(5, 1, 1, 3, 3, 1, True, 1e-6, seed=11)
    problem[1][2, :, 1:] = -800.0
    leaves = [tensor.requires_grad_() for tensor in problem[:3]]
    results = []
    for module in (delta_chunks, reference):
        y, (final,) = module.run(call_of([*leaves, *problem[3:]]))
        results.append([y, final, *torch.autograd.grad(y.sum() + final.sum(), leaves)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": 4}, "a state of 30 features is not 2 matrices with 4 rows"),
        ({"x": torch.zeros(2, 1, 5)}, r"x \[2, 1, 5\] should be \[2, 1, 22\]"),
        ({"weight": torch.zeros(2, 1, 3)}, r"weight \[2, 1, 3\] should be \[2, 1, 2\]"),
        ({"weight": torch.zeros(2)}, r"weight \[2\] should be \[2, 1, 2\]"),
        ({"weight": torch.zeros(2, 1, 2).double()}, "float64"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    arguments = {"x": torch.zeros(2, 1, 22), "weight": torch.zeros(2, 1, 2), "keys": 3} | change
    with pytest.raises(ValueError, match=message):
        delta_rule(arguments["x"], arguments["weight"], (torch.zeros(1, 30),), None, 2, arguments["keys"])
