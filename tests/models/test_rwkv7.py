"""RWKV-7 against a literal transcription, and against the delta rule that it generalises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.gradients import gradient
from support.models import assert_kernels_are_the_definition, assert_matches, make
from torch import Tensor

from orthobench.model.base import Readout
from orthobench.recurrence import delta_rule, rwkv7, use_backend

FORMS: list[dict[str, Any]] = [{"heads": 3, "rank": 2, "gate_rank": 5}, {"heads": 1, "rank": 20, "gate_rank": 3}]


def randomised(readout: Readout, **settings: Any) -> Any:
    """A model in float64 whose parameters are all random, so that no start at 0 or 1 hides an error."""
    model = make("rwkv7", inputs=3, hidden_size=12, readout=readout, **settings).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def transcribed(model: Any, inputs: Tensor) -> Tensor:
    """The outputs of every step, one row and head at a time, by the paper's equations."""
    heads, size, n = model.settings.heads, model.settings.head_size, model.hidden_size
    low, gate = model.settings.low, model.settings.low_gate
    w_r, w_k, w_v, g_1, d_1, a_1 = model.input_weight.split((n, n, n, gate, low, low))
    mu_r, mu_k, mu_v, mu_g, mu_d, mu_a = model.shift
    rows = []
    for row in range(inputs.shape[1]):
        memories, before, outputs = [torch.zeros(size, size).double()] * heads, torch.zeros(3).double(), []
        for x in inputs[:, row]:
            change = before - x
            r, k, v = w_r @ (x + mu_r * change), w_k @ (x + mu_k * change), w_v @ (x + mu_v * change)
            g = model.gate_weight @ torch.sigmoid(g_1 @ (x + mu_g * change))
            d = model.decay_weight @ torch.tanh(d_1 @ (x + mu_d * change)) + model.decay_bias
            a = torch.sigmoid(model.rate_weight @ (a_1 @ (x + mu_a * change)) + model.rate_bias)
            w = torch.exp(-math.exp(-0.5) * torch.sigmoid(d))
            erased, written = k * model.key_scale, k * (1 + (a - 1) * model.key_rate)
            parts, memories = [], list(memories)
            for head in range(heads):
                own = slice(head * size, (head + 1) * size)
                u = erased[own] / erased[own].norm().clamp(min=1e-12)
                transition = torch.diag(w[own]) - torch.outer(a[own] * u, u)
                memories[head] = transition @ memories[head] + torch.outer(written[own], v[own])
                y = memories[head].T @ r[own]
                y = (y - y.mean()) / torch.sqrt(((y - y.mean()) ** 2).mean() + 1e-5 * size)
                bonus = (r[own] * written[own] * model.bonus[own]).sum()
                parts.append(y * model.norm_weight[own] + model.norm_bias[own] + bonus * v[own])
            before = x
            h = model.mixing_weight @ (torch.cat(parts) * g)
            outputs.append(model.output_weight @ h + model.output_bias)
        rows.append(torch.stack(outputs))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize(
    ("readout", "steps", "scale"), [("all", 6, 1), ("last", 6, 1), ("last", 1, 1), ("all", 6, 1e-5)]
)
def test_matches_a_literal_transcription(settings: dict[str, Any], readout: Readout, steps: int, scale: float) -> None:
    """In value and in every gradient; keys of dark pixels are short."""
    model = randomised(readout, **settings)
    inputs = scale * torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = transcribed(model, inputs) if readout == "all" else transcribed(model, inputs)[-1]
    assert_matches(model, inputs, expected)


