"""Recurrent matrices by a factorisation: singular values (Spectral RNN, soft-orthogonal RNN), Schur form (nnRNN)."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from support.models import P, assert_gradients, make, modrelu, plain_outputs, run, sigmoid, skew_of, steps

from orthobench.errors import UsageError
from orthobench.training.optimizers import build_optimizer

EPS = torch.finfo(torch.float32).eps


def relu(z, b):
    return np.maximum(z + b, 0)


def reflections_of(entries, n, k):
    """H(u_1) ... H(u_k), one after the other, from entries row by row of the lower triangular [u_1 ... u_k]."""
    vectors = np.zeros((n, k))
    vectors[np.tril_indices(n, 0, k)] = entries
    product = np.eye(n)
    for u in vectors.T:
        product = product @ (np.eye(n) - 2 * np.outer(u, u) / (u @ u))
    return product


def singular_values(matrix: torch.Tensor) -> np.ndarray:
    return np.linalg.svd(matrix.detach().double().numpy(), compute_uv=False)


def off_orthogonal(matrix: torch.Tensor) -> float:
    m = matrix.detach().double()
    return torch.linalg.matrix_norm(m.T @ m - torch.eye(len(m), dtype=m.dtype)).item()


# Spectral RNN


@pytest.mark.parametrize("reflections", [1, 3, 7])
def test_spectral_rnn_matches_a_literal_transcription(reflections):
    x, outputs, p = run(make("spectral_rnn", reflections=reflections, margin=0.3))
    left, right = (reflections_of(p[f"{side}_entries"], 7, reflections) for side in ("left", "right"))
    sigma = 2 * 0.3 * (sigmoid(p["spectrum"]) - 0.5) + 1
    w = left @ np.diag(sigma) @ right.T
    np.testing.assert_allclose(outputs, plain_outputs(x, w, relu, p), rtol=1e-9, atol=1e-12)


def test_spectral_rnn_applies_reflections_in_the_programs_order():
    """Rows: v_1 first, then the singular values, then u_k first and u_1 last."""
    model = make("spectral_rnn", reflections=3, margin=0.5)
    _, _, p = run(model)
    row = np.random.default_rng(0).normal(size=7)
    expected = row
    vectors = {}
    for side in ("left", "right"):
        vectors[side] = np.zeros((7, 3))
        vectors[side][np.tril_indices(7, 0, 3)] = p[f"{side}_entries"]
    for v in vectors["right"].T:
        expected = expected - 2 * (expected @ v) / (v @ v) * v
    expected = expected * (1 + sigmoid(p["spectrum"]) - 0.5)
    for u in vectors["left"].T[::-1]:
        expected = expected - 2 * (expected @ u) / (u @ u) * u
    np.testing.assert_allclose(row @ model.weight().detach().numpy().T, expected, rtol=1e-12)


def test_spectral_rnn_starts_as_its_program():
    model = make("spectral_rnn", hidden_size=60, inputs=2, outputs=9)
    assert off_orthogonal(model.weight()) < 10 * 60 * EPS
    assert (model.spectrum == 0).all()
    for entries, bound in (
        (model.left_entries, math.sqrt(6 / 76)),
        (model.right_entries, math.sqrt(6 / 76)),
        (model.input_weight, math.sqrt(6 / 62)),
        (model.output_weight, 0.2),
    ):
        assert 0.9 * bound < entries.abs().max() <= bound
    assert not torch.equal(model.left_entries, model.right_entries)
    assert model.output_weight.std().item() == pytest.approx(0.088, rel=0.05)  # of N(0, 0.1^2) cut off at 0.2
    assert 0 < model.output_bias.abs().max() <= 0.2
    assert (model.bias == 0).all()
    assert (model.initial_state(3)[0] == 0).all()


def test_spectral_rnn_keeps_its_singular_values_in_the_band():
    model = make("spectral_rnn", reflections=4, margin=0.1)
    steps(model, 200, 100)
    spectrum = singular_values(model.weight())
    rounding = 10 * 7 * EPS
    assert (np.abs(spectrum - 1) <= 0.1 + rounding).all()
    assert np.ptp(spectrum) > 0.05  # it is not the start that is seen
    left, sigma, right = model.factors()
    assert off_orthogonal(left) < rounding
    assert off_orthogonal(right) < rounding
    np.testing.assert_allclose(spectrum, np.sort(sigma.detach().numpy())[::-1], atol=rounding)


def test_spectral_rnn_vectors_have_unit_length_from_the_first_step():
    model = make("spectral_rnn", reflections=3)
    before = model.weight()
    lengths = []
    for _ in range(2):
        vectors = torch.zeros(2, 7, 3)
        for side, entries in zip(vectors, (model.left_entries, model.right_entries), strict=True):
            side[tuple(torch.tril_indices(7, 3))] = entries.detach()
        lengths.append(torch.linalg.vector_norm(vectors, dim=1))
        with torch.no_grad():
            model.after_step()
    assert ((lengths[0] - 1).abs() > 1e-3).any()
    torch.testing.assert_close(lengths[1], torch.ones(2, 3))
    torch.testing.assert_close(model.weight(), before)


# The soft-orthogonal RNN


@pytest.mark.parametrize("activation", ["tanh", "identity"])
@pytest.mark.parametrize("margin", [0, 0.2, None])
@pytest.mark.parametrize("trained_start", [True, False])
def test_soft_orthogonal_rnn_matches_a_literal_transcription(activation, margin, trained_start):
    model = make("soft_orthogonal", activation=activation, margin=margin, trained_start=trained_start)
    x, outputs, p = run(model)
    if margin == 0:
        s = np.ones(7)
    elif margin is None:
        s = np.maximum(p["spectrum"], 0)
        assert (s == 0).any()
    else:
        s = 2 * margin * (sigmoid(p["spectrum"]) - 0.5) + 1
    w = p["left"] @ np.diag(s) @ p["right"].T
    act = {"tanh": lambda z, b: np.tanh(z + b), "identity": lambda z, b: z + b}[activation]
    assert ("start" in p) == trained_start
    np.testing.assert_allclose(outputs, plain_outputs(x, w, act, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("margin", [0, 0.1, None])
def test_soft_orthogonal_starts_orthogonal(margin):
    model = make("soft_orthogonal", hidden_size=40, margin=margin)
    assert off_orthogonal(model.weight()) < 10 * 40 * EPS
    assert (model.bias == 0).all()
    assert (model.start == 0).all()
    assert 0.009 < model.input_weight.abs().max() <= 0.01
    signs = [torch.linalg.det(make("soft_orthogonal", seed=seed, margin=margin).weight()) > 0 for seed in range(20)]
    assert 0 < sum(signs) < 20  # both components of the orthogonal group


def test_soft_orthogonal_starts_with_singular_values_of_a_glorot_matrix():
    model = make("soft_orthogonal", hidden_size=40, margin=None, initialization="glorot")
    w = model.weight().detach()
    bound = math.sqrt(6 / 80)
    assert 0.95 * bound < w.abs().max() <= bound + 10 * 40 * EPS
    assert w.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    np.testing.assert_allclose(singular_values(w), model.spectrum.detach().numpy(), atol=10 * 40 * EPS)


@pytest.mark.parametrize("margin", [0.0, 0.1, 1.0])
def test_soft_orthogonal_keeps_its_singular_values_in_the_band(margin):
    """The Cayley steps' rounding adds up, for nothing takes it back."""
    model = make("soft_orthogonal", margin=margin, recurrent_learning_rate=1e-2, spectrum_learning_rate=0.1)
    left = model.left.detach().clone()
    steps(model, 200, 10)
    rounding = 200 * 7 * EPS
    assert off_orthogonal(model.left) < rounding
    assert off_orthogonal(model.right) < rounding
    assert (model.left - left).abs().max() > 0.1  # they have moved
    spectrum = singular_values(model.weight())
    assert (np.abs(spectrum - 1) <= margin + 2 * rounding).all()
    assert np.ptp(spectrum) >= margin / 2


