import numpy as np
import pytest
import torch

from orthobench.matrices.spectral_radius import BLOCK, CHECK_EVERY, SMALL, Tracker, leading_eigenpair, spectral_radius


def _matrix(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _tracker(n: int) -> Tracker:
    return Tracker(torch.zeros(n, BLOCK, dtype=torch.float64), torch.zeros((), dtype=torch.long))


@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("seed", range(4))
def test_is_numpys_radius(n, seed):
    matrix = _matrix(n, seed)
    wanted = np.abs(np.linalg.eigvals(matrix.numpy())).max()
    assert spectral_radius(matrix).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_gradient_by_finite_differences_and_autograd_of_the_modulus(seed):
    """Seeds give real and complex leading eigenvalues alike."""
    matrix = _matrix(6, seed).requires_grad_()
    assert torch.autograd.gradcheck(spectral_radius, matrix)
    (ours,) = torch.autograd.grad(spectral_radius(matrix), matrix)
    (automatic,) = torch.autograd.grad(torch.linalg.eigvals(matrix).abs().max(), matrix)
    torch.testing.assert_close(ours, automatic, rtol=1e-8, atol=1e-10)


def test_both_kinds_of_leading_eigenvalue_were_met():
    imaginary = [leading_eigenpair(_matrix(6, seed).numpy()).value.imag for seed in range(6)]
    assert any(abs(part) > 1e-9 for part in imaginary)
    assert any(abs(part) < 1e-12 for part in imaginary)


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_normalised_matrix_has_the_gradient_of_proposition_3_2(eps):
    """dL/dT = (G - (1/rho) sum(G o W) C) / (rho + eps) for W = T / (rho + eps)."""
    matrix = _matrix(6, 2).requires_grad_()
    g = _matrix(6, 9)
    (ours,) = torch.autograd.grad(matrix / (spectral_radius(matrix) + eps), matrix, g)
    pair = leading_eigenpair(matrix.detach().numpy())
    rho = abs(pair.value)
    s = np.outer(pair.left.conj(), pair.right) / np.vdot(pair.left, pair.right)
    c = pair.value.real * s.real + pair.value.imag * s.imag
    w = matrix.detach().numpy() / (rho + eps)
    wanted = (g.numpy() - (g.numpy() * w).sum() / rho * c) / (rho + eps)
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-9, atol=1e-12)
    total = (ours * matrix.detach()).sum().item()
    assert total == pytest.approx(eps / (rho + eps) * (g.numpy() * w).sum(), abs=1e-10)


@pytest.mark.parametrize("n", [SMALL + 2, 120])
def test_a_tracker_finds_what_the_full_decomposition_finds(n):
    tracker = _tracker(n)
    generator = torch.Generator().manual_seed(3)
    matrix = _matrix(n) / n**0.5
    for _ in range(25):
        matrix = matrix + 1e-3 * torch.randn(n, n, generator=generator, dtype=torch.float64) / n**0.5
        tracked, full = (matrix.clone().requires_grad_() for _ in range(2))
        radius, wanted = spectral_radius(tracked, tracker), spectral_radius(full)
        assert radius.item() == pytest.approx(wanted.item(), rel=1e-9)
        radius.backward()
        wanted.backward()
        torch.testing.assert_close(tracked.grad, full.grad, rtol=1e-5, atol=1e-6)
    assert int(tracker.calls) == 25 < CHECK_EVERY


def test_a_tracker_goes_on_from_its_memory():
    """Two trackers with the same memory find the same, bit for bit: a checkpoint needs no more."""
    n = SMALL + 20
    one = _tracker(n)
    one((_matrix(n) / 8).numpy())
    other = Tracker(one.memory.clone(), one.calls.clone())
    moved = (_matrix(n) / 8 + 1e-4).numpy()
    assert one(moved).value == other(moved).value
    assert torch.equal(one.memory, other.memory)


def test_not_a_number_goes_through():
    assert spectral_radius(torch.full((60, 60), float("nan")), _tracker(60)).isnan()
