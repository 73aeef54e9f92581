"""coRNN, LEM, LipschitzRNN and LRU against literal transcriptions of their equations, and their starts."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from support.models import (
    B,
    M,
    P,
    assert_gradients,
    expected_outputs,
    make,
    run,
    sigmoid,
    steps,
)

from orthobench.errors import UsageError

NAMES = ["cornn", "lem", "lipschitz_rnn", "lru"]
SMALL = {"lru": {"block_size": 5}}


def test_cornn_matches_a_literal_transcription():
    x, outputs, p = run(make("cornn", step_size=0.3, frequency=1.7, damping=0.9))
    w_y, w_z = p["recurrent_weight"][:, :7], p["recurrent_weight"][:, 7:]

    def step(x_t, state):
        y, z = (np.zeros(7), np.zeros(7)) if state is None else state
        force = np.tanh(w_y @ y + w_z @ z + p["input_weight"] @ x_t + p["bias"])
        z = z + 0.3 * (force - 1.7 * y - 0.9 * z)
        return y + 0.3 * z, z

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_lem_matches_a_literal_transcription():
    x, outputs, p = run(make("lem", step_size=0.4))
    w_1, w_z, w_2, w_y = np.split(p["recurrent_weight"], 4)
    v_1, v_z, v_2, v_y = np.split(p["input_weight"], 4)
    b_1, b_z, b_2, b_y = np.split(p["input_bias"] + p["recurrent_bias"], 4)

    def step(x_t, state):
        y, z = (np.zeros(7), np.zeros(7)) if state is None else state
        a = 0.4 * sigmoid(w_1 @ y + v_1 @ x_t + b_1)
        a_y = 0.4 * sigmoid(w_2 @ y + v_2 @ x_t + b_2)
        z = (1 - a) * z + a * np.tanh(w_z @ y + v_z @ x_t + b_z)
        return (1 - a_y) * y + a_y * np.tanh(w_y @ z + v_y @ x_t + b_y), z

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("beta", [0, 0.75, 1])
def test_lipschitz_rnn_matches_a_literal_transcription(beta):
    x, outputs, p = run(make("lipschitz_rnn", step_size=0.3, skewness=beta, diffusion=0.2))

    def matrix(m):
        return beta * (m - m.T) + (1 - beta) * (m + m.T) - 0.2 * np.eye(7)

    a, w = matrix(p["linear_entries"]), matrix(p["recurrent_entries"])

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        return h + 0.3 * (a @ h + np.tanh(w @ h + p["input_weight"] @ x_t + p["bias"]))

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("readout", ["all", "last"])
def test_lru_matches_a_literal_transcription(readout):
    d = 5
    x, outputs, p = run(make("lru", readout, block_size=d))
    eigenvalues = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
    b = p["input_weight"][::2] + 1j * p["input_weight"][1::2]
    c = p["state_weight"][:, ::2] - 1j * p["state_weight"][:, 1::2]
    expected = []
    s = [np.zeros(7, complex)] * B
    for x_t in x:
        rows = []
        for sample, column in enumerate(x_t):
            e = p["encoder_weight"] @ column + p["encoder_bias"]
            v = (e - e.mean()) / np.sqrt(e.var() + 1e-5) * p["norm_weight"] + p["norm_bias"]
            s[sample] = eigenvalues * s[sample] + np.exp(p["gain"]) * (b @ v)
            y = (c @ s[sample]).real + p["feedthrough"] * v
            u = y * (1 + scipy.special.erf(y / np.sqrt(2))) / 2
            value = p["gate_weight"][:d] @ u + p["gate_bias"][:d]
            gate = p["gate_weight"][d:] @ u + p["gate_bias"][d:]
            rows.append(p["output_weight"] @ (e + value * sigmoid(gate)) + p["output_bias"])
        expected.append(rows)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("readout", ["all", "last"])
def test_gradients_match_finite_differences(name, readout):
    assert_gradients(make(name, readout, **SMALL.get(name, {})))


@pytest.mark.parametrize(
    ("name", "n", "m", "p", "exact"),
    [
        # The formulas; p0 is n p + p of the output map.
        ("cornn", 256, 1, 10, 2 * 256**2 + 256 + 256 + 2570),
        ("cornn", 128, 96, 10, 2 * 128**2 + 96 * 128 + 128 + 1290),
        ("lem", 128, 1, 10, 4 * 128 + 4 * 128 + 3 * 128**2 + 3 * 128 + 128**2 + 128 + 1290),
        ("lipschitz_rnn", 128, 1, 10, 2 * 128**2 + 128 + 128 + 1290),
    ],
)
def test_parameter_counts_match_the_papers(name, n, m, p, exact):
    assert make(name, inputs=m, outputs=p, hidden_size=n).parameter_count() == exact


def test_lru_parameter_count_matches_the_formula():
    n, d = 7, 5
    layer = 3 * n + 2 * n * d + 2 * n * d + d
    around = (M * d + d) + 2 * d + 2 * (d * d + d) + (d * P + P)
    assert make("lru", block_size=d).parameter_count() == layer + around


def spread(tensor, bound):
    """Uniform over (-bound, bound): inside, up to the edges, of the right variance."""
    values = tensor.detach().double()
    assert values.abs().max() <= bound
    assert values.abs().max() > 0.9 * bound
    assert values.square().mean().sqrt().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_cornn_starts_as_one_linear_map():
    model = make("cornn", inputs=20, outputs=30, hidden_size=60)
    for parameter in (model.input_weight, model.recurrent_weight, model.bias):
        spread(parameter, 1 / math.sqrt(20 + 2 * 60))
    spread(model.output_weight, 1 / math.sqrt(60))
    spread(model.output_bias, 1 / math.sqrt(60))


def test_cornn_of_three_maps_starts_as_the_program_for_cifar10():
    """noisy_CIFAR10/network.py:15: torch's Linear of x with a bias, of y and of z without."""
    model = make("cornn", inputs=96, hidden_size=30, maps="three")
    spread(model.input_weight, 1 / math.sqrt(96))
    spread(model.bias, 1 / math.sqrt(96))
    spread(model.recurrent_weight, 1 / math.sqrt(30))
    assert model.parameter_count() == make("cornn", inputs=96, hidden_size=30).parameter_count()


