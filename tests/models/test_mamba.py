"""Mamba against a literal transcription in float64, as a layer, and what its eigenvalues can track."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.models import assert_gradients, assert_kernels_are_the_definition, make, short_convolved, silu

from orthobench.model.base import Readout
from orthobench.recurrence import GradientTrace, use_backend

FORMS: list[dict[str, Any]] = [
    {},
    {"negative_eigenvalues": True, "expansion": 1, "state_size": 3, "step_rank": 4},
    {"convolution": None, "output_gate": False},
    {"convolution": 2, "state_size": 1},
]


def transcribed(model: Any, inputs: np.ndarray) -> np.ndarray:
    """The outputs of every step, one step, row, feature and unit at a time."""
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}
    size = model.settings.state_size
    width, rank = p["step_weight"].shape
    steps, batch, _ = inputs.shape
    outputs = np.zeros((steps, batch, model.signature.output_size))
    for row in range(batch):
        h = np.zeros((width, size))
        projected = [np.zeros(width) for _ in range(7)]
        for t in range(steps):
            u = inputs[t, row]
            projected.append(p["input_weight"] @ u)
            x = short_convolved(projected, p)
            r, b, c = np.split(p["selection_weight"] @ x, [rank, rank + size])
            delta = np.log1p(np.exp(p["step_weight"] @ r + p["step_bias"]))
            y = np.zeros(width)
            for d in range(width):
                for k in range(size):
                    factor = np.exp(-delta[d] * np.exp(p["rates"][k, d]))
                    if model.settings.negative_eigenvalues:
                        factor = 2 * factor - 1
                    h[d, k] = factor * h[d, k] + delta[d] * b[k] * x[d]
                    y[d] += c[k] * h[d, k]
            y = y + p["feedthrough"] * x
            if "gate_weight" in p:
                y = y * silu(p["gate_weight"] @ u)
            outputs[t, row] = p["output_weight"] @ (p["mixing_weight"] @ y) + p["output_bias"]
    return outputs


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("steps", [2, 9])
@pytest.mark.parametrize("settings", FORMS)
def test_matches_a_literal_transcription(settings: dict[str, Any], steps: int, readout: Readout) -> None:
    model = make("mamba", inputs=3, hidden_size=6, readout=readout, **settings).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    inputs = torch.randn(steps, 2, 3, generator=generator, dtype=torch.float64)
    outputs, _ = model(inputs)
    expected = transcribed(model, inputs.numpy())
    np.testing.assert_allclose(
        outputs.detach().numpy(), expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("settings", FORMS[:2])
def test_gradients_match_finite_differences(settings: dict[str, Any], readout: Readout) -> None:
    assert_gradients(make("mamba", hidden_size=3, readout=readout, **{"state_size": 2, **settings}))


def test_starts_as_its_program() -> None:
    """A is -1 ... -N, D is 1, and the steps without an input lie between 0.001 and 0.1, evenly in their logarithm."""
    model = make("mamba", hidden_size=500)
    torch.testing.assert_close(-model.rates.exp()[:, 7], -torch.arange(1.0, 17))
    assert bool((model.feedthrough == 1).all())
    logarithm = torch.nn.functional.softplus(model.step_bias.detach()).log10()
    torch.testing.assert_close(
        logarithm.quantile(torch.tensor([0, 0.5, 1])), torch.tensor([-3.0, -2, -1]), rtol=0, atol=0.1
    )
    assert model.step_weight.shape == (1000, 32)


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("settings", FORMS)
def test_kernels_match_the_reference(settings: dict[str, Any], readout: Readout) -> None:
    """Over more steps than the reference keeps, and more than a chunk of the kernels."""
    assert_kernels_are_the_definition(make("mamba", inputs=3, hidden_size=12, readout=readout, **settings), steps=70)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("cut", [1, 2, 3, 8])
def test_two_parts_equal_the_whole_sequence(settings: dict[str, Any], cut: int) -> None:
    """The convolution's last inputs are in the state, also after parts that are shorter than it."""
    inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for readout in ("all", "last"):
        model = make("mamba", inputs=3, hidden_size=12, readout=readout, **settings).double()
        whole, (final,) = model(inputs)
        first, state = model(inputs[:cut])
        second, (end,) = model(inputs[cut:], state)
        torch.testing.assert_close(torch.cat((first, second)) if readout == "all" else second, whole)
        torch.testing.assert_close(end, final)


def parity(negative: bool) -> Any:
    """A model of hand-set weights that reads one-hot zeros, ones and starts; its output is its one unit.

    A start writes into the unit. A zero makes its step 0, which keeps the unit. A one makes its step 100, whose factor
    is 2 exp(-100) - 1 or exp(-100).
    """
    model = make(
        "mamba", inputs=3, outputs=1, hidden_size=3, expansion=1, state_size=1, step_rank=1, convolution=None,
        output_gate=False, negative_eigenvalues=negative,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.input_weight.copy_(20 * torch.eye(3))  # x is 20 times the one-hot vector
        model.selection_weight.copy_(torch.tensor([[-5.0, 5, 0], [0, 0, 0.05], [0.05, 0.05, 0.05]]))  # r, B, C
        model.step_weight.fill_(1)
        model.mixing_weight[0, 2] = model.output_weight[0, 0] = 1
    return model


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_parity_needs_negative_eigenvalues(backend: str) -> None:
    bits = torch.randint(2, (500, 6), generator=torch.Generator().manual_seed(3))
    symbols = torch.cat((torch.full((1, 6), 2), bits))
    odd = torch.cat((torch.zeros(1, 6, dtype=torch.int64), bits)).cumsum(0) % 2 == 1
    with use_backend(backend):
        signed, unsigned = (parity(negative)(symbols)[0].detach() for negative in (True, False))
    assert torch.equal(signed[..., 0] < 0, odd)
    assert float(signed.abs().min()) == float(signed.abs().max()) > 10
    assert bool((unsigned >= 0).all())
    erased = bits.cumsum(0) > 0
    assert float(unsigned[1:, :, 0][erased].abs().max()) < 1e-30  # a one has erased what the start wrote


def test_factors_between_0_and_1_keep_every_sign() -> None:
    """Of any weights, after the inputs stop; with negative eigenvalues some signs change."""
    for negative in (False, True):
        changes = 0
        for seed in range(5):
            model = make("mamba", inputs=3, hidden_size=6, seed=seed, convolution=None, negative_eigenvalues=negative)
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                model.step_bias.copy_(torch.randn(12, generator=generator))
                model.selection_weight[model.settings.rank : -16] = 0  # B: nothing is written
            units = model.settings.units
            start = torch.randn(4, units, generator=generator)
            _, (final,) = model(torch.randn(3, 4, 3, generator=generator), (start,))
            changes += int((final[:, :units].sign() * start.sign() < 0).sum())
        assert (changes > 0) == negative


def test_trace_covers_the_units() -> None:
    model = make("mamba", inputs=3, hidden_size=8)
    trace = GradientTrace()
    outputs, _ = model(torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(5)), trace=trace)
    outputs[-1].sum().backward()
    assert trace.norms["h"].shape == (6, 2)
    assert bool((trace.norms["h"] > 0).all())
    assert bool((trace.norms["h"][1:] >= trace.norms["h"][:-1] * (1 - 1e-5)).all())  # each step contracts
