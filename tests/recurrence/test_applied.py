"""The recurrence by a structure is the recurrence by the matrix, in value, gradient and trace."""

import pytest
import torch

from orthobench.recurrence import MODRELU, TANH, GradientTrace, applied_recurrence, recurrence


def _both(last: bool, traced: bool, activation):
    found = []
    for applied in (True, False):
        generator = torch.Generator().manual_seed(0)
        x, weight, h0, bias = (
            torch.randn(*shape, generator=generator, dtype=torch.float64).mul(0.5).requires_grad_()
            for shape in ((11, 3, 4), (4, 4), (3, 4), (4,))
        )
        trace = GradientTrace() if traced else None
        if applied:
            h = applied_recurrence(x, lambda h, w=weight: h @ w.T, h0, activation, bias, trace, last)
        else:
            h = recurrence(x, weight, h0, activation, bias, trace=trace, last=last, backend="reference")
        gradients = torch.autograd.grad(h.square().sum(), (x, weight, h0, bias))
        found.append((h, *gradients, *(trace.norms.values() if trace else ())))
    return found


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("activation", [TANH, MODRELU])
def test_is_the_recurrence(last, traced, activation):
    ours, wanted = _both(last, traced, activation)
    torch.testing.assert_close(ours, wanted)


def test_without_gradients_nothing_is_kept():
    x = torch.ones(9, 2, 3)
    with torch.no_grad():
        states = applied_recurrence(x, lambda h: h, torch.zeros(2, 3), TANH)
    assert states.shape == (9, 2, 3)
    assert not states.requires_grad
