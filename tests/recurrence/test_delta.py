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
from support.definition import assert_finite_differences, assert_losses_of_one_result
from torch import Tensor

from orthobench.matrices.householder import householder_product
from orthobench.recurrence import Convolution, GradientTrace, Projection, delta_rule, reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.delta.cuda import Delta as Chunks
from orthobench.recurrence.passes.convolution import in_pytorch

pytestmark = pytest.mark.grid

Run = Callable[[Call], Result]
in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
CASE = SimpleNamespace(name="delta_rule", op="delta_rule")
KERNELS = [
    pytest.param(cpu, torch.float32, 2e-5, id="c", marks=in_c),
    pytest.param(Chunks, torch.float64, 1e-12, id="chunks"),
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


def test_reference_matches_the_equation() -> None:
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


def test_gradients_of_the_reference_match_finite_differences() -> None:
    assert_finite_differences(call_of, arguments(3, 2, 2, 3, 2, 2, True, 0.1, seed=2))


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 9),
    batch=st.integers(1, 5),
    heads=st.integers(1, 3),
    keys=st.integers(1, 40),
    values=st.integers(1, 70),
    factors=st.sampled_from([1, 2, 3, 17]),
    gated=st.booleans(),
    epsilon=st.sampled_from([None, 1e-6, 0.1]),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_kernels_match_the_reference(
    module: Any, dtype: torch.dtype, tolerance: float, agree: Any, seed: int, **sizes: Any
) -> None:
    """In value, in every gradient and in the trace."""
    agree(module, CASE, arguments(**sizes, seed=seed), dtype, tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize(("keys", "values"), [(16, 16), (32, 32), (64, 32), (65, 33), (128, 128), (1, 1)])
@pytest.mark.parametrize("steps", [63, 64, 65, 150])
def test_chunks_of_steps_match(
    module: Any, dtype: torch.dtype, tolerance: float, keys: int, values: int, steps: int, agree: Any
) -> None:
    """Sequences that are shorter than a chunk, equal to it, or several chunks with a rest."""
    if keys > 64 and steps != 65:
        pytest.skip("one length of large heads is enough")
    factors, gated = (2, True) if steps == 65 else (1, False)
    agree(module, CASE, arguments(steps, 2, 1, keys, values, factors, gated, 1e-6, seed=3), dtype, 5 * tolerance)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("traced", [False, True])
def test_loss_of_one_result_matches(module: Any, dtype: torch.dtype, tolerance: float, traced: bool) -> None:
    """A loss of the outputs alone, and one of the final memory alone."""
    problem = arguments(7, 2, 2, 5, 4, 2, True, 1e-6, seed=4)
    assert_losses_of_one_result(call_of, problem, module, dtype, tolerance, traced)


def test_trace_has_the_norms_of_the_memory_gradient() -> None:
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
def test_reflections_equal_the_ornn_product(module: Any, dtype: torch.dtype, tolerance: float) -> None:
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
def test_memory_does_not_grow_and_reflections_keep_its_norm(module: Any, dtype: torch.dtype, tolerance: float) -> None:
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


def convolved(run: Run, dtype: torch.dtype, sizes: dict[str, Any], inputs: int, taps: int) -> dict[str, Tensor]:
    """Outputs, final memory and gradients by name, of x = a convolution of a projection, or without inputs of x."""
    steps, batch, heads, factors, reads = (sizes[name] for name in ("steps", "batch", "heads", "factors", "reads"))
    problem = arguments(**{name: value for name, value in sizes.items() if name != "reads"})
    _, weight, memory, *parameters = problem
    width = heads * ((reads + factors) * sizes["keys"] + factors * sizes["values"])
    generator = torch.Generator().manual_seed(sizes["seed"])

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    leaves = {"weight": weight.float().to(dtype).requires_grad_(), "S": memory.float().to(dtype).requires_grad_()}
    leaves |= {"taps": normal(taps, width), "before": normal(taps - 1, batch, width)}
    source: Any = normal(steps, batch, inputs or width)
    if inputs:
        leaves["U"], source = normal(width, inputs), source.detach()
    else:
        leaves["x"] = source
    if run is reference.run:
        projected = source @ leaves["U"].T if inputs else source
        x: Any = in_pytorch(projected, leaves["taps"], leaves["before"])
    else:
        x = Convolution(Projection(source, leaves["U"]) if inputs else source, leaves["taps"], leaves["before"])
    rest: list[Any] = [*parameters, reads]
    call = delta_rule.call(x, leaves["weight"], (leaves["S"],), None, *rest)
    if run is cpu.run:
        assert cpu.makes(call)
    y, (final,) = run(call)
    results = {"y": y, "final": final} if reads else {"final": final}
    ways = [torch.randn(result.shape, generator=generator).to(dtype) for result in results.values()]
    by_leaf = torch.autograd.grad([*results.values()], [*leaves.values()], ways)
    results = {name: result.detach() for name, result in results.items()}
    return results | {f"gradient of {name}": each for name, each in zip(leaves, by_leaf, strict=True)}


def are_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.norm()) + 0.1 * value.numel() ** 0.5
        assert float((actual[name].double() - value).norm()) <= tolerance * scale, name


