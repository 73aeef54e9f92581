"""The stack LSTM against a literal transcription of its equations, a real stack, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.models import B, M, P, assert_gradients, expected_outputs, make, run, sigmoid

SIZES = {"stack_depth": 4, "stack_width": 3}


def step_of(p, depth: int, width: int):
    """One step of the equations, vector by vector; the stack has its top at index 0."""

    def step(x, state):
        n = p["recurrent_weight"].shape[1]
        h, c, stack = (np.zeros(n), np.zeros(n), [np.zeros(width)] * depth) if state is None else state
        read = h + p["top_weight"] @ stack[0] + p["top_bias"]
        z = p["input_weight"] @ x + p["bias"] + p["recurrent_weight"] @ read + p["recurrent_bias"]
        i, f, g, o = z[:n], z[n : 2 * n], z[2 * n : 3 * n], z[3 * n :]
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        weights = np.exp(p["action_weight"] @ h + p["action_bias"])
        push, pop = weights / weights.sum()
        value = sigmoid(p["value_weight"] @ h + p["value_bias"])
        moved = []
        for k in range(depth):
            above = value if k == 0 else stack[k - 1]
            below = stack[k + 1] if k + 1 < depth else np.zeros(width)
            moved.append(push * above + pop * below)
        return h, c, moved

    return step


@pytest.mark.parametrize(("depth", "width"), [(4, 3), (2, 1), (1, 2), (9, 5)])
@pytest.mark.parametrize("readout", ["all", "last"])
def test_matches_a_literal_transcription(depth, width, readout):
    x, outputs, p = run(make("stack_lstm", readout, stack_depth=depth, stack_width=width))
    expected = expected_outputs(x, step_of(p, depth, width), 7, p)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


def test_without_reading_the_stack_it_is_torchs_lstm():
    model = make("stack_lstm", **SIZES).double()
    reference = torch.nn.LSTM(M, 7).double()
    with torch.no_grad():
        model.top_weight.zero_()
        model.top_bias.zero_()
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            ours = {"weight_ih": "input_weight", "weight_hh": "recurrent_weight", "bias_ih": "bias"}
            getattr(reference, name).copy_(getattr(model, ours.get(name[:-3], "recurrent_bias")))
        x = torch.randn(11, B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        outputs, _ = model.states(x, model.initial_state(B), None)
        torch.testing.assert_close(outputs, reference(x)[0])


def test_saturated_actions_are_those_of_a_stack():
    """With actions of 0 and 1, the state holds what a list does that is pushed to and popped from."""
    model = make("stack_lstm", hidden_size=6, inputs=2, **SIZES).double()
    with torch.no_grad():
        # The first input decides: h is large and positive where it is 1, and negative where it is -1.
        for parameter in model.parameters():
            parameter.zero_()
        model.bias[:6], model.bias[6:12], model.bias[18:] = 100, -100, 100
        model.input_weight[12:18, 0] = 100
        model.action_weight[0], model.action_weight[1] = 100, -100
        generator = torch.Generator().manual_seed(2)
        model.value_bias.copy_(torch.randn(3, generator=generator))
    stack: list[float] = []
    state = model.initial_state(1)
    for action in [1, 1, -1, 1, 1, -1, -1, 1, -1, -1, -1]:
        _, state = model.states(torch.tensor([[[action, 0.0]]], dtype=torch.float64), state, None)
        stack = [1.0, *stack][:4] if action == 1 else stack[1:]
        expected = torch.zeros(4, 3, dtype=torch.float64)
        expected[: len(stack)] = model.value_bias.sigmoid()
        torch.testing.assert_close(state[0][:, 12:].view(4, 3), expected)


def test_gradients_match_finite_differences():
    assert_gradients(make("stack_lstm", "last", hidden_size=4, **SIZES))


def test_sizes_of_state_and_parameters():
    model = make("stack_lstm", hidden_size=7, **SIZES)
    assert [part.shape for part in model.initial_state(2)] == [(2, 7 + 7 + 12)]
    n = 7
    counts = 4 * n * (M + n + 2), n * 3 + n, 2 * n + 2, 3 * n + 3, n * P + P
    assert model.parameter_count() == sum(counts)