def test_bases_at_learning_rate_zero_do_not_move():
    """As in the program, whose geodesic_sgd.py:13 reads the first value in every step; all else learns."""
    model = make("soft_orthogonal", recurrent_learning_rate=0, spectrum_learning_rate=0.1)
    bases, spectrum = [model.left.clone(), model.right.clone()], model.spectrum.clone()
    steps(model, 20, 10)
    torch.testing.assert_close([model.left, model.right], bases, rtol=0, atol=20 * EPS)
    assert (model.spectrum != spectrum).all()


@pytest.mark.parametrize("margin", [0.01, 0.5])
def test_step_of_the_spectrum_does_not_depend_on_the_margin(margin):
    """At p = 0 it is ds = (2 mu / 4) dp, and RMSprop's first dp is rate / sqrt(0.1) whatever the gradient's size."""
    model = make("soft_orthogonal", margin=margin, spectrum_learning_rate=1e-4).double()
    (spectrum,) = (g for g in model.parameter_groups() if g.parameters[0] is model.spectrum)
    model.singular_values().sum().mul(1e3).backward()
    build_optimizer(spectrum.optimizer, spectrum.parameters, spectrum.learning_rate).step()
    expected = torch.full((7,), 1e-4 / 4 / 0.1**0.5, dtype=torch.float64)
    torch.testing.assert_close(1 - model.singular_values(), expected, rtol=1e-4, atol=0)