convolutions = given(
    inputs=st.sampled_from([0, 1, 2, 8]),
    taps=st.sampled_from([2, 4, 7, 8]),
    steps=st.sampled_from([1, 2, 3, 8, 16, 17, 65, 70]),
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    keys=st.integers(1, 40),
    values=st.integers(1, 40),
    factors=st.sampled_from([1, 2, 3, 17]),
    gated=st.booleans(),
    reads=st.booleans(),
    seed=st.integers(0, 1000),
)


def check_convolution(inputs: int, taps: int, **sizes: Any) -> None:
    """Compare every value and gradient: whole groups and a rest, sequences shorter than the convolution too."""
    sizes |= {"epsilon": 1e-3}
    expected = convolved(reference.run, torch.float64, sizes, inputs, taps)
    are_close(convolved(cpu.run, torch.float32, sizes, inputs, taps), expected, 2e-5)


@in_c
@settings(max_examples=25, deadline=None)
@convolutions
def test_kernel_computes_the_convolution(**sizes: Any) -> None:
    check_convolution(**sizes)


@in_c
@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@convolutions
def test_kernel_computes_the_convolution_of_many_sizes(**sizes: Any) -> None:
    check_convolution(**sizes)


USUAL = [
    {"steps": 150, "factors": 1, "gated": True, "reads": True},
    {"steps": 77, "factors": 2, "gated": False, "reads": True},
    {"steps": 77, "factors": 2, "gated": True, "reads": False},
    {"steps": 21, "factors": 3, "gated": True, "reads": True},
    {"steps": 5, "factors": 16, "gated": False, "reads": False},
]


@in_c
@pytest.mark.parametrize("sizes", USUAL)
@pytest.mark.parametrize("inputs", [0, 1])
def test_heads_of_the_usual_size_match(inputs: int, sizes: dict[str, Any]) -> None:
    """Whole chunks of 16 corrections by 32 keys and 32 values have a form of their own; the last chunk is a part."""
    sizes = sizes | {"batch": 2, "heads": 2, "keys": 32, "values": 32, "epsilon": 1e-3, "seed": 16}
    expected = convolved(reference.run, torch.float64, sizes, inputs, 4)
    are_close(convolved(cpu.run, torch.float32, sizes, inputs, 4), expected, 2e-5)


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize("sizes", USUAL[:2])
def test_heads_of_the_usual_size_match_on_narrower_vectors(sizes: dict[str, Any]) -> None:
    sizes = sizes | {"batch": 2, "heads": 2, "keys": 32, "values": 32, "epsilon": 1e-3, "seed": 16}
    expected = convolved(reference.run, torch.float64, sizes, 1, 4)
    are_close(convolved(cpu.run, torch.float32, sizes, 1, 4), expected, 2e-5)


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("inputs", "taps", "factors"), [(0, 4, 1), (1, 4, 2), (3, 2, 1)])
def test_kernel_computes_the_convolution_on_narrower_vectors(inputs: int, taps: int, factors: int) -> None:
    sizes: dict[str, Any] = {"steps": 19, "batch": 2, "heads": 2, "keys": 9, "values": 21, "factors": factors}
    sizes |= {"gated": True, "epsilon": 1e-3, "reads": True, "seed": 12}
    expected = convolved(reference.run, torch.float64, sizes, inputs, taps)
    are_close(convolved(cpu.run, torch.float32, sizes, inputs, taps), expected, 2e-5)


@in_c
@pytest.mark.parametrize(("keys", "values"), [(16, 20), (32, 32)])
def test_thread_count_does_not_change_the_convolution(restored_threads: None, keys: int, values: int) -> None:
    sizes: dict[str, Any] = {"steps": 70, "batch": 5, "heads": 3, "keys": keys, "values": values, "factors": 2}
    sizes |= {"gated": True, "epsilon": 1e-3, "reads": True, "seed": 13}
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(convolved(cpu.run, torch.float32, sizes, 1, 4))
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())


@in_c
def test_unsupported_convolution_is_computed_beforehand() -> None:
    """Too many taps or inputs, a bias, and inputs that need a gradient."""
    generator = torch.Generator().manual_seed(15)
    heads, keys, width, parameters = 1, 2, 6, (1, 2, 1, False, 1e-3)
    forms = ((9, 4, False, False), (2, 9, False, False), (2, 4, True, False), (2, 4, False, True))
    for inputs, taps, has_bias, needs_gradient in forms:
        shapes = [(12, 2, inputs), (width, inputs), (width,), (taps, width), (taps - 1, 2, width), (12, 2, heads)]
        u, weight, bias, *filters, beta, memory = (
            torch.randn(*shape, generator=generator) for shape in [*shapes, (2, keys * keys)]
        )
        source = Projection(u.requires_grad_(needs_gradient), weight, bias if has_bias else None)
        x = Convolution(source, *filters)
        assert not cpu.makes(delta_rule.call(x, beta.sigmoid(), (memory,), None, *parameters))
        actual, _ = delta_rule(x, beta.sigmoid(), (memory,), None, *parameters)
        convolution = in_pytorch(torch.nn.functional.linear(u, weight, source.bias), *filters)
        expected, _ = reference.run(delta_rule.call(convolution, beta.sigmoid(), (memory,), None, *parameters))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@in_c
