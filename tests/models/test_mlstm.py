"""mLSTM against its recurrent equations, its trace, and its starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.models import M, P, assert_gradients, expected_outputs, make, run, sigmoid

from orthobench.errors import UsageError
from orthobench.recurrence import GradientTrace

FORGET = {"sigmoid": sigmoid, "exponential": np.exp}
B = 2


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("forget_gate", FORGET)
@pytest.mark.parametrize("heads", [1, 3])
def test_matches_the_equations_without_a_stabiliser(heads, forget_gate, readout):
    """The paper's recurrent form: exponentials as they stand, each head alone."""
    n, d = 6, 6 // heads
    x, outputs, p = run(make("mlstm", readout, hidden_size=n, heads=heads, forget_gate=forget_gate))

    def step(x_t, state):
        maps = (p["input_weight"] @ x_t + p["input_bias"]).reshape(4, heads, d)
        gates = (p["gate_weight"] @ x_t + p["gate_bias"]).reshape(2, heads)
        h, memories, totals = [], [], []
        for j in range(heads):
            q, k, v, o = maps[:, j]
            k = k / math.sqrt(d)
            before, total = (np.zeros((d, d)), np.zeros(d)) if state is None else (state[1][j], state[2][j])
            f, i = FORGET[forget_gate](gates[1, j]), np.exp(gates[0, j])
            memories.append(f * before + i * np.outer(v, k))
            totals.append(f * total + i * k)
            h.append(sigmoid(o) * (memories[j] @ q) / max(abs(totals[j] @ q), 1))
        return np.concatenate(h), memories, totals

    expected = expected_outputs(x, step, n, p)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("readout", ["all", "last"])
def test_gradients_match_finite_differences(readout):
    assert_gradients(make("mlstm", readout, hidden_size=4, heads=2))


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("heads", [1, 4])
def test_kernels_match_the_reference(heads, readout):
    """Outputs, final states and gradients in float32 are those of float64 to the rounding."""
    model = make("mlstm", readout, hidden_size=20, heads=heads)
    x = torch.randn(70, 4, M, generator=torch.Generator().manual_seed(1))
    results = []
    for dtype in (torch.float32, torch.float64):
        model.to(dtype)
        outputs, (final,) = model(x.to(dtype))
        loss = outputs.square().sum() + final.square().sum()
        results.append([outputs.detach(), final.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    for actual, expected in zip(*results, strict=True):
        assert float((actual.double() - expected).norm()) <= 2e-5 * float(expected.norm())


def test_last_output_equals_the_output_of_all_steps():
    """In value, in every gradient, in the trace, and from a state that was carried on."""
    generator = torch.Generator().manual_seed(9)
    x, way = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((40, B, M), (B, P)))
    results = []
    for readout in ("all", "last"):
        model, trace = make("mlstm", readout, hidden_size=6, heads=2).double(), GradientTrace()
        _, state = model(x[:3])
        outputs, (final,) = model(x[3:], state, trace)
        last = outputs[-1] if readout == "all" else outputs
        (way * last).sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append([last.detach(), final.detach(), trace.norms["h"], *gradients])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def test_trace_is_the_derivative_by_a_shifted_state():
    model = make("mlstm", hidden_size=6, heads=2).double()
    generator = torch.Generator().manual_seed(6)
    x, way = (torch.randn(7, B, size, generator=generator, dtype=torch.float64) for size in (M, P))
    trace = GradientTrace()
    outputs, _ = model(x, trace=trace)
    torch.testing.assert_close(outputs, model(x)[0])
    (way * outputs).sum().backward()
    steps = []
    state = model.initial_state(B)
    for t in range(7):
        _, state = model(x[t : t + 1], state)
        moved = state[0].detach().requires_grad_()
        later = (way[t + 1 :] * model(x[t + 1 :], (moved,))[0]).sum() if t < 6 else 0
        # the output of this step from its state: o and q are of the input alone
        maps = (x[t] @ model.input_weight.T + model.input_bias).unflatten(-1, (4, 2, 3))
        memory, m = moved[:, :-2].view(B, 2, 4, 3), moved[:, -2:]
        read = (memory @ maps[:, 0, :, :, None]).squeeze(-1)
        own = maps[:, 3].sigmoid() * read[..., :3] / torch.maximum(read[..., 3].abs(), (-m).exp())[..., None]
        loss = (way[t] * (own.flatten(1) @ model.output_weight.T + model.output_bias)).sum() + later
        steps.append(torch.autograd.grad(loss, moved)[0].norm(dim=-1))
    torch.testing.assert_close(trace.norms["h"], torch.stack(steps))


def test_starts_as_its_program():
    model = make("mlstm", inputs=40, hidden_size=256, heads=4)
    assert not model.input_bias.any()
    assert not model.gate_weight.any()
    assert 0.098 < model.input_weight.std() < 0.102  # sqrt(2 / 200)
    np.testing.assert_allclose(model.gate_bias[4:].detach(), [3, 4, 5, 6], rtol=1e-6)
    assert 0 < model.gate_bias[:4].abs().max() < 0.4


def test_sizes_of_state_and_parameters_match_the_formulas():
    model = make("mlstm", hidden_size=8)
    assert model.initial_state(3)[0].shape == (3, 4 * (2 * 3 + 1))
    assert model.parameter_count() == (4 * 8 + 2 * 4) * (M + 1) + (8 * P + P)
    with pytest.raises(UsageError, match=r"heads=3 should divide hidden_size \(8\)"):
        make("mlstm", hidden_size=8, heads=3)