def test_soft_orthogonal_has_its_parameter_groups():
    free, spectrum, bases = make("soft_orthogonal", margin=0.05, spectrum_learning_rate=1e-3).parameter_groups()
    assert (spectrum.optimizer, spectrum.learning_rate) == ("rmsprop_lasagne", pytest.approx(1e-2))
    assert [tuple(parameter.shape) for parameter in bases.parameters] == [(7, 7), (7, 7)]
    assert (bases.optimizer, bases.learning_rate) == ("cayley", 1e-6)
    assert len(free.parameters) == 5
    assert len(make("soft_orthogonal", margin=0).parameter_groups()) == 2
    _, spectrum, _ = make("soft_orthogonal", margin=None, spectrum_learning_rate=1e-3).parameter_groups()
    assert spectrum.learning_rate == 1e-3


@pytest.mark.parametrize(("weight_decay", "matrix", "spectrum"), [(0.3, 0, 0), (0, 0.2, 0), (0, 0, 0.7)])
def test_soft_orthogonal_adds_the_penalty_of_w(weight_decay, matrix, spectrum):
    """In value, and in the gradient that a step along the orthogonal matrices sees."""
    settings = {"weight_decay": weight_decay, "matrix_penalty": matrix, "spectrum_penalty": spectrum}
    model = make("soft_orthogonal", margin=0.8, **settings).double()
    with torch.no_grad():
        for basis in (model.left, model.right):
            basis.copy_(torch.linalg.qr(basis).Q)
        model.spectrum.copy_(torch.linspace(-3, 3, 7))
    w = model.weight()
    expected = (
        weight_decay * sum(each.square().sum() for each in (model.input_weight, w, model.output_weight))
        + matrix * (w.T @ w - torch.eye(7)).square().sum()
        + spectrum * (torch.linalg.svdvals(w) - 1).square().sum()
    )
    torch.testing.assert_close(model.penalty(), expected)
    parameters = [model.spectrum, model.left, model.right]
    gradients = torch.autograd.grad(model.penalty(), parameters, allow_unused=True)
    expected_gradients = torch.autograd.grad(expected, parameters)
    torch.testing.assert_close(gradients[0], expected_gradients[0])
    assert gradients[1:] == (None, None)
    for basis, gradient in zip(parameters[1:], expected_gradients[1:], strict=True):
        along = gradient @ basis.T - basis @ gradient.T
        torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)


# nnRNN


def schur_form(p, n, keep):
    form = np.zeros((n, n))
    form[keep] = p["triangle_entries"]
    for i, (gamma, theta) in enumerate(zip(p["moduli"], p["rotations"], strict=True)):
        block = gamma * np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
        form[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] += block
    return form


def triangle_positions(n, triangle):
    rows, columns = np.triu_indices(n, 1)
    apart = rows // 2 != columns // 2 if triangle == "block_strict" else rows >= 0
    return rows[apart], columns[apart]