def test_lem_starts_as_its_program():
    model = make("lem", inputs=10, outputs=40, hidden_size=50)
    for parameter in (model.input_weight, model.input_bias, model.recurrent_weight, model.recurrent_bias):
        spread(parameter, 1 / math.sqrt(50))
    assert model.output_weight.std().item() == pytest.approx(math.sqrt(2 / 50), rel=0.1)
    assert model.output_weight.abs().max() > 2.5 * math.sqrt(2 / 50)  # no uniform has this
    spread(model.output_bias, 1 / math.sqrt(50))


def test_lipschitz_rnn_starts_as_its_program():
    model = make("lipschitz_rnn", inputs=9, outputs=40, hidden_size=50, recurrent_scale=6)
    for entries in (model.linear_entries, model.recurrent_entries):
        assert entries.std().item() == pytest.approx(6 / 50, rel=0.1)
    spread(model.input_weight, 1 / 3)
    spread(model.bias, 1 / 3)
    spread(model.output_weight, 1 / math.sqrt(50))


def test_lem_states_stay_between_minus_one_and_one():
    """Each step is a mean of the state and a tanh, as long as dt is at most 1."""
    model = make("lem", step_size=1)
    steps(model, 200, 100)
    inputs = 10 * torch.randn(300, B, M, generator=torch.Generator().manual_seed(1))
    states, final = model.states(inputs, model.initial_state(B), None)
    assert 0.9 < states.abs().max() <= 1
    assert final[1].abs().max() <= 1


@pytest.mark.parametrize(("beta", "sign"), [(0, 1), (1, -1)])
def test_lipschitz_matrices_interpolate_symmetric_and_skew(beta, sign):
    model = make("lipschitz_rnn", skewness=beta, diffusion=0)
    steps(model, 200)
    for matrix in model.recurrent_matrices().values():
        assert torch.equal(matrix, sign * matrix.T)
        assert matrix.any()


def test_lipschitz_diffusion_moves_the_eigenvalues_left():
    model = make("lipschitz_rnn", skewness=1, diffusion=0.25)
    steps(model, 200)
    for matrix in model.recurrent_matrices().values():
        results = np.linalg.eigvals(matrix.detach().double().numpy())
        np.testing.assert_allclose(results.real, -0.25, atol=1e-6)


@pytest.mark.parametrize(("r_min", "r_max", "theta_max"), [(0, 0.999, 2 * math.pi), (0.9, 0.999, 0.1 * math.pi)])
def test_lru_starts_on_its_ring(r_min, r_max, theta_max):
    n = 2000
    settings = {"hidden_size": n, "block_size": 30, "r_min": r_min, "r_max": r_max, "theta_max": theta_max}
    model = make("lru", **settings)
    eigenvalues = model.eigenvalues().detach().numpy()
    # Uniform in area: (|lambda|^2 - r_min^2) / (r_max^2 - r_min^2) is uniform in (0, 1); so is angle / theta_max.
    area = (np.abs(eigenvalues.astype(complex)) ** 2 - r_min**2) / (r_max**2 - r_min**2)
    turn = np.angle(eigenvalues) % (2 * np.pi) / theta_max
    for share in (area, turn):
        assert share.min() > -1e-4
        assert share.max() < 1 + 1e-4
        assert scipy.stats.kstest(share, "uniform").pvalue > 0.01
    np.testing.assert_allclose(np.exp(2 * model.gain.detach().numpy()), 1 - np.abs(eigenvalues) ** 2, rtol=1e-2)
    assert model.input_weight.var().item() == pytest.approx(1 / 60, rel=0.05)
    assert model.state_weight.var().item() == pytest.approx(1 / n, rel=0.05)


def test_lru_stays_inside_the_unit_circle():
    """exp(-exp(nu)) is below 1 whatever the optimiser does."""
    model = make("lru", r_min=0.9)
    before = model.eigenvalues().detach()
    steps(model, 200, 100)
    after = model.eigenvalues().detach()
    assert not torch.equal(before, after)
    assert (after.abs() <= 1).all()


def test_lru_trains_its_recurrence_at_a_lower_rate():
    others, recurrent = make("lru", learning_rate=0.01, recurrent_factor=0.25).parameter_groups()
    assert others.learning_rate == 0.01
    assert recurrent.learning_rate == 0.0025
    assert sum(parameter.numel() for parameter in recurrent.parameters) == 3 * 7 + 2 * 7 * 128


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("cornn", {"step_size": 0}, "step_size=0"),
        ("cornn", {"damping": -1}, "damping=-1"),
        ("lem", {"step_size": 1.5}, "step_size=1.5"),
        ("lipschitz_rnn", {"skewness": 1.1}, "skewness=1.1"),
        ("lipschitz_rnn", {"diffusion": -0.1}, "diffusion=-0.1"),
        ("lru", {"r_min": 0.9, "r_max": 0.5}, "r_min=0.9 should be below r_max (0.5)"),
        ("lru", {"r_max": 1.1}, "r_max=1.1"),
        ("lru", {"theta_max": 7}, "theta_max=7"),
    ],
)
def test_invalid_settings_are_refused(name, settings, message):
    with pytest.raises(UsageError) as error:
        make(name, **settings)
    assert message in str(error.value)
