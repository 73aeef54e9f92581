"""The functions between two products, against their equations and their derivatives in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import gated_sum, skip_gelu, use_backend
from orthobench.recurrence.cpu import call_c

SHAPES = [(1, 1), (3, 2, 1), (5, 17), (70, 3, 16), (9, 130)]


def distribution(z: Tensor) -> tuple[Tensor, Tensor]:
    """P(X <= z) of a normal X, and its density, one number at a time."""
    below = torch.tensor([0.5 * math.erfc(-each / math.sqrt(2)) for each in z.flatten().tolist()], dtype=z.dtype)
    return below.reshape(z.shape), torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def by_skip_gelu(x: Tensor, skip: Tensor, v: Tensor, way: Tensor) -> tuple[Tensor, ...]:
    """The value and the gradients by x, skip and v."""
    z = x + skip * v
    below, density = distribution(z)
    dz = way * (below + z * density)
    return z * below, dz, (dz * v).flatten(0, -2).sum(0), dz * skip


def by_gated_sum(base: Tensor, values: Tensor, way: Tensor) -> tuple[Tensor, ...]:
    """The value and the gradients by base and values."""
    n = base.shape[-1]
    a, opened = values[..., :n], 1 / (1 + torch.exp(-values[..., n:]))
    return base + a * opened, way, torch.cat((way * opened, way * a * opened * (1 - opened)), dim=-1)


def assert_is(function: Callable[..., Tensor], definition: Any, arguments: list[Tensor], way: Tensor) -> None:
    exact = definition(*(each.detach().double() for each in (*arguments, way)))
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 1e-12)):
        leaves = [argument.detach().to(dtype, copy=True).requires_grad_() for argument in arguments]
        y = function(*leaves)
        results = (y.detach(), *torch.autograd.grad(y, leaves, way.to(dtype)))
        for actual, expected in zip(results, exact, strict=True):
            bound = tolerance * (1 + expected.abs().max())
            torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=float(bound))


def arguments_of(shape: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """The arguments of `skip_gelu`, those of `gated_sum`, and a direction."""
    generator = torch.Generator().manual_seed(1)
    width = shape[-1]
    shapes = (shape, (width,), shape, (*shape[:-1], 2 * width), shape)
    x, skip, v, values, way = (3 * torch.randn(*each, generator=generator) for each in shapes)
    return [x, skip, v], [v, values], way


@pytest.mark.usefixtures("restored_threads", "runs_in_c")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_match_their_equations(shape: tuple[int, ...], count: int) -> None:
    torch.set_num_threads(count)
    first, second, way = arguments_of(shape)
    assert_is(skip_gelu, by_skip_gelu, first, way)
    assert_is(gated_sum, by_gated_sum, second, way)


@pytest.mark.usefixtures("lesser_machine", "runs_in_c")
@pytest.mark.parametrize("shape", SHAPES[1:3])
def test_functions_match_on_narrower_vectors(shape: tuple[int, ...]) -> None:
    first, second, way = arguments_of(shape)
    assert_is(skip_gelu, by_skip_gelu, first, way)
    assert_is(gated_sum, by_gated_sum, second, way)


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_thread_count_changes_no_number(restored_threads: None) -> None:
    first, second, way = arguments_of((40, 33))
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaves = [each.clone().requires_grad_() for each in (*first, *second)]
        y, o = skip_gelu(*leaves[:3]), gated_sum(*leaves[3:])
        results.append((y, o, *torch.autograd.grad((y, o), leaves, (way, way))))
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.mark.usefixtures("runs_in_c")
def test_large_results_written_around_the_caches_match() -> None:
    """The results of more numbers than a cache holds are those of their rows in parts."""
    first, second, _ = arguments_of((70_000, 16))
    for function, arguments in ((skip_gelu, first), (gated_sum, second)):
        whole = function(*arguments)
        parts = [function(*(each[k::2] if each.dim() > 1 else each for each in arguments)) for k in range(2)]
        assert torch.equal(whole, torch.stack(parts, dim=1).flatten(0, 1))


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_gelu_is_exact_in_its_tails() -> None:
    """Relative to the value, where torch's float32 subtracts equal numbers; and NaN comes out as NaN."""
    z = torch.linspace(-12, 12, 4001)
    with use_backend("cpu"):
        y = skip_gelu(z[:, None], torch.zeros(1), torch.zeros(len(z), 1))[:, 0].double()
        assert bool(skip_gelu(torch.full((1, 1), torch.nan), torch.zeros(1), torch.zeros(1, 1)).isnan())
    exact = z.double() * distribution(z.double())[0]
    assert float(((y - exact).abs() / (1e-30 + exact.abs())).max()) < 2e-5  # e^(-72) has the rounding of 72
    near = z.abs() < 4
    assert float(((y - exact).abs() / (1e-30 + exact.abs()))[near].max()) < 1.5e-6