def delta_rule_and_rwkv7(dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """The delta rule with a beta for each head, and RWKV-7 without decay and with this beta as the rate of all keys."""
    heads, keys, values, steps, batch = 2, 5, 7, 20, 3
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(steps, batch, heads * (2 * keys + values), generator=generator, dtype=torch.float64)
    q, k, v = x.split((heads * keys, heads * keys, heads * values), dim=-1)
    k = k.unflatten(-1, (heads, keys))
    x = torch.cat((q, (k / k.norm(dim=-1, keepdim=True)).flatten(-2), v), dim=-1).to(dtype)
    logits = torch.randn(steps, batch, heads, generator=generator, dtype=torch.float64).to(dtype)
    memory = torch.randn(batch, heads * keys * values, generator=generator, dtype=torch.float64).to(dtype)
    zeros, ones = torch.zeros(heads * keys, dtype=dtype), torch.ones(heads * keys, dtype=dtype)
    for_each_key = torch.eye(heads, dtype=dtype).repeat_interleave(keys, dim=0)
    maps = zeros - 200, for_each_key, zeros  # exp(-0.607 s(-200)) is 1
    x, weight = torch.cat((x, logits, logits), dim=-1), 0 * for_each_key
    expected = delta_rule(x[..., : -2 * heads], logits.sigmoid(), (memory,), None, heads, keys)
    actual = rwkv7(x, weight, (memory,), None, *maps, ones, ones, heads, keys, epsilon=0.0)
    return [actual[0], *actual[1]], [expected[0], *expected[1]]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_one_rate_and_no_decay_is_the_delta_rule(dtype: torch.dtype, tolerance: float) -> None:
    """In the definition, and between the C kernels."""
    actual, expected = delta_rule_and_rwkv7(dtype)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("readout", ["all", "last"])
def test_kernels_match_the_reference(settings: dict[str, Any], readout: Readout) -> None:
    """If only the last step is read, the kernel computes keys and values from the inputs."""
    assert_kernels_are_the_definition(make("rwkv7", inputs=3, hidden_size=12, readout=readout, **settings), steps=20)


@pytest.mark.parametrize("length", [1e-4, 1e-11, 1e-13, 0])
def test_kernels_divide_short_keys_by_their_length(length: float) -> None:
    """As `torch.nn.functional.normalize`, which the authors' program calls: by 1e-12 if they are shorter."""
    heads, size, steps, low = 2, 5, 20, 3
    draw = torch.Generator().manual_seed(6)
    x, start = torch.randn(steps, 2, 30 + 2 * low, generator=draw), torch.randn(2, heads * size * size, generator=draw)
    x[..., 10:20] *= length
    weights = [torch.randn(heads * size, low, generator=draw) for _ in range(2)]
    biases = [torch.randn(heads * size, generator=draw) for _ in range(4)]

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        leaves = [each.detach().to(dtype).requires_grad_() for each in (x, start, *weights, *biases)]
        inputs, memory, decay, rate, decay_bias, rate_bias, key_scale, key_rate = leaves
        y, (end,) = rwkv7(inputs, decay, (memory,), None, decay_bias, rate, rate_bias, key_scale, key_rate, heads, size)
        (y.square().sum() + end.square().sum()).backward()
        return [y.detach(), end.detach(), *(gradient(leaf) for leaf in leaves)]

    with use_backend("reference"):
        expected = gradients(torch.float64)
    for actual, truth in zip(gradients(torch.float32), expected, strict=True):
        torch.testing.assert_close(actual.double(), truth, rtol=0, atol=2e-5 * float(truth.abs().max()))


@pytest.mark.parametrize("cut", [1, 5])
def test_two_parts_equal_the_whole_sequence(cut: int) -> None:
    """What the next step reads of the last input is in the state."""
    for readout in ("all", "last"):
        model = randomised(readout, heads=2, rank=4)
        inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        whole, (final,) = model(inputs)
        first, state = model(inputs[:cut])
        second, (end,) = model(inputs[cut:], state)
        torch.testing.assert_close(torch.cat((first, second)) if readout == "all" else second, whole)
        torch.testing.assert_close(end, final)


@pytest.mark.parametrize("readout", ["all", "last"])
def test_one_row_with_heads_of_one_feature_is_accepted(readout: Readout) -> None:
    model = randomised(readout, heads=12)
    x = torch.randn(1 if readout == "all" else 3, 1, 3, generator=torch.Generator().manual_seed(2)).double()
    expected = transcribed(model, x)
    torch.testing.assert_close(model(x)[0], expected if readout == "all" else expected[-1])


def test_eigenvalues_of_a_step_stay_in_the_stated_range() -> None:
    """Real and in (-0.455, 1), also where decays and rates saturate."""
    generator = torch.Generator().manual_seed(4)
    for scale in (1.0, 30.0):
        x = torch.randn(1, 50, 5 * 6, generator=generator, dtype=torch.float64)
        x[..., 12:18] = 0  # no value is written: the memory after a step is the transition times the memory before
        eye, zeros, ones = (fill(6, dtype=torch.float64) for fill in (torch.eye, torch.zeros, torch.ones))
        start, maps = eye.flatten().expand(50, -1), (zeros, scale * eye, zeros)
        with use_backend("reference"):
            _, (memory,) = rwkv7(x, 10 * scale * eye, (start,), None, *maps, ones, ones, 1, 6)
        values = torch.linalg.eigvals(memory.unflatten(-1, (6, 6)))
        assert float(values.imag.abs().max()) < 1e-6
        assert math.exp(-math.exp(-0.5)) - 1 - 1e-9 < float(values.real.min()) < 0.5
        assert float(values.real.max()) < 1 + 1e-9


def test_starts_match_the_library() -> None:
    """Orthogonal maps, a key's a tenth; first maps of decays, rates and gates at 0; W_o at 0 if asked."""
    model = make("rwkv7", inputs=9, hidden_size=64, mixing_start="zeros")
    settings = model.settings
    assert (settings.low, settings.low_gate) == (32, 32)
    eye = torch.eye(9)
    for map_, gain in zip(model.input_weight[: 3 * 64].detach().split(64), (1, 0.1, 1), strict=True):
        torch.testing.assert_close(map_.T @ map_, gain**2 * eye, rtol=1e-4, atol=1e-5)
    assert not model.input_weight[3 * 64 :].any()
    assert not model.mixing_weight.any()
    torch.testing.assert_close(model.decay_bias[[0, -1]], torch.tensor([-6 + 0.5 - 2.5, 0.5 + 2.5]))
    torch.testing.assert_close(model.rate_bias[[0, -1]], torch.tensor([-0.19 - 0.3 - 0.2, -0.19 + 0.3 + 0.2]))
    assert make("rwkv7", inputs=2, hidden_size=1).decay_bias.isfinite().all()
