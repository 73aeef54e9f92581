"""AUSSM against literal transcriptions of its recurrence and of the program's sums, and as a counter."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.models import (
    assert_kernels_are_the_definition,
    assert_matches,
    assert_two_parts_equal_the_whole,
    make,
    noise,
    random_model,
)
from torch import Tensor
from torch.nn.functional import silu, softplus

from orthobench.model.base import Readout

FORMS: list[dict[str, Any]] = [
    {"state_size": 3},
    {"state_size": 2, "convolution": 2, "step_rank": 5},
    {"state_size": 1, "convolution": None},
]


def convolved_inputs(model: Any, inputs: Tensor) -> Tensor:
    """x of one row `[T, n]`, one step at a time."""
    taps, x = model.convolution_weight, []
    projected = [torch.zeros(model.hidden_size).double()] * 8
    for u in inputs:
        projected.append(model.input_weight @ u)
        if taps is None:
            x.append(projected[-1])
        else:
            terms = [w * past for w, past in zip(taps, projected[-len(taps) :], strict=True)]
            x.append(torch.stack(terms).sum(0) + model.convolution_bias)
    return torch.stack(x)


def selected(model: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """theta `[n, N]` and Delta `[n]` of a step, and B and C `[N]`."""
    theta = (model.angle_weight @ x / math.sqrt(model.hidden_size) + model.angle_bias).view(model.hidden_size, -1)
    delta = softplus(model.step_weight @ (model.selection_weight @ x) + model.step_bias + model.step_bias)
    b, c = (torch.polar(softplus(size), angle) for size, angle in (model.write_map, model.read_map))
    return theta, delta, b, c


def outputs_of(model: Any, y: Tensor, u: Tensor) -> Tensor:
    o = model.mixing_weight @ (y * silu(model.gate_weight @ u))
    return model.output_weight @ o + model.output_bias


def transcribed(model: Any, inputs: Tensor) -> Tensor:
    """The outputs of every step in complex numbers, one row of the batch and one feature at a time."""
    rows = []
    for row in range(inputs.shape[1]):
        h = [torch.zeros(model.settings.state_size, dtype=torch.complex128)] * model.hidden_size
        outputs = []
        for x, u in zip(convolved_inputs(model, inputs[:, row]), inputs[:, row], strict=True):
            theta, delta, b, c = selected(model, x)
            s, y = silu(x), []
            for feature in range(model.hidden_size):
                turned = torch.exp(1j * theta[feature]) * h[feature]
                h = [*h[:feature], turned + delta[feature] * s[feature] * b, *h[feature + 1 :]]
                y.append((h[feature] * c).sum().real + model.feedthrough[feature] * s[feature])
            outputs.append(outputs_of(model, torch.stack(y), u))
        rows.append(torch.stack(outputs))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize(("readout", "steps"), [("all", 6), ("last", 6), ("last", 1)])
def test_matches_a_literal_transcription(settings: dict[str, Any], readout: Readout, steps: int) -> None:
    """In value and in every gradient."""
    model = random_model("aussm", 5, readout, **settings)
    expected = transcribed(model, noise(steps))
    assert_matches(model, noise(steps), expected if readout == "all" else expected[-1])


def test_matches_the_sums_of_the_program() -> None:
    """sum_j |C_j| (cos(c_j + G) re - sin(c_j + G) im), where G, re and im are sums over the steps so far."""
    model, inputs, rows = random_model("aussm", 5, "all", state_size=3), noise(7), []
    for row in range(inputs.shape[1]):
        x = convolved_inputs(model, inputs[:, row])
        theta, delta, _, _ = (torch.stack(parts) for parts in zip(*(selected(model, each) for each in x), strict=True))
        (b_size, b), (c_size, c) = model.write_map, model.read_map
        total = theta.cumsum(0) % (2 * math.pi)
        written = softplus(b_size) * (delta * silu(x))[..., None]
        real, imaginary = ((part * written).cumsum(0) for part in ((b - total).cos(), (b - total).sin()))
        y = (softplus(c_size) * ((c + total).cos() * real - (c + total).sin() * imaginary)).sum(-1)
        y = y + model.feedthrough * silu(x)
        rows.append(torch.stack([outputs_of(model, *step) for step in zip(y, inputs[:, row], strict=True)]))
    assert_matches(model, inputs, torch.stack(rows, dim=1))


@pytest.mark.parametrize("modulus", [2, 3, 5])
def test_counts_modulo_any_number(modulus: int) -> None:
    """With weights set by hand: the first symbol is written, and each later 1 turns it by a part of the circle."""
    model = make("aussm", inputs=3, outputs=1, hidden_size=1, state_size=1, convolution=None).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # x is 50 for the first symbol, 0 for the bit 0 and -50, of which SiLU leaves nothing, for the bit 1.
        model.input_weight.copy_(torch.tensor([[50.0, 0.0, -50.0]]))
        model.angle_weight.fill_(-2 * math.pi / modulus / 50)
        for weight in (model.gate_weight, model.mixing_weight, model.output_weight):
            weight.fill_(1.0)
    bits = torch.randint(2, (300, 8), generator=torch.Generator().manual_seed(0))
    symbols = torch.cat((torch.zeros(1, 8, dtype=torch.int64), bits + 1))
    outputs, _ = model(torch.nn.functional.one_hot(symbols, 3).double())
    # |B| = |C| = Delta = log 2 and s = 50 at the start; the gate is SiLU(1).
    size = 50 * math.log(2) ** 3 / (1 + math.exp(-1))
    expected = size * (2 * math.pi / modulus * bits.cumsum(0).double()).cos()
    torch.testing.assert_close(outputs[1:, :, 0].detach(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", FORMS)
def test_kernels_match_the_reference(settings: dict[str, Any]) -> None:
    for readout in ("all", "last"):
        assert_kernels_are_the_definition(make("aussm", inputs=3, hidden_size=5, readout=readout, **settings), steps=20)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("cut", [1, 5])
def test_two_parts_equal_the_whole_sequence(settings: dict[str, Any], cut: int) -> None:
    assert_two_parts_equal_the_whole(random_model("aussm", 5, "all", **settings), cut)


def test_starts_match_the_program() -> None:
    model = make("aussm", inputs=9, hidden_size=64, state_size=500)
    for numbers in (model.write_map, model.read_map):
        assert float(numbers.detach().square().mean()) == pytest.approx(1 / 2, rel=0.2)
    assert torch.equal(model.feedthrough, torch.ones(64))
    bounds = {
        "angle_bias": math.pi,
        "angle_weight": 1 / 8,
        "selection_weight": 1 / 8,
        "step_weight": 1 / math.sqrt(500),
        "step_bias": 1 / math.sqrt(500),
        "convolution_weight": 1 / 2,
        "convolution_bias": 1 / 2,
        "input_weight": 1 / 3,
        "gate_weight": 1 / 3,
        "mixing_weight": 1 / 8,
    }
    for name, bound in bounds.items():
        assert 0.9 < float(getattr(model, name).detach().abs().max()) / bound <= 1 + 1e-6, name
