import numpy as np
import pytest
import torch

from orthobench.matrices.initial import glorot_vector_, half_circle_angles
from orthobench.matrices.skew import (
    block_rotation_entries,
    inverse_of_shifted,
    minus_ones_last,
    scaled_cayley,
    skew,
    upper_entries,
)
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.projection import matrix_product

SIZES = [(1, 0), (2, 1), (5, 2), (12, 12), (17, 9)]


def _entries(n: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n * (n - 1) // 2, generator=torch.Generator().manual_seed(n), dtype=dtype)


def _literal(upper: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """The paper's equation, with an inverse, for autograd to differentiate."""
    n = signs.numel()
    a = torch.zeros(n, n, dtype=upper.dtype)
    a[tuple(torch.triu_indices(n, n, 1))] = upper
    a = a - a.T
    identity = torch.eye(n, dtype=upper.dtype)
    return torch.linalg.inv(identity + a) @ (identity - a) @ torch.diag(signs.to(upper.dtype))


@pytest.mark.parametrize(("n", "rho"), SIZES)
def test_matches_the_papers_equation(n, rho):
    signs = minus_ones_last(n, rho)
    torch.testing.assert_close(scaled_cayley(_entries(n), signs), _literal(_entries(n), signs))


@pytest.mark.parametrize(("n", "rho"), SIZES)
def test_gradient_matches_theorem_3_2_autograd_and_finite_differences(n, rho):
    signs, upper = minus_ones_last(n, rho), _entries(n).requires_grad_()
    gradient = torch.randn(n, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (actual,) = torch.autograd.grad(scaled_cayley(upper, signs), upper, gradient)
    (automatic,) = torch.autograd.grad(_literal(upper, signs), upper, gradient)
    torch.testing.assert_close(actual, automatic)

    a, w, g = (x.detach().numpy() for x in (skew(upper, n), _literal(upper, signs), gradient))
    v = np.linalg.inv(np.eye(n) + a).T @ g @ (np.diag(signs.numpy()) + w.T)
    theorem = (v.T - v)[np.triu_indices(n, 1)]
    np.testing.assert_allclose(actual.numpy(), theorem, rtol=1e-9, atol=1e-12)

    if n > 1:
        assert torch.autograd.gradcheck(lambda u: scaled_cayley(u, signs), upper)


@pytest.mark.parametrize("n", [9, 70, 200])
def test_gradient_in_float32_matches_float64(n):
    """The products of float32 are made by the C kernels."""
    signs, gradient = minus_ones_last(n, n // 3), torch.randn(n, n, generator=torch.Generator().manual_seed(1))
    upper = _entries(n, torch.float32).div_(n**0.5).requires_grad_()
    exact = upper.detach().double().requires_grad_()
    (actual,) = torch.autograd.grad(scaled_cayley(upper, signs), upper, gradient)
    (expected,) = torch.autograd.grad(scaled_cayley(exact, signs.double()), exact, gradient.double())
    assert (actual - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize("n", [2, 33, 170, 401])
@pytest.mark.parametrize("threads", [1, 2])
def test_c_has_the_numbers_of_torch_and_of_the_packed_product(n, threads, monkeypatch):
    """Stored runs keep their numbers. Up to 400 rows, the inverse is stored column by column."""
    assert not call_c.missing()
    signs, upper = minus_ones_last(n, n // 3), _entries(n, torch.float32).requires_grad_()
    drawn = torch.randn(n, 2 * n, generator=torch.Generator().manual_seed(1))
    gradients = drawn[:, :n].contiguous(), drawn[:, :n].T, drawn[:, ::2], torch.ones(()).expand(n, n)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    inverse = inverse_of_shifted(skew(upper.detach(), n).double())
    double = 2 * inverse * signs - torch.diag(signs)
    inverse = inverse.float()
    for gradient in gradients:
        weight = scaled_cayley(upper, signs)
        (actual,) = torch.autograd.grad(weight, upper, gradient)
        v = matrix_product(matrix_product(inverse.T, 2 * gradient * signs), inverse.T)
        assert torch.equal(weight, double.float())
        assert torch.equal(actual, upper_entries(v.T - v))
    assert weight.is_contiguous()


def test_entries_of_another_length_are_an_error():
    with pytest.raises(RuntimeError):
        scaled_cayley(torch.zeros(9), torch.ones(5))


def test_step_along_the_gradient_lowers_the_loss():
    signs, upper = minus_ones_last(8, 3), _entries(8).requires_grad_()
    target = torch.randn(8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def loss(entries):
        return (scaled_cayley(entries, signs) - target).square().sum()

    value = loss(upper)
    (gradient,) = torch.autograd.grad(value, upper)
    assert loss(upper - 1e-4 * gradient) < value < loss(upper + 1e-4 * gradient)


@pytest.mark.parametrize("n", [1, 2, 33, 170])
def test_float32_is_orthogonal_to_its_rounding(n):
    w = scaled_cayley(_entries(n, torch.float32), minus_ones_last(n, n // 3))
    assert w.dtype == torch.float32
    assert w.is_contiguous()
    distance = torch.linalg.matrix_norm(w.double().T @ w.double() - torch.eye(n, dtype=torch.float64))
    assert distance <= 10 * n * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("rho", range(5))
def test_determinant_is_minus_one_to_the_rho(rho):
    w = scaled_cayley(_entries(7), minus_ones_last(7, rho))
    assert torch.linalg.det(w).item() == pytest.approx((-1) ** rho)


@pytest.mark.parametrize("n", [6, 7])
def test_half_circle_start_has_the_published_eigenvalues(n):
    angles = half_circle_angles(n, torch.Generator().manual_seed(0))
    assert ((angles >= 0) & (angles <= torch.pi / 2)).all()
    w = scaled_cayley(block_rotation_entries(torch.tan(angles / 2), n), torch.ones(n))
    results = np.sort(np.angle(np.linalg.eigvals(w.numpy())))
    expected = np.sort(np.concatenate([angles.numpy(), -angles.numpy(), np.zeros(n % 2)]))
    np.testing.assert_allclose(results, expected, atol=1e-12)


def test_upper_entries_invert_skew():
    matrix = skew(_entries(5), 5)
    assert torch.equal(matrix, -matrix.T)
    assert torch.equal(upper_entries(matrix), _entries(5))


def test_glorot_vector_fills_the_interval_of_a_square_matrix():
    vector = glorot_vector_(torch.empty(9), torch.Generator().manual_seed(0))
    assert vector.abs().max() <= 3**0.5 / 3
    many = torch.stack([glorot_vector_(torch.empty(9), torch.Generator().manual_seed(s)) for s in range(400)])
    assert many.std().item() == pytest.approx(2 * (1 / 3) ** 0.5 / 12**0.5, rel=0.03)
