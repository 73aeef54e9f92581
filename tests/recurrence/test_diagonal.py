"""The kernels of the diagonal recurrence, in C and in pieces, against closed forms and the loop over its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from orthobench.recurrence import GradientTrace, diagonal_recurrence, kernels, reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.diagonal.cuda import Diagonal

Run = Callable[[Call], Result]
in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")


def in_pieces(call: Call) -> Result:
    return kernels.run(Diagonal, call)


KERNELS = [
    pytest.param(cpu.run, torch.float32, 2e-6, id="c", marks=in_c),
    pytest.param(in_pieces, torch.float64, 1e-12, id="pieces"),
]


def pairs(units: Any) -> Tensor:
    """Complex units `[..., n]` as features `[..., 2n]`."""
    return torch.view_as_real(torch.tensor(units, dtype=torch.complex128)).flatten(-2)


def units(features: Tensor) -> np.ndarray:
    return torch.view_as_complex(features.detach().double().unflatten(-1, (-1, 2)).contiguous()).numpy()


def close(actual: Any, expected: Any, tolerance: float) -> None:
    """The Frobenius distance, relative."""
    distance = np.linalg.norm(np.asarray(actual) - np.asarray(expected))
    assert distance <= tolerance * np.linalg.norm(np.asarray(expected)), distance


@pytest.mark.parametrize(("run", "dtype", "tolerance"), KERNELS)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9, 10, 16, 17, 101])
def test_constant_inputs_give_a_geometric_series(run: Run, dtype: torch.dtype, tolerance: float, steps: int) -> None:
    """Constant inputs from zero: h_t = x (1 - a^t) / (1 - a), and the gradients of sum_t conj(g) h_t likewise."""
    a = np.array([0.9, -0.7, 0.4 + 0.5j, 0.95 * np.exp(2j), 0.99j])
    x, g = np.array([1.0, 2j, 1 - 1j, 0.5, 3.0]), np.array([1j, 1.0, 2.0, 1 + 1j, -1.0])
    t = np.arange(1, steps + 1)[:, None]
    inputs = [pairs(np.broadcast_to(x, (steps, 3, 5))), pairs(a), torch.zeros(3, 10, dtype=torch.float64)]
    inputs = [each.to(dtype).contiguous().requires_grad_() for each in inputs]
    states, (final,) = run(diagonal_recurrence.call(inputs[0], inputs[1], (inputs[2],), is_complex=True))
    expected = x * (1 - a**t) / (1 - a)
    for row in range(3):
        close(units(states)[:, row], expected, tolerance)
    close(units(final)[0], expected[-1], tolerance)
    states.backward(pairs(np.broadcast_to(g, (steps, 3, 5))).to(dtype))
    by_x, by_a, by_h0 = (units(each.grad) for each in inputs if each.grad is not None)
    back = a.conj()
    close(by_x[:, 1], g * (1 - back ** (steps + 1 - t)) / (1 - back), tolerance)
    close(by_h0[2], g * back * (1 - back**steps) / (1 - back), tolerance)
    # dh_t/da = x d/da (1 - a^t) / (1 - a)
    slope = x * (-t * a ** (t - 1) * (1 - a) + (1 - a**t)) / (1 - a) ** 2
    if steps > 1:
        close(by_a, 3 * (g * slope.conj()).sum(0), 10 * tolerance)


@pytest.mark.parametrize(("run", "dtype", "tolerance"), KERNELS)
def test_coefficients_per_step_multiply(run: Run, dtype: torch.dtype, tolerance: float) -> None:
    """Without inputs h_t is h_0 times the product of the coefficients; dL/da_t is the product of all others."""
    a = torch.rand(7, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).add(0.5).to(dtype)
    a.requires_grad_()
    h0 = torch.tensor([[1.0, 2.0, -3.0], [0.5, 4.0, 1.0]], dtype=dtype)
    states, (final,) = run(diagonal_recurrence.call(torch.zeros(7, 2, 3, dtype=dtype), a, (h0,)))
    exact = a.detach().double().numpy()
    close(states.detach(), h0.numpy() * exact.cumprod(0), tolerance)
    final.sum().backward()
    assert a.grad is not None
    close(a.grad, h0.numpy() * exact.prod(0) / exact, 10 * tolerance)


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("per_step", [False, True])
def test_chunks_match_the_reference(steps: int, is_complex: bool, per_step: bool) -> None:
    """In value, in every gradient and in the trace."""
    generator = torch.Generator().manual_seed(steps)
    shapes = (steps, 2, 4), (steps, 2, 4) if per_step else (4,), (2, 4)
    x, a, h0 = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    results = []
    for run in (in_pieces, reference.run):
        inputs = [each.clone().requires_grad_() for each in (x, a, h0)]
        trace = GradientTrace()
        states, (final,) = run(diagonal_recurrence.call(inputs[0], inputs[1], (inputs[2],), trace, is_complex))
        loss = states.square().sum() + final.sum()
        results.append([states, final, *torch.autograd.grad(loss, inputs), trace.norms["h"]])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("run", [pytest.param(cpu.run, id="c", marks=in_c), pytest.param(in_pieces, id="pieces")])
def test_long_sequences_in_single_precision_match(run: Run) -> None:
    """Units that forget at once, whose powers underflow, next to one on the circle."""
    generator = torch.Generator().manual_seed(0)
    x, h0 = torch.randn(3000, 2, 8, generator=generator), torch.randn(2, 8, generator=generator)
    a = pairs([0.0, 1e-8 + 1e-8j, 0.9j, np.exp(2j)]).float()
    inputs = [each.clone().requires_grad_() for each in (x, a, h0)]
    wide = [each.double().requires_grad_() for each in (x, a, h0)]
    results = []
    for function, (u, weight, start) in ((run, inputs), (reference.run, wide)):
        states, _ = function(diagonal_recurrence.call(u, weight, (start,), is_complex=True))
        way = torch.randn(3000, 2, 8, generator=torch.Generator().manual_seed(1)).to(states.dtype)
        results.append([states.detach(), *torch.autograd.grad(states, (u, weight, start), way)])
    for actual, expected in zip(*results, strict=True):
        close(actual.double(), expected, 1e-4)


@in_c
def test_wide_row_is_divided_among_the_threads() -> None:
    """One sequence has one row: its features are divided, and no number changes."""
    x, a, h0 = torch.randn(400, 1, 1001), torch.rand(1001), torch.randn(1, 1001)
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            inputs = [each.clone().requires_grad_() for each in (x, a, h0)]
            states, _ = cpu.run(diagonal_recurrence.call(inputs[0], inputs[1], (inputs[2],), trace := GradientTrace()))
            results.append([states, *torch.autograd.grad(states.sum(), inputs), trace.norms["h"]])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))
