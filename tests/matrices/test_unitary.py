"""Skew-Hermitian matrices, the complex scaled Cayley transform and Arjovsky's chain, against NumPy and autograd."""

import numpy as np
import pytest
import torch

from orthobench.matrices.complex_form import as_real
from orthobench.matrices.unitary_cayley import skew_hermitian, skew_hermitian_gradient, unitary_cayley
from orthobench.matrices.unitary_chain import draw_unitary_chain, reflect, unitary_chain, unitary_chain_matrix
from orthobench.probes.orthogonality import orthogonality

SIZES = [1, 2, 5, 12]


def _draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _literal_a(entries: np.ndarray) -> np.ndarray:
    """Entry by entry."""
    n = len(entries)
    a = np.zeros((n, n), complex)
    for i in range(n):
        a[i, i] = 1j * entries[i, i]
        for j in range(i + 1, n):
            a[i, j] = entries[i, j] + 1j * entries[j, i]
            a[j, i] = -np.conj(a[i, j])
    return a


def _literal_cayley(entries: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
    """The paper's equation, with an inverse, for autograd to differentiate."""
    a, identity = skew_hermitian(entries), torch.eye(len(entries), dtype=torch.complex128)
    return torch.linalg.inv(identity + a) @ (identity - a) @ torch.diag(torch.exp(1j * phases))


@pytest.mark.parametrize("n", SIZES)
def test_skew_hermitian_matrix_from_n_squared_numbers(n):
    a = skew_hermitian(_draw(n, n))
    np.testing.assert_array_equal(a.numpy(), _literal_a(_draw(n, n).numpy()))
    assert torch.equal(a.mH, -a)


@pytest.mark.parametrize("n", SIZES)
def test_gradient_of_free_entries_maps_to_the_numbers(n):
    entries, target = _draw(n, n).requires_grad_(), _draw(n, n, seed=1, dtype=torch.complex128)
    a = skew_hermitian(entries)
    (gradient,) = torch.autograd.grad(as_real(a - target).square().sum(), entries)
    torch.testing.assert_close(skew_hermitian_gradient(2 * (a - target).detach()), gradient)


@pytest.mark.parametrize("n", SIZES)
def test_cayley_matches_the_papers_equation(n):
    entries, phases = _draw(n, n), _draw(n, seed=1)
    torch.testing.assert_close(unitary_cayley(entries, phases), _literal_cayley(entries, phases))


@pytest.mark.parametrize("n", SIZES)
def test_cayley_gradient_matches_autograd_and_finite_differences(n):
    inputs = _draw(n, n).requires_grad_(), _draw(n, seed=1).requires_grad_()
    gradient = _draw(n, n, seed=2, dtype=torch.complex128)
    actual = torch.autograd.grad(unitary_cayley(*inputs), inputs, gradient)
    automatic = torch.autograd.grad(_literal_cayley(*inputs), inputs, gradient)
    torch.testing.assert_close(actual, automatic)
    assert torch.autograd.gradcheck(unitary_cayley, inputs)


def test_cayley_gradient_matches_the_scurnn_program():
    """With its G = (g_R - i g_I) / 2, plain transposes, and its factor: 1/2 off A's diagonal, 1 on it."""
    n = 6
    entries, phases = _draw(n, n).requires_grad_(), _draw(n, seed=1).requires_grad_()
    g = _draw(n, n, seed=2, dtype=torch.complex128)
    by_entries, by_phases = (
        results.numpy() for results in torch.autograd.grad(unitary_cayley(entries, phases), (entries, phases), g)
    )

    a, d = _literal_a(entries.detach().numpy()), np.exp(1j * phases.detach().numpy())
    inverse = np.linalg.inv(np.eye(n) + a)
    z = inverse @ (np.eye(n) - a)
    w, conjugate = z @ np.diag(d), (g.real - 1j * g.imag).numpy() / 2
    upd = inverse.T @ conjugate @ (np.diag(d) + w.T)
    dfa = upd.T - upd.conj()
    np.testing.assert_allclose(dfa, -dfa.conj().T, atol=1e-14)
    np.testing.assert_allclose(2 * np.triu(dfa.real, 1), np.triu(by_entries, 1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(2 * np.tril(dfa.imag, -1), np.tril(by_entries, -1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.diag(dfa.imag), np.diag(by_entries), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(2 * (1j * np.diag(conjugate.T @ z) * d).real, by_phases, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 33, 130])
def test_float32_cayley_is_unitary_to_rounding(n):
    w = unitary_cayley(_draw(n, n, dtype=torch.float32), _draw(n, seed=1, dtype=torch.float32))
    assert w.dtype == torch.complex64
    assert orthogonality(w) <= n**0.5 * torch.finfo(torch.float32).eps


def _literal_chain(phases: np.ndarray, reflections: np.ndarray, permutation: np.ndarray) -> np.ndarray:
    """D_3 R_2 F^-1 D_2 P R_1 F D_1, nine dense matrices."""
    n = len(permutation)
    d1, d2, d3 = (np.diag(np.exp(1j * theta)) for theta in phases)
    u1, u2 = reflections[..., 0] + 1j * reflections[..., 1]
    r1, r2 = (np.eye(n) - 2 * np.outer(u, u.conj()) / np.vdot(u, u) for u in (u1, u2))
    index = np.arange(n)
    f = np.exp(-2j * np.pi * np.outer(index, index) / n) / np.sqrt(n)
    p = np.zeros((n, n))
    p[index, permutation] = 1
    return d3 @ r2 @ np.linalg.inv(f) @ d2 @ p @ r1 @ f @ d1


def _chain(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _draw(3, n), _draw(2, n, 2, seed=1), torch.randperm(n, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [1, 2, 7, 8, 30])
def test_chain_equals_the_product_of_its_matrices(n):
    chain = _chain(n)
    w = _literal_chain(*(part.numpy() for part in chain))
    np.testing.assert_allclose(unitary_chain_matrix(*chain).numpy(), w, atol=1e-13)
    np.testing.assert_allclose(w.conj().T @ w, np.eye(n), atol=1e-13)
    rows = _draw(3, n, seed=2, dtype=torch.complex128)
    np.testing.assert_allclose(unitary_chain(*chain)(rows).numpy(), rows.numpy() @ w.T, atol=1e-13)


def test_chain_gradient_matches_autograd():
    phases, reflections, permutation = _chain(5)
    inputs = phases.requires_grad_(), reflections.requires_grad_()
    assert torch.autograd.gradcheck(lambda p, r: unitary_chain_matrix(p, r, permutation), inputs)


def test_reflection_flips_its_own_vector_alone():
    u = torch.nn.functional.normalize(_draw(6, dtype=torch.complex128), dim=0)
    other = _draw(6, seed=1, dtype=torch.complex128)
    other = other - torch.vdot(u, other) * u
    torch.testing.assert_close(reflect(u, u), -u)
    torch.testing.assert_close(reflect(other, u), other)


def test_chain_starts_as_published():
    phases, reflections, permutation = draw_unitary_chain(500, torch.Generator().manual_seed(0))
    assert phases.abs().max() <= torch.pi
    assert phases.std().item() == pytest.approx(2 * torch.pi / 12**0.5, rel=0.05)
    bound = (6 / 1002) ** 0.5
    assert reflections.abs().max() <= bound
    assert reflections.std().item() == pytest.approx(2 * bound / 12**0.5, rel=0.05)
    assert sorted(permutation.tolist()) == list(range(500))
    assert orthogonality(unitary_chain_matrix(phases, reflections, permutation)) < 500**0.5 * 5e-7
