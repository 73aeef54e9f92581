"""EURNN against a literal transcription in float64, its start, its promise and its counts."""

import math

import numpy as np
import pytest
import torch
from support.models import assert_gradients, expected_outputs, make, run, steps
from support.rotations import literal_product

from orthobench.errors import UsageError
from orthobench.recurrence import GradientTrace

STYLES = [{"style": "tunable"}, {"style": "tunable", "capacity": 6}, {"style": "fft"}]
UNITS = ["complex", "real"]


def build_eurnn(readout="all", **settings):
    return make("eurnn", readout, **{"hidden_size": 8, **settings})


@pytest.mark.parametrize("forms_weight", [True, False])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("settings", STYLES)
def test_matches_a_literal_transcription(settings, units, forms_weight):
    model = build_eurnn(units=units, **settings)
    model.forms_weight = forms_weight
    x, outputs, p = run(model)
    u, b = p["input_weight"], p["bias"]
    w = literal_product(8, settings["style"], settings.get("capacity", 2), p["theta"], p.get("phi"), p.get("omega"))
    if units == "complex":
        u = u[::2] + 1j * u[1::2]

    def step(x_t, state):
        h = np.zeros(8) if state is None else state[1]
        z = w @ h + u @ x_t
        q = np.abs(z) + 0.01
        h = (z / q if units == "complex" else np.sign(z)) * np.maximum(q + b, 0)
        return h.real, h

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 8, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("units", UNITS)
def test_forming_and_applying_w_agree(units, readout, traced):
    """In value, in every gradient and in the trace."""
    results = []
    for forms_weight in (True, False):
        model = build_eurnn(readout, units=units, style="fft").double()
        model.forms_weight = forms_weight
        trace = GradientTrace() if traced else None
        x = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        outputs, (state,) = model(x, trace=trace)
        gradients = torch.autograd.grad(outputs.square().sum() + state.sum(), list(model.parameters()))
        results.append((outputs, state, *gradients, *(trace.norms.values() if traced else ())))
    torch.testing.assert_close(*results)


def test_large_matrices_with_few_layers_are_applied():
    assert not build_eurnn(hidden_size=1024).forms_weight
    assert build_eurnn(hidden_size=1024, capacity=128).forms_weight
    assert build_eurnn().forms_weight


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("settings", STYLES)
def test_gradients_match_finite_differences(settings, units):
    assert_gradients(build_eurnn("last", units=units, **settings))


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("settings", STYLES)
def test_stays_unitary(settings, units):
    model = build_eurnn(hidden_size=32, units=units, **settings)
    before = model.matrix().detach()
    steps(model, 200, 100)
    w = model.matrix().detach()
    assert w.is_complex() == (units == "complex")
    assert torch.linalg.matrix_norm(w - before) > 0.1
    assert torch.linalg.matrix_norm(w.mH @ w - torch.eye(32)) < 32 * torch.finfo(torch.float32).eps


def test_starts_as_its_program():
    model = build_eurnn(hidden_size=512)
    for angles in (model.theta, model.phi, model.omega):
        assert 3.1 < angles.abs().max() <= 3.14
        assert abs(angles.mean()) < 0.3
    assert 0.0099 < model.input_weight.abs().max() <= 0.01
    assert (model.bias == 0).all()
    bound = math.sqrt(6 / (4 + 5))
    assert 0.99 * bound < model.output_weight.abs().max() <= bound
    assert (model.output_bias == 0.01).all()
    assert (model.initial_state(2)[0] == 0).all()
    (group,) = model.parameter_groups()
    assert (group.optimizer, group.learning_rate) == ("rmsprop_tf1", 1e-3)


@pytest.mark.parametrize(
    ("n", "m", "p", "settings", "exact"),
    [
        (512, 2, 1, {}, 4_607),
        (512, 2, 1, {"style": "fft"}, 8_193),
        (512, 1, 10, {"capacity": 4}, 9_222),
        (1024, 1, 10, {"units": "real"}, 13_321),
        (512, 1, 10, {"style": "fft", "units": "real"}, 8_970 - 512),
    ],
)
def test_parameter_count_matches_the_program(n, m, p, settings, exact):
    model = build_eurnn(inputs=m, outputs=p, hidden_size=n, **settings)
    assert model.parameter_count() == exact


@pytest.mark.parametrize(("settings", "printed"), [({}, 3_071), ({"style": "fft"}, 6_657)])
def test_published_sizes_leave_out_the_last_phases_and_half_of_u(settings, printed):
    model = build_eurnn(inputs=2, outputs=1, hidden_size=512, **settings)
    assert model.parameter_count() - model.omega.numel() - model.input_weight.numel() // 2 == printed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 7}, "hidden_size=7 is odd"),
        ({"capacity": 3}, "capacity=3 should be an even number from 2 to hidden_size (8)"),
        ({"capacity": 10}, "capacity=10 should be an even number"),
        ({"capacity": 0}, "capacity=0"),
        ({"hidden_size": 12, "style": "fft"}, "hidden_size=12 is not a power of two"),
        ({"capacity": 4, "style": "fft"}, "capacity=4 needs style=tunable"),
        ({"units": "quaternion"}, "units=quaternion"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(UsageError) as error:
        build_eurnn(**settings)
    assert message in str(error.value)
