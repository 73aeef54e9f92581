"""wRNN and IndRNN against literal transcriptions, their starts, their bound, and the two ways to apply wRNN's sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.models import assert_gradients, expected_outputs, make, run, steps
from torch import nn

from orthobench.errors import UsageError

ACTIVATIONS = {"relu": lambda z: np.maximum(z, 0), "tanh": np.tanh, "identity": lambda z: z}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_wrnn_matches_the_convolution_written_out(activation, channels):
    """Each sum over channels and neighbours written out."""
    n = 5
    x, outputs, p = run(make("wrnn", hidden_size=n, channels=channels, activation=activation))

    def step(x_t, h):
        h = np.zeros((channels, n)) if h is None else h.reshape(channels, n)
        z = (p["input_weight"] @ x_t + p["bias"]).reshape(channels, n)
        for o in range(channels):
            for i in range(n):
                z[o, i] += p["channel_bias"][o]
                z[o, i] += sum(p["taps"][o, k, s + 1] * h[k, (i + s) % n] for k in range(channels) for s in (-1, 0, 1))
        return ACTIVATIONS[activation](z).ravel()

    np.testing.assert_allclose(outputs, expected_outputs(x, step, n * channels, p), rtol=1e-9, atol=1e-12)


def test_wrnn_equals_torchs_circular_convolution():
    model = make("wrnn", hidden_size=6, channels=3, initialization="linear").double()
    conv = nn.Conv1d(3, 3, 3, padding=1, padding_mode="circular").double()
    h = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        conv.weight.copy_(model.taps), conv.bias.zero_()
        expected = conv(h).flatten(1)
        torch.testing.assert_close(h.flatten(1) @ model.weight().T, expected)
        torch.testing.assert_close(model.layers.apply(model.layer_weight(), h.flatten(1)), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_wrnn_starts_as_a_permutation(n):
    """Which moves every channel's wave by one unit, and returns it after n steps."""
    weight = make("wrnn", hidden_size=n, channels=2).weight()
    assert ((weight == 0) | (weight == 1)).all()
    assert (weight.sum(0) == 1).all()
    assert (weight.sum(1) == 1).all()
    wave = torch.arange(2.0 * n)
    torch.testing.assert_close((weight @ wave).view(2, n), wave.view(2, n).roll(-1, 1))
    torch.testing.assert_close(torch.linalg.matrix_power(weight, n), torch.eye(2 * n))
    assert torch.equal(make("wrnn", hidden_size=n, initialization="identity").weight(), torch.eye(n))


def test_wrnn_applies_a_large_w():
    """With the numbers and gradients of the matrix."""
    settings = {"hidden_size": 50, "channels": 3, "initialization": "linear"}
    formed, applied = make("wrnn", **settings), make("wrnn", **settings)
    assert not applied.forms_weight
    formed.forms_weight = True
    x, results = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(0)).double(), []
    for model in (formed.double(), applied.double()):
        outputs, _ = model(x)
        outputs.square().sum().backward()
        results.append([outputs, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results)


def test_wrnn_size_and_encoder_match_the_paper():
    """10.29k parameters on adding, without the output map and the convolution's bias."""
    model = make("wrnn", hidden_size=100, channels=27, inputs=2, outputs=1)
    assert model.parameter_count() - (2700 + 1) - 27 == 10_287
    solo = model.input_weight.view(27, 100, 2)
    assert (solo[:, 0] == 1).all()
    assert (solo[:, 1:] == 0).all()
    assert 5e-4 < make("wrnn", hidden_size=64, encoder_start="normal").input_weight.std() < 2e-3


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_ind_rnn_matches_its_equation(activation):
    x, outputs, p = run(make("ind_rnn", activation=activation))

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        return ACTIVATIONS[activation](p["recurrent_weight"] * h + p["input_weight"] @ x_t + p["bias"])

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_ind_rnn_weights_stay_in_their_bound():
    bound = 2 ** (1 / 50)
    model: Any = make("ind_rnn", bounded_steps=50, learning_rate=1.0)
    steps(model, 5)
    assert model.recurrent_weight.abs().max() == np.float32(bound)
    free: Any = make("ind_rnn", learning_rate=1.0)
    steps(free, 5)
    assert free.recurrent_weight.abs().max() > bound
    assert (make("ind_rnn", start_low=0.9, start_high=0.95).recurrent_weight - 0.925).abs().max() <= 0.0251


@pytest.mark.parametrize("name", ["wrnn", "ind_rnn"])
def test_gradients_match_finite_differences(name):
    assert_gradients(make(name, hidden_size=4, activation="tanh", **({"channels": 2} if name == "wrnn" else {})))


def test_ind_rnn_starts_as_the_authors_network():
    """torch's kaiming_uniform with a = 8, and zero biases: `Indrnn_plainnet.py:57`."""
    m = 5
    own, linear = (make("ind_rnn", inputs=m, hidden_size=4000, input_start=start) for start in ("kaiming", "linear"))
    assert own.input_weight.std().item() == pytest.approx(0.304 / (3 * m) ** 0.5, rel=0.02)
    assert not own.bias.any()
    assert linear.input_weight.std().item() == pytest.approx(1 / (3 * m) ** 0.5, rel=0.02)
    assert linear.bias.any()


def test_starts_outside_the_bound_are_refused():
    with pytest.raises(UsageError, match=r"start_low=0\.5 should be at most start_high"):
        make("ind_rnn", start_low=0.5, start_high=0.4)
    with pytest.raises(UsageError, match=r"within the bound 1\.00069"):
        make("ind_rnn", start_high=1.1, bounded_steps=1000)
