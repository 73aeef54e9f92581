"""The recurrence with an applied W is the recurrence with the matrix, in value, gradient and trace."""

import pytest
import torch

from orthobench.recurrence import (
    MODRELU,
    TANH,
    BackendError,
    GradientTrace,
    cornn,
    last_used,
    recurrence,
    reference,
    use_backend,
)
from orthobench.recurrence.backends import forget_used


def results(applied: bool, read_last: bool, traced: bool, activation):
    generator = torch.Generator().manual_seed(0)
    x, matrix, h0, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).mul(0.5).requires_grad_()
        for shape in ((11, 3, 4), (4, 4), (3, 4), (4,))
    )
    trace = GradientTrace() if traced else None
    weight = (lambda h: h @ matrix.T) if applied else matrix
    outputs, (final,) = reference.run(recurrence.call(x, weight, (h0,), trace, activation, bias))
    read = final if read_last else outputs
    gradients = torch.autograd.grad(read.square().sum(), (x, matrix, h0, bias))
    return read, *gradients, *(trace.norms.values() if trace else ())


@pytest.mark.parametrize("read_last", [True, False])
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("activation", [TANH, MODRELU])
def test_applied_matrix_equals_the_recurrence(read_last, traced, activation):
    applied, formed = (results(applied, read_last, traced, activation) for applied in (True, False))
    torch.testing.assert_close(applied, formed)


def test_nothing_is_stored_without_gradients():
    with torch.no_grad():
        outputs, (final,) = recurrence(torch.ones(9, 2, 3), lambda h: h, (torch.zeros(2, 3),))
    assert outputs.shape == (9, 2, 3)
    assert not outputs.requires_grad
    assert torch.equal(final, outputs[-1])


def test_applied_matrix_uses_dispatch():
    forget_used()
    arguments = torch.ones(9, 2, 3), lambda h: h, (torch.zeros(2, 3),)
    recurrence(*arguments)
    assert last_used() == {"reference"}
    with use_backend("cpu"), pytest.raises(BackendError, match="cpu cannot serve this: W is applied by a function"):
        recurrence(*arguments)


def test_operation_with_several_products_refuses_an_applied_matrix():
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="cornn: the weight should be a tensor"):
        cornn(torch.ones(9, 2, 3), lambda h: h, (zeros, zeros), None, 0.1, 1.0, 1.0)
