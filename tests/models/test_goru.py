"""GORU against a literal transcription in float64, its start, its promise and its count."""

import math

import numpy as np
import pytest
import torch
from support.models import assert_gradients, expected_outputs, make, run, sigmoid, steps
from support.rotations import literal_product

from orthobench.errors import UsageError
from orthobench.recurrence import use_backend
from orthobench.recurrence.cpu import call_c

STYLES = [{}, {"style": "tunable"}, {"style": "tunable", "capacity": 6}]


def build_goru(readout="all", **settings):
    return make("goru", readout, **{"hidden_size": 8, **settings})


@pytest.mark.parametrize("settings", STYLES)
def test_matches_a_literal_transcription(settings):
    x, outputs, p = run(build_goru(**settings))
    q = literal_product(8, settings.get("style", "fft"), settings.get("capacity", 2), p["theta"])
    (u_r, u_g, u_c), (w_r, w_g) = np.split(p["input_weight"], 3), np.split(p["gate_weight"], 2)
    b_r, b_g = np.split(p["gate_bias"], 2)

    def step(x_t, h):
        h = np.zeros(8) if h is None else h
        r, g = sigmoid(w_r @ h + u_r @ x_t + b_r), sigmoid(w_g @ h + u_g @ x_t + b_g)
        z = r * (q @ h) + u_c @ x_t
        return g * h + (1 - g) * np.sign(z) * np.maximum(np.abs(z) + 0.001 + p["candidate_bias"], 0)

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 8, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", STYLES)
def test_gradients_match_finite_differences(settings):
    assert_gradients(build_goru("last", **settings))


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_back_ends_agree_with_the_reference():
    """In float32 with the reference in float64, in value and in every gradient."""
    results = []
    for name, dtype in (("cpu", torch.float32), ("reference", torch.float64)):
        model = build_goru(hidden_size=32).to(dtype)
        x = torch.randn(30, 5, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
        with use_backend(name):
            outputs, _ = model(x)
            gradients = torch.autograd.grad(outputs.square().mean(), list(model.parameters()))
            results.append((outputs.detach(), *gradients))
    for actual, expected in zip(*results, strict=True):
        assert float((actual - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("settings", STYLES)
def test_product_stays_orthogonal(settings):
    model = build_goru(hidden_size=32, **settings)
    before = model.product().detach()
    steps(model, 200, 100)
    q = model.recurrent_matrices()["Q"].detach()
    assert torch.linalg.matrix_norm(q - before) > 0.1
    assert torch.linalg.matrix_norm(q.T @ q - torch.eye(32)) < 32 * torch.finfo(torch.float32).eps


def test_starts_as_its_program():
    model = build_goru(hidden_size=512)
    for weight in (model.input_weight, model.gate_weight):
        assert 0.0099 < weight.abs().max() <= 0.01
    b_r, b_g = model.gate_bias.chunk(2)
    assert (b_r == 2).all()
    bound = math.sqrt(3 / 512)
    assert 0.95 * bound < b_g.abs().max() <= bound
    assert (model.candidate_bias == 0.01).all()
    assert 3.1 < model.theta.abs().max() <= 3.14
    assert 0.95 * math.sqrt(6 / 9) < model.output_weight.abs().max() <= math.sqrt(6 / 9)
    assert (model.output_bias == 0.01).all()
    (group,) = model.parameter_groups()
    assert (group.optimizer, group.learning_rate) == ("rmsprop_tf1", 1e-3)


@pytest.mark.parametrize(
    ("settings", "angles"), [({}, 128 // 2 * 7), ({"style": "tunable", "capacity": 4}, 2 * 64 + 2 * 63)]
)
def test_parameter_count_matches_the_formula(settings, angles):
    """Angles + 3 m n + 2 n^2 + 3 n + n p + p."""
    model = build_goru(inputs=10, outputs=9, hidden_size=128, **settings)
    assert model.parameter_count() == angles + 3 * 10 * 128 + 2 * 128**2 + 3 * 128 + 128 * 9 + 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 12}, "hidden_size=12 is not a power of two"),
        ({"capacity": 4}, "capacity=4 needs style=tunable"),
        ({"hidden_size": 9, "style": "tunable"}, "hidden_size=9 is odd"),
        ({"style": "tunable", "capacity": 9}, "capacity=9 should be an even number from 2 to hidden_size (8)"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(UsageError) as error:
        build_goru(**settings)
    assert message in str(error.value)
