import math

import pytest
import scipy.linalg
import torch

from orthobench.matrices.exponential import exponential
from orthobench.matrices.skew import skew


def _entries(n: int, size: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return size * torch.randn(n * (n - 1) // 2, generator=generator, dtype=torch.float64).to(dtype) / math.sqrt(n)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 65])
@pytest.mark.parametrize("size", [0.0, 1e-3, 0.3, 3.0, 30.0])
def test_matches_scipys_exponential(n, size):
    upper = _entries(n, size)
    expected = scipy.linalg.expm(skew(upper, n).numpy())
    torch.testing.assert_close(exponential(upper, n), torch.from_numpy(expected), rtol=0, atol=2e-14 * n * max(1, size))


@pytest.mark.parametrize("size", [1e-3, 0.5, 5.0])
def test_gradient_matches_finite_differences_and_the_derivative_formula(size):
    """With G = dL/dW, B = exp(A): F = B (dexp)_{-A}((B^T G - G^T B) / 2), gradient 2 triu(F, 1) (EXPRNN paper)."""
    n, upper = 6, _entries(6, size).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: exponential(u, n), upper)
    gradient = torch.randn(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (actual,) = torch.autograd.grad(exponential(upper, n), upper, gradient)
    a = skew(upper.detach(), n)
    b = torch.linalg.matrix_exp(a)
    x = (b.T @ gradient - gradient.T @ b) / 2
    f, term = torch.zeros_like(a), x
    for k in range(1, 80):  # (dexp)_{-A}(X) = sum of ad_A^(k-1) X / k!, the formula's own series
        f, term = f + term, (a @ term - term @ a) / (k + 1)
    torch.testing.assert_close(actual, 2 * f[tuple(torch.triu_indices(n, n, 1))], rtol=1e-8, atol=1e-10)
    (automatic,) = torch.autograd.grad(torch.linalg.matrix_exp(skew(upper, n)), upper, gradient)
    torch.testing.assert_close(actual, automatic, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n", [33, 170])
@pytest.mark.parametrize("size", [0.5, 3.0])
def test_float32_is_orthogonal_and_close(n, size):
    upper = _entries(n, size, torch.float32)
    w = exponential(upper, n)
    identity = torch.eye(n, dtype=torch.float64)
    assert torch.linalg.matrix_norm(w.double().T @ w.double() - identity) <= 10 * n * torch.finfo(torch.float32).eps
    exact = torch.linalg.matrix_exp(skew(upper.double(), n))
    assert torch.linalg.matrix_norm(w.double() - exact) <= 10 * n * torch.finfo(torch.float32).eps


def test_determinant_is_one():
    assert torch.linalg.det(exponential(_entries(9, 3.0), 9)).item() == pytest.approx(1)


def test_nan_propagates():
    assert exponential(torch.full((3,), math.nan), 3).isnan().any()


@pytest.mark.parametrize("n", [3, 65])
@pytest.mark.parametrize("size", [0.0, 0.1, 3.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squarings_counted_on_the_device_give_the_same_numbers(n, size, dtype):
    upper = _entries(n, size, dtype).requires_grad_()
    gradient = torch.randn(n, n, generator=torch.Generator().manual_seed(0)).to(dtype)
    results = []
    for on_device in (False, True):
        w = exponential(upper, n, on_device)
        results.append((w.detach(), torch.autograd.grad(w, upper, gradient)[0]))
    for host, device in zip(*results, strict=True):
        assert torch.equal(host, device)


def test_nan_propagates_on_the_device():
    assert exponential(torch.full((3,), math.nan), 3, True).isnan().any()
    assert exponential(torch.full((3,), math.inf), 3, True).isnan().any()
