"""The starts of real models: distributions, bounds and exact values of their programs and papers."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from support.models import (
    M,
    make,
)

from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog


def test_enrnn_starts_with_the_stated_eigenvalues():
    """W_S has 2 x 2 blocks m [[cos t, -sin t], [sin t, cos t]], m ~ U(-1, 1), t ~ U(0, pi / 2); W_L has m = 1."""
    blocks = 200
    model = make("enrnn", hidden_size=4 * blocks, short_size=2 * blocks, negative_ones=0)
    long, short = (block.detach().double().numpy() for block in model.blocks())
    even = np.arange(0, 2 * blocks, 2)
    for matrix in (long, short):
        cosines, sines = matrix[even, even], matrix[even + 1, even]
        literal = np.zeros_like(matrix)
        for first, cosine, sine in zip(even, cosines, sines, strict=True):
            literal[first : first + 2, first : first + 2] = [[cosine, -sine], [sine, cosine]]
        np.testing.assert_allclose(matrix, literal, atol=1e-6)
        angles = np.arctan(sines / cosines)  # the same for a negative modulus
        assert scipy.stats.kstest(np.abs(angles), "uniform", (0, np.pi / 2)).pvalue > 0.01
        assert (np.sign(angles) == np.sign(angles[0])).all()  # all turn the same way
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(long)), 1, atol=1e-5)
    eigenvalues = np.linalg.eigvals(short)
    assert (np.abs(eigenvalues) < 1).all()
    moduli = np.hypot(short[even, even], short[even + 1, even]) * np.sign(short[even, even])
    assert scipy.stats.kstest(moduli, "uniform", (-1, 2)).pvalue > 0.01
    np.testing.assert_allclose(np.sort(np.abs(eigenvalues)), np.sort(np.repeat(np.abs(moduli), 2)), atol=1e-6)


@pytest.mark.parametrize("name", ["exprnn", "dtriv"])
def test_exprnn_output_bias_starts_as_set(name):
    assert make(name, output_bias="zeros").output_bias.eq(0).all()
    drawn = make(name).output_bias
    assert drawn.ne(0).all()
    assert drawn.abs().max() <= 7**-0.5


def test_exprnn_eigenvalues_start_on_the_circle():
    full = np.linalg.eigvals(make("exprnn", hidden_size=60).weight().detach().double().numpy())
    half = np.linalg.eigvals(make("exprnn", hidden_size=60, initialization="half_circle").weight().detach().numpy())
    np.testing.assert_allclose(np.abs(full), 1, atol=1e-5)
    assert np.abs(np.angle(full)).max() > 2
    assert np.abs(np.angle(half)).max() <= 1 + 1e-5


def test_scornn_starts_as_its_program():
    model = make("scornn", hidden_size=50, negative_ones=15)
    assert torch.equal(model.signs, torch.tensor([1.0] * 35 + [-1.0] * 15))
    assert (model.bias == 0).all()
    assert model.input_weight.abs().max() <= 0.01
    assert model.output_weight.abs().max() <= math.sqrt(6 / 55)
    assert (model.output_bias == 0).all()
    # -1 on whole 2 x 2 blocks reflects their eigenvalues across the imaginary axis: 15 odd leaves one block apart.
    left = (np.linalg.eigvals(model.recurrent_matrices()["W"].detach().numpy()).real < -1e-9).sum()
    assert left in (14, 15)
    zero = make("scornn", hidden_size=6, negative_ones=2, initialization="zeros").recurrent_matrices()["W"]
    assert torch.equal(zero, torch.diag(torch.tensor([1.0, 1, 1, 1, -1, -1])))


def test_lstm_starts_as_the_tensorflow_cell():
    model = make("lstm", hidden_size=40)
    bound = math.sqrt(6 / (M + 40 + 160))
    for weight in (model.input_weight, model.recurrent_weight):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert (model.bias == 0).all()
    assert model.forget_offset.view(4, -1).sum(1).tolist() == [0, 40, 0, 0]


def test_lstm_with_torch_biases_equals_torch_lstm():
    """Two trained biases U(-1/sqrt(n), 1/sqrt(n)), whose sum is added; the published LSTM then has the same outputs."""
    model = make("lstm", hidden_size=40, bias_start="torch", forget_bias=0.0)
    for bias in (model.bias, model.recurrent_bias):
        assert 0.95 / math.sqrt(40) < bias.abs().max() <= 1 / math.sqrt(40)
    assert not torch.equal(model.bias, model.recurrent_bias)
    assert model.parameter_count() == make("lstm", hidden_size=40).parameter_count() + 160
    published = torch.nn.LSTM(M, 40)
    with torch.no_grad():
        published.weight_ih_l0.copy_(model.input_weight), published.weight_hh_l0.copy_(model.recurrent_weight)
        published.bias_ih_l0.copy_(model.bias), published.bias_hh_l0.copy_(model.recurrent_bias)
    x = torch.randn(6, 3, M, generator=torch.Generator().manual_seed(0))
    states, expected_states = model.run(x)[0], published(x)[0]
    torch.testing.assert_close(states, expected_states)
    gradients = torch.autograd.grad(states.square().sum(), (model.bias, model.recurrent_bias))
    expected = torch.autograd.grad(expected_states.square().sum(), (published.bias_ih_l0, published.bias_hh_l0))
    torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize("name", ["lstm", "scornn", "wrnn", "eurnn", "mamba"])
@pytest.mark.parametrize("layers", [1, 2])
def test_output_weight_starts_as_set(name, layers):
    """Also where a model has a start of its own for it; everything else starts as before."""

    def start(output_weight):
        model_class = Catalog().load("model", name)
        settings = model_class.Settings.read(
            {"hidden_size": 32, "layers": layers, "output_weight": output_weight, "embedding_size": None}
        )
        return build_model(model_class, settings, Signature(5, 60, "all"), torch.Generator().manual_seed(0))

    before, linear, glorot = (start(value) for value in ("none", "linear", "glorot"))
    n = before.output_weight.shape[1]
    for model, bound in ((linear, 1 / math.sqrt(n)), (glorot, math.sqrt(6 / (n + 60)))):
        assert 0.97 * bound < model.output_weight.abs().max() <= bound
        for (label, parameter), other in zip(model.named_parameters(), before.parameters(), strict=True):
            assert label == "output_weight" or torch.equal(parameter, other), label


def test_lstm_starts_as_in_the_antisymmetric_paper():
    """W ~ N(0, 1/m), R ~ N(0, sigma^2/n) and zero biases."""
    model = make("lstm", inputs=90, hidden_size=100, recurrent_scale=2.0)
    for weight, deviation in ((model.input_weight, 90**-0.5), (model.recurrent_weight, 2 * 100**-0.5)):
        standardised = weight.detach().flatten() / deviation
        assert scipy.stats.kstest(standardised, "norm").pvalue > 1e-3
    assert not model.bias.any()


def test_copying_programs_start_with_a_random_output_bias():
    bias = make("scornn", outputs=9, output_bias="glorot").output_bias
    assert 0 < bias.abs().max() <= 3**0.5 / 3
