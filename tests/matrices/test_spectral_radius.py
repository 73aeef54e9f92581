import numpy as np
import pytest
import torch

from orthobench.matrices import spectral_radius as module
from orthobench.matrices.spectral_radius import SMALL, by_decomposition, leading_eigenpair, spectral_radius


def _matrix(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 7, SMALL + 1, 150])
@pytest.mark.parametrize("seed", range(4))
def test_matches_numpys_radius(n, seed):
    matrix = _matrix(n, seed)
    expected = np.abs(np.linalg.eigvals(matrix.numpy())).max()
    assert spectral_radius(matrix).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_gradient_matches_finite_differences_and_autograd_of_the_modulus(seed):
    """Seeds give real and complex leading eigenvalues alike."""
    matrix = _matrix(6, seed).requires_grad_()
    assert torch.autograd.gradcheck(spectral_radius, matrix)
    (actual,) = torch.autograd.grad(spectral_radius(matrix), matrix)
    (automatic,) = torch.autograd.grad(torch.linalg.eigvals(matrix).abs().max(), matrix)
    torch.testing.assert_close(actual, automatic, rtol=1e-8, atol=1e-10)


def test_both_kinds_of_leading_eigenvalue_occurred():
    imaginary = [leading_eigenpair(_matrix(6, seed).numpy()).value.imag for seed in range(6)]
    assert any(abs(part) > 1e-9 for part in imaginary)
    assert any(abs(part) < 1e-12 for part in imaginary)


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_normalised_matrix_has_the_gradient_of_proposition_3_2(eps):
    """dL/dT = (G - (1/rho) sum(G o W) C) / (rho + eps) for W = T / (rho + eps)."""
    matrix = _matrix(6, 2).requires_grad_()
    g = _matrix(6, 9)
    (actual,) = torch.autograd.grad(matrix / (spectral_radius(matrix) + eps), matrix, g)
    pair = leading_eigenpair(matrix.detach().numpy())
    rho = abs(pair.value)
    s = np.outer(pair.left.conj(), pair.right) / np.vdot(pair.left, pair.right)
    c = pair.value.real * s.real + pair.value.imag * s.imag
    w = matrix.detach().numpy() / (rho + eps)
    expected = (g.numpy() - (g.numpy() * w).sum() / rho * c) / (rho + eps)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-12)
    total = (actual * matrix.detach()).sum().item()
    assert total == pytest.approx(eps / (rho + eps) * (g.numpy() * w).sum(), abs=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_nearly_orthogonal_matrix_has_all_eigenvalues_near_the_top(seed):
    """More of them than are looked for at first."""
    generator = torch.Generator().manual_seed(seed)
    orthogonal, _ = torch.linalg.qr(_matrix(94, seed))
    matrix = orthogonal * (1 + 1e-3 * torch.randn(94, 94, generator=generator, dtype=torch.float64))
    expected = np.abs(np.linalg.eigvals(matrix.numpy())).max()
    assert spectral_radius(matrix).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [SMALL + 3, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", ["noise", "down the radius"])
def test_training_sequence_matches_the_full_decomposition(n, direction, monkeypatch):
    """Down the radius the leading eigenvalue is another one at every step, with many nearly as large."""
    decompositions = []
    monkeypatch.setattr(module, "by_decomposition", lambda matrix: decompositions.append(1) or by_decomposition(matrix))
    generator = torch.Generator().manual_seed(3)
    matrix = _matrix(n) / n**0.5
    for _ in range(20):
        matrix = matrix.detach().requires_grad_()
        (actual,) = torch.autograd.grad(spectral_radius(matrix), matrix)
        pair = by_decomposition(matrix.detach().numpy())
        assert spectral_radius(matrix).item() == pytest.approx(abs(pair.value), rel=1e-9)
        expected = np.outer(pair.left.conj(), pair.right) / np.vdot(pair.left, pair.right)
        expected = (pair.value.conjugate() * expected).real / abs(pair.value)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
        noise = torch.randn(n, n, generator=generator, dtype=torch.float64)
        matrix = matrix.detach() - 1e-3 * (noise if direction == "noise" else actual).sign()
    assert len(decompositions) <= 4


@pytest.mark.parametrize(
    "matrix", [torch.eye(90), torch.zeros(90, 90), torch.ones(90, 90).triu(1), torch.eye(90).roll(1, 0)]
)
def test_matrices_without_a_simple_leading_eigenvalue_use_the_full_decomposition(matrix):
    """Its derivative is not defined; the radius is."""
    expected = np.abs(np.linalg.eigvals(matrix.double().numpy())).max()
    assert spectral_radius(matrix.double()).item() == pytest.approx(expected, abs=1e-9)


def test_nan_propagates():
    assert spectral_radius(torch.full((90, 90), float("nan"))).isnan()
