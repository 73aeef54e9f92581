"""scoRNN with a banded A."""

import numpy as np
import pytest
import torch
from support.models import assert_gradients, cayley, make, modrelu, plain_outputs, run, steps

from orthobench.errors import UsageError
from orthobench.matrices.skew import band_entries, from_band, skew, upper_entries
from orthobench.plugins import Catalog


def banded(n, width):
    rows, columns = np.triu_indices(n, 1)
    return columns - rows <= width


@pytest.mark.parametrize("width", [1, 3, 6])
def test_band_holds_the_entries_up_to_its_width(width):
    matrix = torch.arange(49.0).view(7, 7)
    inside = banded(7, width)
    entries = band_entries(upper_entries(matrix), 7, width)
    np.testing.assert_array_equal(entries.numpy(), matrix.numpy()[np.triu_indices(7, 1)][inside])
    a = skew(from_band(entries, 7, width), 7).numpy()
    distance = np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    np.testing.assert_array_equal(a != 0, (distance <= width) & (distance > 0))
    np.testing.assert_array_equal(np.triu(a)[np.triu_indices(7, 1)][inside], entries.numpy())


@pytest.mark.parametrize("width", [1, 3, 6])
def test_scornn_with_a_band_matches_a_literal_transcription(width):
    x, outputs, p = run(make("scornn", negative_ones=3, bandwidth=width))
    entries = np.zeros(21)
    entries[banded(7, width)] = p["skew_entries"]
    expected = plain_outputs(x, cayley(entries, 7, 3), modrelu, p)
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-12)


def test_gradient_is_the_banded_part_of_theorem_3_2():
    """dL/dA = V^T - V, V = (I + A)^{-T} G (D + W^T), at the entries that are trained."""
    model = make("scornn", negative_ones=2, bandwidth=2)
    run(model)
    g = np.random.default_rng(1).normal(size=(7, 7))
    model.weight().backward(torch.tensor(g))
    entries = np.zeros((7, 7))
    entries[np.triu_indices(7, 1)] = from_band(model.skew_entries.detach(), 7, 2).numpy()
    a, w = entries - entries.T, model.weight().detach().numpy()
    v = np.linalg.inv(np.eye(7) + a).T @ g @ (np.diag([1.0] * 5 + [-1.0] * 2) + w.T)
    expected = (v.T - v)[np.triu_indices(7, 1)][banded(7, 2)]
    np.testing.assert_allclose(model.skew_entries.grad.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_widest_band_has_every_entry_and_the_same_start():
    for width in (1, 6):
        torch.testing.assert_close(make("scornn", bandwidth=width).weight(), make("scornn").weight())
    assert torch.equal(make("scornn", bandwidth=6).skew_entries, make("scornn").skew_entries)


def test_settings_without_a_band_are_unchanged():
    cls = Catalog().load("model", "scornn")
    assert "bandwidth" not in cls.Settings.read({}).canonical()
    assert cls.Settings.read({"bandwidth": "5"}).canonical()["bandwidth"] == 5


def test_banded_scornn_stays_orthogonal():
    model = make("scornn", bandwidth=2)
    steps(model, 200, 100)
    assert (model.skew_entries != 0).all()
    w = model.weight().detach().double()
    assert torch.linalg.matrix_norm(w.T @ w - torch.eye(7)) < 10 * 7 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(("n", "width"), [(170, 1), (170, 20), (170, 169)])
def test_only_banded_entries_are_parameters(n, width):
    """n l - l (l + 1) / 2 of them."""
    full = make("scornn", hidden_size=n, inputs=1, outputs=10).parameter_count()
    narrow = make("scornn", hidden_size=n, inputs=1, outputs=10, bandwidth=width).parameter_count()
    assert full - narrow == n * (n - 1) // 2 - (n * width - width * (width + 1) // 2)


def test_gradients_match_finite_differences():
    assert_gradients(make("scornn", "last", bandwidth=2))


@pytest.mark.parametrize(
    ("width", "message"),
    [(7, "bandwidth=7 should be less than hidden_size (7)"), (0, "bandwidth=0"), (1.5, "bandwidth")],
)
def test_invalid_settings_are_refused(width, message):
    with pytest.raises(UsageError) as error:
        make("scornn", bandwidth=width)
    assert message in str(error.value)
