import pytest
import torch

from orthobench.matrices.householder import falling_size, falling_vectors, householder_product, unit_entries


def _vectors(n: int, k: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(n + k), dtype=dtype)


def _literal(vectors: torch.Tensor) -> torch.Tensor:
    w = torch.eye(len(vectors), dtype=vectors.dtype)
    for u in vectors.T:
        w = w @ (torch.eye(len(u), dtype=u.dtype) - 2 * torch.outer(u, u) / (u @ u))
    return w


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 0), (5, 2), (8, 8), (40, 16)])
def test_equals_the_product_of_the_reflections(n, k):
    torch.testing.assert_close(householder_product(_vectors(n, k)), _literal(_vectors(n, k)))


def test_matches_torchs_product_where_it_applies():
    vectors = torch.tril(_vectors(6, 4))
    unit = vectors / vectors.diagonal()
    tau = 2 / unit.square().sum(0)
    torch.testing.assert_close(
        householder_product(vectors),
        torch.linalg.householder_product(torch.nn.functional.pad(unit, (0, 2)), torch.nn.functional.pad(tau, (0, 2))),
    )


def test_gradient_matches_finite_differences():
    assert torch.autograd.gradcheck(householder_product, _vectors(5, 3).requires_grad_())


@pytest.mark.parametrize(("n", "k"), [(33, 7), (170, 170)])
def test_float32_is_orthogonal_to_its_rounding(n, k):
    w = householder_product(torch.tril(_vectors(n, k, torch.float32))).double()
    distance = torch.linalg.matrix_norm(w.T @ w - torch.eye(n, dtype=torch.float64))
    assert distance <= 10 * n * torch.finfo(torch.float32).eps
    assert torch.linalg.det(w).item() == pytest.approx((-1) ** k, rel=1e-3)


def test_zero_vector_reflects_nothing():
    vectors = _vectors(5, 3)
    vectors[:, 1] = 0
    torch.testing.assert_close(householder_product(vectors), _literal(vectors[:, [0, 2]]))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 2), (6, 6)])
def test_vectors_with_decreasing_support(n, k):
    entries = torch.randn(falling_size(n, k), generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    vectors = falling_vectors(entries, n, k)
    rows, columns = torch.tril_indices(n, k)
    assert torch.equal(vectors[rows, columns], entries)
    assert torch.equal(vectors, vectors.tril())
    unit = falling_vectors(unit_entries(entries, n, k), n, k)
    torch.testing.assert_close(unit * torch.linalg.vector_norm(vectors, dim=0), vectors)
    torch.testing.assert_close(torch.linalg.vector_norm(unit, dim=0), torch.ones(k, dtype=torch.float64))
