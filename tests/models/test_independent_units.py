"""minGRU, minLSTM and LinOSS against literal transcriptions of their equations, and what their matrices promise."""

import numpy as np
import pytest
import torch
from support.models import B, M, P, T, assert_gradients, expected_outputs, make, run, sigmoid, steps


def g(c, candidate):
    return c if candidate == "identity" else np.array([v + 0.5 if v >= 0 else sigmoid(v) for v in c])


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("candidate", ["positive", "identity"])
def test_min_gru_matches_a_literal_transcription(candidate, readout):
    x, outputs, p = run(make("min_gru", readout, candidate=candidate))

    def step(x_t, h):
        z, c = np.split(p["input_weight"] @ x_t + p["bias"], 2)
        h = np.zeros(7) if h is None else h
        return (1 - sigmoid(z)) * h + sigmoid(z) * g(c, candidate)

    expected = expected_outputs(x, step, 7, p)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("candidate", ["positive", "identity"])
def test_min_lstm_matches_a_literal_transcription(candidate):
    x, outputs, p = run(make("min_lstm", candidate=candidate))

    def step(x_t, h):
        f, i, c = np.split(p["input_weight"] @ x_t + p["bias"], 3)
        h, total = np.zeros(7) if h is None else h, sigmoid(f) + sigmoid(i)
        return sigmoid(f) / total * h + sigmoid(i) / total * g(c, candidate)

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gates", [(-75.0, -300.0), (-79.9, -300.0), (-41.0, -130.0), (-30.0, -39.0), (-300.0, -75.0)])
def test_min_lstm_compares_gates_that_are_far_below_zero(gates):
    model = make("min_lstm", inputs=1, hidden_size=1)
    with torch.no_grad():
        model.input_weight.zero_()
        model.bias.copy_(torch.tensor([*gates, 0.0]))
    states, _ = model.states(torch.zeros(1000, 1, 1), (torch.full((1, 1), 10.0),), None)
    keep = 1 / (1 + np.exp(gates[1] - gates[0]))
    expected, value = [], 10.0
    for _ in range(1000):
        value = keep * value + (1 - keep) * 0.5
        expected.append(value)
    np.testing.assert_allclose(states.detach().flatten(), expected, rtol=2e-5)


@pytest.mark.parametrize("name", ["min_gru", "min_lstm"])
def test_positive_candidate_matches_the_logarithmic_form(name):
    """The paper's second form: h_t = exp(log-sum-exp over s of log b_s + sum of log a between s and t)."""
    model = make(name).double()
    x = torch.randn(T, B, M, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    outputs, _ = model.states(x, model.initial_state(B), None)
    blocks = (x @ model.input_weight.T + model.bias).chunk(2 if name == "min_gru" else 3, dim=-1)
    if name == "min_gru":
        log_keep, log_write = -torch.nn.functional.softplus(blocks[0]), -torch.nn.functional.softplus(-blocks[0])
    else:
        difference = torch.nn.functional.softplus(-blocks[0]) - torch.nn.functional.softplus(-blocks[1])
        log_keep, log_write = -torch.nn.functional.softplus(difference), -torch.nn.functional.softplus(-difference)
    log_g = torch.where(blocks[-1] >= 0, (blocks[-1].relu() + 0.5).log(), -torch.nn.functional.softplus(-blocks[-1]))
    log_decay = log_keep.cumsum(0)
    expected = (log_decay + torch.logcumsumexp(log_write + log_g - log_decay, dim=0)).exp()
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("inputs", [7, M])
@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("scheme", ["IM", "IMEX"])
def test_linoss_matches_a_literal_transcription(scheme, readout, inputs):
    """The implicit equations of a step, solved for each unit by NumPy, with complex numbers."""
    p_size = 3
    model = make("linoss", readout, inputs=inputs, state_size=p_size, discretization=scheme)
    x, outputs, p = run(model)
    stiffness, dt = np.maximum(p["stiffness"], 0), sigmoid(p["step"])
    b = p["input_weight"][:p_size] + 1j * p["input_weight"][p_size:]
    c = p["state_weight"][:, :p_size] - 1j * p["state_weight"][:, p_size:]
    feed = np.diag(p["feedthrough"]) if inputs == 7 else p["feedthrough"]
    expected = []
    states = np.zeros((B, 2, p_size), complex)
    for x_t in x:
        rows = []
        for sample, u in enumerate(x_t):
            driven = b @ u
            for k in range(p_size):
                y, z = states[sample, :, k]
                if scheme == "IM":  # z' + dt A y' = z + dt B u,  y' - dt z' = y
                    left = np.array([[dt[k] * stiffness[k], 1], [1, -dt[k]]])
                    states[sample, :, k] = np.linalg.solve(left, [z + dt[k] * driven[k], y])
                else:
                    z = z + dt[k] * (-stiffness[k] * y + driven[k])
                    states[sample, :, k] = y + dt[k] * z, z
            rows.append(p["output_weight"] @ ((c @ states[sample, 0]).real + feed @ u) + p["output_bias"])
        expected.append(rows)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scheme", ["IM", "IMEX"])
def test_oscillator_matrix_has_the_stated_eigenvalues(scheme):
    """IMEX's blocks have determinant 1; IM's have both eigenvalues inside the circle; also after training."""
    model = make("linoss", state_size=9, discretization=scheme)
    for rate in (0.0, 10.0):
        steps(model, 20 if rate else 0, rate)
        matrix = model.recurrent_matrices()["W"].detach().double()
        blocks = matrix.reshape(2, 9, 2, 9).diagonal(dim1=1, dim2=3).permute(2, 0, 1)
        if scheme == "IMEX":
            torch.testing.assert_close(torch.linalg.det(blocks), torch.ones(9, dtype=torch.float64), rtol=0, atol=1e-6)
        else:
            pulled = model.stiffness.detach() > 1e-3
            assert (torch.linalg.eigvals(blocks[pulled]).abs() < 1).all()
            assert pulled.any()
        assert matrix.count_nonzero() == blocks.count_nonzero()


def test_linoss_starts_as_its_paper():
    model = make("linoss", inputs=16, hidden_size=16, state_size=400)
    for parameter in (model.stiffness, model.step):
        assert parameter.min() >= 0
        assert 0.95 < parameter.max() < 1
    assert 0.24 < model.input_weight.abs().max() <= 0.25
    assert 0.048 < model.state_weight.abs().max() <= 0.05
    assert model.feedthrough.shape == (16,)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("min_gru", {}),
        ("min_lstm", {}),
        ("min_lstm", {"candidate": "identity"}),
        ("linoss", {"state_size": 3}),
        ("linoss", {"state_size": 3, "discretization": "IMEX"}),
    ],
)
def test_gradients_match_finite_differences(name, settings):
    assert_gradients(make(name, **settings))


def test_parameter_counts_match_the_formulas():
    assert make("min_gru").parameter_count() == 2 * 7 * (M + 1) + (7 * P + P)
    assert make("min_lstm").parameter_count() == 3 * 7 * (M + 1) + (7 * P + P)
    assert make("linoss", state_size=3).parameter_count() == 2 * 3 + 6 * M + 7 * 6 + 7 * M + (7 * P + P)
