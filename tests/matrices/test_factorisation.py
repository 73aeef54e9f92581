"""Factors without pivots, as a GPU makes them, by a literal elimination: torch has none on the CPU."""

import numpy as np
import pytest
import torch

from orthobench.matrices.exponential import exponential
from orthobench.matrices.skew import inverse_of_shifted, lu_factors, scaled_cayley


def eliminate(matrix: np.ndarray) -> np.ndarray:
    """L and U in one matrix, without pivots."""
    lu = matrix.copy()
    for k in range(len(lu)):
        lu[k + 1 :, k] /= lu[k, k]
        lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    return lu


@pytest.fixture
def factorised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As on CUDA: every factorisation is that without pivots; the fixture lists their sizes."""
    sizes = []

    def lu_factor_ex(matrix: torch.Tensor, *, pivot: bool = True):
        sizes.append(len(matrix))
        factors = torch.from_numpy(eliminate(matrix.numpy()))
        pivots = torch.arange(1, len(matrix) + 1, dtype=torch.int32)
        return factors, pivots, torch.zeros((), dtype=torch.int32)

    monkeypatch.setattr(torch.linalg, "lu_factor_ex", lu_factor_ex)
    return sizes


def skew_hermitian(n: int, scale: float, dtype: torch.dtype) -> torch.Tensor:
    drawn = torch.randn(n, n, dtype=dtype, generator=torch.Generator().manual_seed(n)) * scale
    return drawn - drawn.mH


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("n", [1, 2, 33, 200])
def test_inverse_without_pivots_matches_elimination(n, dtype, scale, factorised):
    a = skew_hermitian(n, scale, dtype)
    identity = torch.eye(n, dtype=dtype)
    inverse = torch.linalg.lu_solve(*lu_factors(identity + a), identity)
    exact = inverse_of_shifted(a)  # with pivots
    assert torch.linalg.matrix_norm(inverse - exact) <= 1e-9 * torch.linalg.matrix_norm(exact)
    w = 2 * inverse - identity
    assert torch.linalg.matrix_norm(w.mH @ w - identity) <= 1e-8  # a tenth of float32's rounding
    assert factorised == [n]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("n", [400, 401, 433, 520, pytest.param(1030, marks=pytest.mark.slow)])
def test_inverse_by_halves_matches_the_inverse(n, dtype, scale):
    a = skew_hermitian(n, scale, dtype)
    shifted = a + torch.eye(n, dtype=dtype)
    inverse = inverse_of_shifted(a)
    exact = torch.linalg.inv(shifted)  # by LAPACK alone
    assert torch.linalg.matrix_norm(inverse - exact) <= 1e-9 * torch.linalg.matrix_norm(exact)
    w = 2 * inverse - torch.eye(n, dtype=dtype)
    assert torch.linalg.matrix_norm(w.mH @ w - torch.eye(n, dtype=dtype)) <= 1e-8  # a tenth of float32's rounding


def test_exponential_without_pivots_matches_the_exponential(factorised):
    upper = 3 * torch.randn(33 * 16, generator=torch.Generator().manual_seed(0)) / 33**0.5
    w = exponential(upper, 33).double()
    assert torch.linalg.matrix_norm(w.T @ w - torch.eye(33)) <= 330 * torch.finfo(torch.float32).eps
    assert factorised == [48]


def test_cpu_uses_pivots():
    """Stored results were computed with them: the inverse is that of `torch.linalg.inv`, bit for bit."""
    a = skew_hermitian(50, 1.0, torch.float64)
    assert torch.equal(inverse_of_shifted(a), torch.linalg.inv(torch.eye(50, dtype=torch.float64) + a))
    upper = a[tuple(torch.triu_indices(50, 50, 1))].float()
    again = upper.new_zeros(50, 50).double()
    again[tuple(torch.triu_indices(50, 50, 1))] = upper.double()
    expected = 2 * torch.linalg.inv(torch.eye(50, dtype=torch.float64) + again - again.T) - torch.eye(50)
    assert torch.equal(scaled_cayley(upper, torch.ones(50)), expected.float())