def test_convolution_with_a_bias_is_computed_beforehand() -> None:
    generator = torch.Generator().manual_seed(16)
    shapes = ((12, 2, 6), (4, 6), (3, 2, 6), (6,), (12, 2, 1), (2, 4))
    x, weight, before, bias, beta, memory = (torch.randn(*shape, generator=generator) for shape in shapes)
    parameters = (1, 2, 1, False, 1e-3)
    convolution = Convolution(x, weight, before, bias)
    assert not cpu.makes(delta_rule.call(convolution, beta.sigmoid(), (memory,), None, *parameters))
    actual, _ = delta_rule(convolution, beta.sigmoid(), (memory,), None, *parameters)
    convolved = in_pytorch(x, weight, before, bias)
    expected, _ = reference.run(delta_rule.call(convolved, beta.sigmoid(), (memory,), None, *parameters))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("module", "dtype", "tolerance"), KERNELS)
def test_memory_without_queries_is_the_same(module: Any, dtype: torch.dtype, tolerance: float) -> None:
    """x has no query, and the outputs have no features; the memory and its gradients do not change."""
    heads, keys = 2, 5
    x, weight, memory, *parameters = arguments(20, 2, heads, keys, 4, 2, True, 1e-6, seed=14)
    results = []
    for run, kind, reads in ((module.run, dtype, False), (reference.run, torch.float64, True)):
        features = x[..., 0 if reads else heads * keys :]
        leaves = [tensor.to(kind).requires_grad_() for tensor in (features, weight, memory)]
        rest: list[Any] = [*parameters, reads]
        y, (final,) = run(delta_rule.call(leaves[0], leaves[1], (leaves[2],), None, *rest))
        assert reads or y.shape == (20, 2, 0)
        dx, *others = torch.autograd.grad(final.square().sum(), leaves)
        results.append([final.detach(), dx[..., heads * keys if reads else 0 :], *others])
    for actual, expected in zip(*results, strict=True):
        assert float((actual.double() - expected).norm()) <= tolerance * (1 + float(expected.norm()))


@in_c
def test_thread_count_changes_no_number(same_with_threads: Any) -> None:
    same_with_threads(CASE, arguments(70, 7, 3, 16, 20, 2, True, 1e-6, seed=8))


@in_c
@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize(("keys", "values"), [(3, 5), (8, 8), (21, 35)])
def test_kernels_match_on_narrower_vectors(keys: int, values: int, agree: Any) -> None:
    agree(cpu, CASE, arguments(5, 3, 2, keys, values, 2, True, 1e-6, seed=9), torch.float32, 2e-5)


@in_c
def test_nan_propagates() -> None:
    problem = [a.float() if isinstance(a, Tensor) else a for a in arguments(4, 2, 1, 5, 5, 1, True, 1e-6, seed=10)]
    problem[0][1, 1, 7] = torch.nan
    y, (final,) = cpu.run(call_of(problem))
    assert not y[:, 0].isnan().any()
    assert not y[0].isnan().any()
    assert y[1:, 1].isnan().all()
    assert final[1].isnan().any()


def test_decay_to_zero_forgets_without_nan() -> None:
    """exp(g) = 0: the chunks take no quotient of decays."""
    problem = arguments(5, 1, 1, 3, 3, 1, True, 1e-6, seed=11)
    problem[1][2, :, 1:] = -800.0
    leaves = [tensor.requires_grad_() for tensor in problem[:3]]
    results = []
    for module in (Chunks, reference):
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
        (
            {"x": Convolution(torch.zeros(2, 1, 22), torch.zeros(4, 21), torch.zeros(3, 1, 22))},
            r"do not fit: \[2, 1, 22\], \[4, 21\], \[3, 1, 22\]",
        ),
        (
            {"x": Convolution(torch.zeros(2, 1, 22), torch.zeros(4, 22), torch.zeros(4, 1, 22))},
            r"do not fit: \[2, 1, 22\], \[4, 22\], \[4, 1, 22\]",
        ),
        ({"x": Convolution(torch.zeros(2, 1, 22), torch.zeros(4, 22).double(), torch.zeros(3, 1, 22))}, "float64"),
    ],
)
def test_incompatible_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"x": torch.zeros(2, 1, 22), "weight": torch.zeros(2, 1, 2), "keys": 3} | change
    with pytest.raises(ValueError, match=message):
        delta_rule(arguments["x"], arguments["weight"], (torch.zeros(1, 30),), None, 2, arguments["keys"])
