"""M2RNN against a literal transcription, as a chain of gated recurrences, and as a memory."""

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
from orthobench.recurrence import GradientTrace, nonlinear_memory

FORMS: list[dict[str, Any]] = [
    {"heads": 2},
    {"heads": 3, "key_size": 5, "convolution": 2},
    {"heads": 1, "key_size": 1, "convolution": None},
]


def transcribed(model: Any, inputs: Tensor) -> Tensor:
    """The outputs of every step, one row of the batch, head and row of its memory at a time."""
    heads, keys, values = model.settings.heads, model.settings.keys, model.settings.head_size
    taps, rows = model.convolution_weight, []
    for row in range(inputs.shape[1]):
        memories = [[torch.zeros(values).double()] * keys for _ in range(heads)]
        projected = [torch.zeros(model.settings.channels).double()] * 8
        outputs = []
        for u in inputs[:, row]:
            projected.append(model.input_weight @ u)
            x = projected[-1]
            if taps is not None:
                x = torch.stack([w * past for w, past in zip(taps, projected[-len(taps) :], strict=True)]).sum(0)
            q, k, v = silu(x).split((keys, keys, heads * values))
            parts, following = [], []
            for head in range(heads):
                own = slice(head * values, (head + 1) * values)
                step = softplus(model.forget_weight[head] @ u + model.forget_bias[head])
                f = torch.exp(-torch.exp(model.forget_rate[head]) * step)
                memory = [
                    f * before + (1 - f) * torch.tanh(model.transition[head].T @ before + k[line] * v[own])
                    for line, before in enumerate(memories[head])
                ]
                read = torch.stack([q[line] * h for line, h in enumerate(memory)]).sum(0)
                parts.append(read + model.feedthrough[own] * v[own])
                following.append(memory)
            memories = following
            y = torch.cat(parts) * silu(model.gate_weight @ u)
            y = y / torch.sqrt((y**2).mean() + 1e-5) * model.norm_weight
            outputs.append(model.output_weight @ (model.mixing_weight @ y) + model.output_bias)
        rows.append(torch.stack(outputs))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize(("readout", "steps"), [("all", 6), ("last", 70), ("last", 1)])
def test_matches_a_literal_transcription(settings: dict[str, Any], readout: Readout, steps: int) -> None:
    """In value and in every gradient; 70 steps are computed in pieces."""
    model = random_model("m2rnn", 6, readout, **settings)
    expected = transcribed(model, noise(steps))
    assert_matches(model, noise(steps), expected if readout == "all" else expected[-1])


def test_one_row_is_a_light_gated_unit() -> None:
    """With a key that is always 1, h = f h + (1 - f) tanh(W^T h + v) in each head, in value and in all gradients."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    values, f, start = normal(5, 2, 6), normal(5, 2, 2).sigmoid(), normal(2, 6)
    transition, way = normal(2, 3, 3).requires_grad_(), normal(5, 2, 6)
    trace = GradientTrace()
    ones = torch.ones(5, 2, 4, dtype=torch.float64)
    y, (final,) = nonlinear_memory(values, torch.cat((f, ones), -1), (start,), trace, transition, heads=2, key_size=1)
    h, states = start, []
    for v, forget in zip(values, f, strict=True):
        mixed = torch.cat([part @ w for part, w in zip(h.chunk(2, -1), transition, strict=True)], dim=-1)
        share = forget.repeat_interleave(3, dim=-1)
        h = share * h + (1 - share) * torch.tanh(mixed + v)
        h.retain_grad()
        states.append(h)
    torch.testing.assert_close(y, torch.stack(states))
    torch.testing.assert_close(final, h)
    (actual,) = torch.autograd.grad((y * way).sum(), [transition])
    (torch.stack(states) * way).sum().backward()
    torch.testing.assert_close(actual, transition.grad)
    expected = torch.stack([state.grad.norm(dim=-1) for state in states if state.grad is not None])
    torch.testing.assert_close(trace.norms["h"], expected)


def test_wrong_transition_is_one_line() -> None:
    message = r"nonlinear_memory: transition \[2, 3, 2\] should be \[2, 3, 3\]"
    with pytest.raises(ValueError, match=message):
        nonlinear_memory(torch.ones(1, 1, 6), torch.ones(1, 1, 6), (torch.ones(1, 6),), None, torch.ones(2, 3, 2), 2, 1)


@pytest.mark.parametrize("settings", FORMS)
def test_passes_match_the_reference(settings: dict[str, Any]) -> None:
    for readout in ("all", "last"):
        assert_kernels_are_the_definition(make("m2rnn", inputs=3, hidden_size=6, readout=readout, **settings), steps=20)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("cut", [1, 5])
def test_two_parts_equal_the_whole_sequence(settings: dict[str, Any], cut: int) -> None:
    assert_two_parts_equal_the_whole(random_model("m2rnn", 6, "all", **settings), cut)


def test_starts_match_the_program() -> None:
    model = make("m2rnn", inputs=9, hidden_size=2000, heads=1000)
    assert torch.equal(model.transition, torch.eye(2).repeat(1000, 1, 1))
    assert torch.equal(model.recurrent_matrices()["W"], torch.eye(2000))
    for ones in (model.feedthrough, model.norm_weight):
        assert torch.equal(ones, torch.ones(2000))
    quantiles = (torch.arange(1000) + 0.5).double() / 1000
    rates = model.forget_rate.detach().double().exp().sort().values
    torch.testing.assert_close(rates, 16 * quantiles, rtol=0, atol=0.06 * 16)
    steps = softplus(model.forget_bias.detach().double()).log().sort().values
    expected = math.log(1e-3) + math.log(100) * quantiles
    torch.testing.assert_close(steps, expected, rtol=0, atol=0.06 * math.log(100))
