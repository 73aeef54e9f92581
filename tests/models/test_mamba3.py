"""Mamba-3 against a literal transcription of its complex form, and against Mamba-2's form as attention."""

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
    random_model,
)
from torch import Tensor
from torch.nn.functional import silu, softplus

from orthobench.model.base import Readout

FORMS: list[dict[str, Any]] = [
    {"heads": 2, "state_size": 5, "rotation": 1.0},
    {"heads": 3, "state_size": 4, "expansion": 1},
    {"heads": 1, "state_size": 6, "trapezoid": False},
    {"heads": 2, "state_size": 3, "rotation": 0.0},
]


def root_mean_square(vector: Tensor) -> Tensor:
    return vector / torch.sqrt((vector**2).mean() + 1e-5)


def transcribed(model: Any, inputs: Tensor) -> Tensor:
    """The outputs of every step, one row and head at a time: the state turns, and B and C do not."""
    settings = model.settings
    heads, size, width = settings.heads, settings.state_size, settings.width // settings.heads
    rows = []
    for row in range(inputs.shape[1]):
        memories = [torch.zeros(size, width).double()] * heads
        before = [torch.zeros(size, width).double()] * heads
        outputs = []
        for u in inputs[:, row]:
            b, c, w, p, q, r = (model.selection_weight @ u).split(model.selected_sizes())
            x, parts = model.input_weight @ u, []
            memories, before = list(memories), list(before)
            for head in range(heads):
                delta = softplus(w[head] + model.step_bias[head])
                a = torch.exp(-delta * torch.clamp(softplus(p[head]), min=1e-4))
                share = torch.sigmoid(q[head]) if settings.trapezoid else torch.tensor(1.0).double()
                turn = torch.eye(size).double()
                for pair in range(settings.angles):
                    theta = math.pi * torch.tanh(r[pair]) * delta
                    own = slice(2 * pair, 2 * pair + 2)
                    turn[own, own] = torch.stack((theta.cos(), theta.sin(), -theta.sin(), theta.cos())).view(2, 2)
                key = root_mean_square(b) * model.write_norm + model.write_bias[head]
                query = root_mean_square(c) * model.read_norm + model.read_bias[head]
                value = x[head * width : (head + 1) * width]
                written = torch.outer(key, value)
                memories[head] = a * (turn @ (memories[head] + (1 - share) * delta * before[head]))
                memories[head] = memories[head] + share * delta * written
                before[head] = written
                parts.append(memories[head].T @ query + model.feedthrough[head] * value)
            o = model.mixing_weight @ (torch.cat(parts) * silu(model.gate_weight @ u))
            outputs.append(model.output_weight @ o + model.output_bias)
        rows.append(torch.stack(outputs))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize(("readout", "steps"), [("all", 6), ("last", 6), ("last", 1)])
def test_matches_a_literal_transcription(settings: dict[str, Any], readout: Readout, steps: int) -> None:
    """In value and in every gradient."""
    model = random_model("mamba3", 12, readout, **settings)
    inputs = torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = transcribed(model, inputs) if readout == "all" else transcribed(model, inputs)[-1]
    assert_matches(model, inputs, expected)


def test_without_rotation_and_trapezoid_it_is_mamba_2() -> None:
    """y = (L o (C B^T)) Delta x of each head, where L holds the products of the decays between two steps."""
    model = random_model("mamba3", 12, "all", heads=2, state_size=4, rotation=0.0, trapezoid=False)
    settings, steps = model.settings, 7
    inputs = torch.randn(steps, 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    b, c, w, p, _, _ = (inputs[:, 0] @ model.selection_weight.T).split(model.selected_sizes(), dim=-1)
    delta = softplus(w + model.step_bias)
    logs = (-delta * softplus(p).clamp(min=1e-4)).cumsum(0)
    parts = []
    for head, x in enumerate((inputs[:, 0] @ model.input_weight.T).chunk(settings.heads, dim=-1)):
        keys, queries = (
            torch.stack([root_mean_square(each) for each in rows]) * norm + bias[head]
            for rows, norm, bias in (
                (b, model.write_norm, model.write_bias),
                (c, model.read_norm, model.read_bias),
            )
        )
        between = torch.exp(logs[:, head, None] - logs[None, :, head]).tril()
        parts.append((between * (queries @ keys.T)) @ (delta[:, head, None] * x) + model.feedthrough[head] * x)
    o = (torch.cat(parts, dim=-1) * silu(inputs[:, 0] @ model.gate_weight.T)) @ model.mixing_weight.T
    expected = o @ model.output_weight.T + model.output_bias
    torch.testing.assert_close(model(inputs)[0][:, 0], expected, rtol=1e-9, atol=1e-12)


def test_rotation_follows_parity() -> None:
    """With weights set by hand: a first symbol is written, and each 1 turns it by half a circle."""
    settings: dict[str, Any] = {"heads": 1, "expansion": 1, "state_size": 4, "rotation": 0.5, "trapezoid": False}
    model = make("mamba3", inputs=3, outputs=1, hidden_size=1, **settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.input_weight[0, 0] = 1.0  # symbol 0 starts a string
        model.step_bias.fill_(math.log(math.e - 1))  # Delta is 1
        model.selection_weight[9, :] = -20.0  # p: the memory hardly decays
        model.selection_weight[-1, 2] = 20.0  # r: symbol 2, the bit 1, turns by pi
        for bias in (model.write_bias, model.read_bias):
            bias[0, :2] = 1.0
        for weight in (model.gate_weight, model.mixing_weight, model.output_weight):
            weight.fill_(1.0)
    bits = torch.randint(2, (300, 8), generator=torch.Generator().manual_seed(0))
    symbols = torch.cat((torch.zeros(1, 8, dtype=torch.int64), bits + 1))
    outputs, _ = model(torch.nn.functional.one_hot(symbols, 3).double())
    expected = 1 - 2 * (bits.cumsum(0) % 2)
    assert torch.equal(outputs[1:, :, 0].sign().long(), expected)
    assert float(outputs[1:].detach().abs().min()) > 1


@pytest.mark.parametrize("settings", FORMS)
def test_kernels_match_the_reference(settings: dict[str, Any]) -> None:
    for readout in ("all", "last"):
        model = make("mamba3", inputs=3, hidden_size=12, readout=readout, **settings)
        assert_kernels_are_the_definition(model, steps=20)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("cut", [1, 5])
def test_two_parts_equal_the_whole_sequence(settings: dict[str, Any], cut: int) -> None:
    """The angles and what the next step writes of the last input are in the state."""
    model = random_model("mamba3", 12, "all", **settings)
    assert_two_parts_equal_the_whole(model, cut)


def test_starts_match_the_program() -> None:
    model = make("mamba3", inputs=9, hidden_size=2000, heads=1000)
    steps = softplus(model.step_bias.detach().double()).log().sort().values
    torch.testing.assert_close(
        steps,
        math.log(1e-3) + math.log(100) * (torch.arange(1000) + 0.5).double() / 1000,
        rtol=0,
        atol=0.06 * math.log(100),
    )
    for ones in (model.write_bias, model.read_bias, model.write_norm, model.read_norm, model.feedthrough):
        assert torch.equal(ones, torch.ones_like(ones))
    assert 0.9 < float(model.selection_weight.detach().abs().max()) * 3 <= 1
    assert (model.settings.angles, make("mamba3", state_size=128, rotation=1.0).settings.angles) == (4, 64)
