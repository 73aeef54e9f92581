"""Layers of rotations against their blocks multiplied one after another."""

import numpy as np
import pytest
import torch
from support.rotations import literal_product, pairs

from orthobench.matrices.rotations import fft, rotate, rotation_product, tunable

SIZES = [("tunable", 2, 2), ("tunable", 8, 2), ("tunable", 8, 8), ("tunable", 10, 4)]
SIZES += [("fft", 2, 0), ("fft", 8, 0), ("fft", 16, 0)]


def _rows_to_rotate(style, n, capacity, is_complex, rows=3):
    rotations = tunable(n, capacity) if style == "tunable" else fft(n)
    generator = torch.Generator().manual_seed(0)
    angles, phases = (torch.randn(rotations.angle_count, generator=generator).double() for _ in range(2))
    dtype = torch.complex128 if is_complex else torch.float64
    h = torch.randn(rows, n, generator=generator, dtype=dtype)
    return rotations, angles, phases if is_complex else None, h


@pytest.mark.parametrize("is_complex", [True, False])
@pytest.mark.parametrize(("style", "n", "capacity"), SIZES)
def test_equals_the_product_of_the_blocks(style, n, capacity, is_complex):
    rotations, angles, phases, h = _rows_to_rotate(style, n, capacity, is_complex)
    assert rotations.angle_count == len(pairs(n, style, capacity))
    w = literal_product(n, style, capacity, angles.numpy(), None if phases is None else phases.numpy())
    by_layer = rotations.by_layer(angles), None if phases is None else rotations.by_layer(phases)
    np.testing.assert_allclose(rotate(h, rotations, *by_layer), h.numpy() @ w.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("style", "n", "capacity"), SIZES)
def test_matrix_of_real_units_matches_the_literal_product(style, n, capacity):
    rotations, angles, _, _ = _rows_to_rotate(style, n, capacity, False)
    w = rotation_product(rotations, rotations.by_layer(angles))
    np.testing.assert_allclose(w, literal_product(n, style, capacity, angles.numpy()), rtol=0, atol=1e-13)
    leaf = angles.requires_grad_()
    assert torch.autograd.gradcheck(lambda angles: rotation_product(rotations, rotations.by_layer(angles)), leaf)


@pytest.mark.parametrize("is_complex", [True, False])
@pytest.mark.parametrize(("style", "n", "capacity"), [("tunable", 2, 2), ("tunable", 6, 4), ("fft", 8, 0)])
def test_gradient_matches_finite_differences(style, n, capacity, is_complex):
    rotations, angles, phases, h = _rows_to_rotate(style, n, capacity, is_complex)
    inputs = [tensor.requires_grad_() for tensor in (h, angles, phases) if tensor is not None]

    def rotated(h, *angles):
        return rotate(h, rotations, *(rotations.by_layer(each) for each in angles))

    assert torch.autograd.gradcheck(rotated, inputs)


@pytest.mark.parametrize("is_complex", [True, False])
def test_gradients_stay_exact_through_many_layers(is_complex):
    """The rows between the layers are made again from those that came out: what that loses must stay rounding."""
    n = 64
    rotations, angles, phases, _ = _rows_to_rotate("tunable", n, n, is_complex)
    dtype = torch.complex128 if is_complex else torch.float64
    way = torch.randn(n, n, generator=torch.Generator().manual_seed(1), dtype=dtype)

    def gradients(real, number):
        leaves = [a.to(real).requires_grad_() for a in (angles, phases) if a is not None]
        rotated = rotate(torch.eye(n, dtype=number), rotations, *(rotations.by_layer(a) for a in leaves))
        return torch.autograd.grad((rotated * way.to(number).conj()).real.sum(), leaves)

    exact = gradients(torch.float64, dtype)
    rounded = gradients(torch.float32, torch.complex64 if is_complex else torch.float32)
    for results, expected in zip(rounded, exact, strict=True):
        assert float((results - expected).norm() / expected.norm()) < n * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tunable(7, 2), "hidden_size=7 is odd"),
        (lambda: tunable(8, 3), "capacity=3 should be an even number from 2 to hidden_size"),
        (lambda: tunable(8, 10), "capacity=10"),
        (lambda: tunable(8, 0), "capacity=0"),
        (lambda: fft(12), "hidden_size=12 is not a power of two"),
        (lambda: fft(1), "hidden_size=1"),
    ],
)
def test_rotations_without_pairs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
