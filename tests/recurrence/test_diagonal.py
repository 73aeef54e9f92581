"""The diagonal recurrence in pieces against the loop over its steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from orthobench.recurrence import GradientTrace, diagonal_recurrence, kernels, reference
from orthobench.recurrence.diagonal import Diagonal


def scan(u: Tensor, decay: Tensor, s0: Tensor, trace: GradientTrace | None = None) -> Tensor:
    """All states by the kernel, in any complex type."""
    return kernels.run(Diagonal, diagonal_recurrence.call(u, decay, (s0,), trace))[0]


def draw(steps: int, batch: int = 3, n: int = 4, dtype: torch.dtype = torch.complex128) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(steps)
    u = torch.randn(steps, batch, n, generator=generator, dtype=dtype)
    modulus = torch.rand(n, generator=generator, dtype=torch.float64)
    angle = 6 * torch.rand(n, generator=generator, dtype=torch.float64)
    decay = torch.polar(modulus, angle).to(dtype)
    return u, decay, torch.randn(batch, n, generator=generator, dtype=dtype)


def loop(u: np.ndarray, decay: np.ndarray, s: np.ndarray) -> np.ndarray:
    states = []
    for u_t in u:
        s = decay * s + u_t
        states.append(s)
    return np.array(states)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9, 10, 16, 17, 101])
def test_is_the_loop(steps: int) -> None:
    arguments = draw(steps)
    expected = loop(*(a.numpy() for a in arguments))
    np.testing.assert_allclose(scan(*arguments).numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
def test_gradients_by_finite_differences(steps: int) -> None:
    arguments = tuple(a.requires_grad_() for a in draw(steps, 2, 3))
    assert torch.autograd.gradcheck(scan, arguments)


def test_long_sequences_in_single_precision() -> None:
    """Units that forget at once, whose powers underflow, beside one on the circle."""
    u, _, s0 = draw(3000, 2, 4)
    decay = torch.tensor([0.0, 1e-8 + 1e-8j, 0.9j, np.exp(2j)], dtype=torch.complex128).to(torch.complex64)
    actual = scan(u.to(torch.complex64), decay, s0.to(torch.complex64)).numpy()
    single = [a.to(torch.complex64).to(torch.complex128).numpy() for a in (u, decay, s0)]
    expected = loop(*single)
    assert np.linalg.norm(actual - expected) / np.linalg.norm(expected) < 1e-4


def test_trace_is_the_total_derivative_at_every_step() -> None:
    steps = 11
    u, decay, s0 = draw(steps)
    way = torch.randn(steps, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
    trace = GradientTrace()
    states = scan(u.requires_grad_(), decay, s0, trace)
    (states * way).sum().real.backward()
    total, expected = np.zeros((3, 4), complex), []
    for w in way.numpy()[::-1].conj():
        total = w + decay.numpy().conj() * total
        expected.append(np.sqrt((np.abs(total) ** 2).sum(-1)))
    np.testing.assert_allclose(trace.norms["h"].numpy(), expected[::-1])


def test_refuses_what_does_not_fit() -> None:
    u, decay, s0 = draw(4)
    for arguments in ((u[0], decay, s0), (u[:0], decay, s0), (u, decay[:2], s0), (u, decay, s0[:1])):
        with pytest.raises(ValueError, match="should be"):
            scan(*arguments)


def test_the_kernel_is_the_reference() -> None:
    """In value, in every gradient and in the trace."""
    results = []
    for run in (lambda call: kernels.run(Diagonal, call), reference.run):
        u, decay, s0 = (a.clone().requires_grad_() for a in draw(7))
        trace = GradientTrace()
        outputs, (final,) = run(diagonal_recurrence.call(u, decay, (s0,), trace))
        loss = outputs.abs().square().sum() + final.real.sum()
        results.append([outputs, final, *torch.autograd.grad(loss, (u, decay, s0)), trace.norms["h"]])
    torch.testing.assert_close(*results)
