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


def _with_eigenvalues(values: list[complex | float], n: int) -> tuple[torch.Tensor, np.ndarray]:
    """A matrix with these eigenvalues, conjugates of complex ones and smaller ones; d rho / dT of the first."""
    generator, blocks, places = np.random.default_rng(1), np.diag(np.linspace(-0.5, 0.5, n)), []
    place = 0
    for value in values:
        places.append(place)
        if isinstance(value, complex):
            blocks[place : place + 2, place : place + 2] = [[value.real, value.imag], [-value.imag, value.real]]
        else:
            blocks[place, place] = value
        place += 2 if isinstance(value, complex) else 1
    basis = np.eye(n) + 0.3 * generator.standard_normal((n, n)) / n**0.5  # of condition 2 to 4
    dual, first = np.linalg.inv(basis), values[0]
    right, left = basis[:, 0], dual[0]
    if isinstance(first, complex):  # the block's eigenvectors are (1, i) and (1, -i)
        right, left = basis[:, :2] @ [1, 1j], [1, -1j] @ dual[:2]
    derivative = (np.conj(first) / abs(first) * np.outer(left, right) / (left @ right)).real
    return torch.from_numpy(basis @ blocks @ dual), derivative


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [
        ([0.9 * np.exp(1j)], 1e-11),
        ([-0.9], 1e-11),
        ([0.9 * np.exp(1e-6j)], 1e-7),  # nearly a double real eigenvalue
        ([1.0, 1 - 1e-6], 1e-8),
        ([1.0, -(1 - 1e-6)], 1e-8),
        ([-1.0, 1.0], 1e-11),
        ([np.exp(0.3j), (1 - 1e-6) * np.exp(1.2j)], 1e-8),
        ([1.0, (1 - 1e-7) * np.exp(2j)], 1e-8),
    ],
)
@pytest.mark.parametrize("n", [5, 64])
def test_powers_tell_near_eigenvalues_apart(values, tolerance, n):
    """The derivative's error is the rounding, 1e-16, over the distance of the eigenvalues."""
    matrix, expected = _with_eigenvalues([complex(v) if np.iscomplex(v) else float(np.real(v)) for v in values], n)
    radius = spectral_radius(matrix.requires_grad_(), on_device=True)
    assert radius.item() == pytest.approx(np.abs(np.linalg.eigvals(matrix.detach().numpy())).max(), rel=1e-8)
    assert radius.item() == pytest.approx(abs(values[0]), rel=1e-8)
    (derivative,) = torch.autograd.grad(radius, matrix)
    if values != [-1.0, 1.0]:  # which of the two is arbitrary
        assert np.linalg.norm(derivative.numpy() - expected) <= tolerance * np.linalg.norm(expected)


def test_inexact_derivative_is_left_out():
    """Rounding times the basis's condition hides which of 1 and -(1 - 1e-6) leads: the derivative is right, or 0."""
    left_out = 0
    for seed in range(20):
        basis = np.random.default_rng(seed).standard_normal((24, 24))  # of condition 30 to 1000
        values, dual = np.array([1.0, -(1 - 1e-6), *np.linspace(-0.5, 0.5, 22)]), np.linalg.inv(basis)
        matrix = torch.from_numpy(basis * values @ dual).requires_grad_()
        radius = spectral_radius(matrix, on_device=True)
        assert radius.item() == pytest.approx(1, rel=1e-5)
        (derivative,) = torch.autograd.grad(radius, matrix)
        expected = np.outer(dual[0], basis[:, 0])
        left_out += not derivative.any()
        assert not derivative.any() or np.linalg.norm(derivative.numpy() - expected) <= 1e-6 * np.linalg.norm(expected)
    assert 0 < left_out < 10


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("n", [1, 2, 7, 40, 150])
@pytest.mark.parametrize("seed", range(6))
def test_powers_match_the_full_decomposition(n, seed):
    matrix = _matrix(n, seed).to(DEVICE).requires_grad_()
    radius, reference = (spectral_radius(matrix, on_device=on_device) for on_device in (True, False))
    assert radius.item() == pytest.approx(np.abs(np.linalg.eigvals(matrix.detach().cpu().numpy())).max(), rel=1e-8)
    by_powers, by_vectors = (torch.autograd.grad(each, matrix)[0] for each in (radius, reference))
    torch.testing.assert_close(by_powers, by_vectors, rtol=1e-8, atol=1e-9 * float(by_vectors.abs().max()))


@pytest.mark.parametrize(
    "matrix",
    [torch.eye(9), torch.zeros(9, 9), torch.ones(9, 9).triu(1), torch.eye(9).roll(1, 0), 1e-30 * torch.eye(3)],
)
def test_powers_without_a_simple_leading_eigenvalue_give_the_radius_and_finite_derivatives(matrix):
    expected = np.abs(np.linalg.eigvals(matrix.double().numpy())).max()
    radius = spectral_radius(matrix.requires_grad_(), on_device=True)
    assert radius.item() == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.grad(radius, matrix)[0].isfinite().all()


def test_powers_propagate_nan():
    assert spectral_radius(torch.full((9, 9), float("nan")), on_device=True).isnan()