@pytest.mark.parametrize("triangle", ["strict", "block_strict"])
def test_nnrnn_matches_a_literal_transcription(triangle):
    x, outputs, p = run(make("nnrnn", hidden_size=8, triangle=triangle))
    basis = scipy.linalg.expm(skew_of(p["skew_entries"], 8))
    w = basis @ schur_form(p, 8, triangle_positions(8, triangle)) @ basis.T
    np.testing.assert_allclose(outputs, plain_outputs(x, w, modrelu, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("triangle", "are_gamma"), [("block_strict", True), ("strict", False)])
def test_nnrnn_eigenvalue_moduli_are_gamma_if_blocks_are_zero_in_n(triangle, are_gamma):
    model = make("nnrnn", hidden_size=8, triangle=triangle, recurrent_learning_rate=1e-4)
    steps(model, 200, 10)
    assert (model.triangle_entries != 0).all()
    model.double()
    moduli = np.sort(np.abs(np.linalg.eigvals(model.weight().detach().numpy())))
    gamma = np.sort(np.repeat(np.abs(model.moduli.detach().numpy()), 2))
    assert np.abs(gamma - 1).max() > 1e-2
    assert np.allclose(moduli, gamma, rtol=1e-9) == are_gamma


def test_nnrnn_starts_as_its_program():
    model = make("nnrnn", hidden_size=40, inputs=40, outputs=40)
    assert off_orthogonal(model.weight()) < 10 * 40 * EPS
    assert ((model.rotations >= 0) & (model.rotations <= 6.28)).all()
    assert model.rotations.max() > 4
    eigenvalues = np.linalg.eigvals(model.weight().detach().double().numpy())
    expected = np.exp(1j * np.concatenate([sign * model.rotations.detach().double().numpy() for sign in (1, -1)]))
    np.testing.assert_allclose(np.sort(eigenvalues.real), np.sort(expected.real), atol=1e-5)
    assert (model.moduli == 1).all()
    assert (model.triangle_entries == 0).all()
    assert 0.005 < model.bias.abs().max() <= 0.01
    for weight in (model.input_weight, model.output_weight):
        assert weight.std().item() == pytest.approx(math.sqrt(2 / 80), rel=0.1)
        assert weight.abs().max() > math.sqrt(6 / 80)  # normal, not uniform
    assert 0 < model.output_bias.abs().max() <= 40**-0.5
    full, half = (
        make("nnrnn", hidden_size=40, initialization=start).skew_entries for start in ("full_circle", "half_circle")
    )
    assert full.abs().max() > 2
    assert -1 <= half.min() < half.max() == 0
    language = make("nnrnn", hidden_size=40, inputs=40, map_start="language")
    assert language.input_weight.std().item() == pytest.approx(math.sqrt(2 / 40), rel=0.1)
    assert 0.09 < language.output_weight.abs().max() <= 0.1


def test_nnrnn_penalty_pulls_moduli_to_one_and_decays_n_alone():
    model = make("nnrnn", hidden_size=8, modulus_penalty=0.5, triangle_decay=0.25)
    with torch.no_grad():
        model.moduli.copy_(torch.tensor([1.0, 1.5, 0.0, 3.0]))
    assert model.penalty().item() == pytest.approx(0.5 * (0.25 + 1 + 4))
    others, triangle, skew = model.parameter_groups()
    assert (triangle.weight_decay, triangle.learning_rate) == (0.25, 5e-4)
    assert triangle.parameters[0] is model.triangle_entries
    assert skew.parameters[0] is model.skew_entries
    assert others.weight_decay == skew.weight_decay == 0
    assert (others.learning_rate, skew.learning_rate) == (5e-4, 1e-6)


# All of them


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("spectral_rnn", {"hidden_size": 4, "reflections": 2}),
        ("soft_orthogonal", {"hidden_size": 4}),
        ("soft_orthogonal", {"hidden_size": 4, "margin": None, "activation": "identity"}),
        ("soft_orthogonal", {"hidden_size": 4, "margin": 0}),
        ("nnrnn", {"hidden_size": 4}),
        ("nnrnn", {"hidden_size": 6, "triangle": "block_strict"}),
    ],
)
def test_gradients_match_finite_differences(name, settings):
    model = make(name, "last", **settings)
    with torch.no_grad():  # off the start, where some derivatives are zero
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    assert_gradients(model)


@pytest.mark.parametrize(
    ("name", "m", "p", "settings", "exact"),
    [
        ("spectral_rnn", 2, 1, {"hidden_size": 60, "reflections": 16}, 1_981),
        ("soft_orthogonal", 1, 10, {"hidden_size": 128}, 17_930),
        ("soft_orthogonal", 1, 10, {"hidden_size": 128, "margin": None}, 17_930),
        ("soft_orthogonal", 1, 10, {"hidden_size": 128, "margin": 0}, 17_930 - 128 * 129 // 2),
        ("nnrnn", 10, 9, {"hidden_size": 128}, 18_953),
        ("nnrnn", 10, 9, {"hidden_size": 128, "triangle": "block_strict"}, 18_953 - 64),
        ("nnrnn", 1, 10, {"hidden_size": 512}, 268_298),
        ("nnrnn", 200, 50, {"hidden_size": 1024}, 1_315_650 - 50 * 200),  # without the embedding
    ],
)
def test_parameter_counts_match_the_papers(name, m, p, settings, exact):
    assert make(name, inputs=m, outputs=p, **settings).parameter_count() == exact


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("spectral_rnn", {"reflections": 8}, "reflections=8 is more than hidden_size (7)"),
        ("spectral_rnn", {"margin": 0}, "margin=0"),
        ("spectral_rnn", {"margin": 1.5}, "margin=1.5"),
        ("soft_orthogonal", {"margin": -0.1}, "margin=-0.1"),
        ("soft_orthogonal", {"initialization": "glorot"}, "use margin=none"),
        ("soft_orthogonal", {"recurrent_optimizer": "adam"}, "recurrent_optimizer=adam: should be 'cayley'"),
        ("soft_orthogonal", {"activation": "relu"}, "activation=relu"),
        ("nnrnn", {"hidden_size": 7}, "hidden_size=7: should be even"),
        ("nnrnn", {"triangle_decay": -1}, "triangle_decay=-1"),
    ],
)
def test_invalid_settings_are_refused(name, settings, message):
    with pytest.raises(UsageError) as error:
        make(name, **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(("start", "bound"), [("linear", 7**-0.5), ("truncated_normal", 0.2)])
def test_output_biases_match_the_programs(start, bound):
    bias = make("rnn", outputs=400, output_bias=start).output_bias
    assert 0.95 * bound < bias.abs().max() <= bound
    assert make("rnn", output_bias=start, outputs=P).output_bias.shape == (P,)
