"""mLSTM against its recurrent equations and the paper's parallel form, over every length of a chunk."""

from __future__ import annotations

import math

import numpy as np
import orthobench.models.mlstm as source
import pytest
import torch
from support.models import M, P, assert_gradients, expected_outputs, make, run, sigmoid
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.errors import UsageError
from orthobench.recurrence import GradientTrace

FORGET = {"sigmoid": sigmoid, "exponential": np.exp}
B, HEADS, D = 2, 3, 4


@pytest.fixture(params=[1, 2, 4, 32])
def chunk_length(request, monkeypatch):
    """Six steps are then six chunks, three, two of unequal length, and one."""
    monkeypatch.setattr(source, "CHUNK", request.param)


@pytest.mark.usefixtures("chunk_length")
@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("forget_gate", FORGET)
@pytest.mark.parametrize("heads", [1, 3])
def test_is_the_equations_without_a_stabiliser(heads, forget_gate, readout):
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


def parts(steps: int, seed: int = 3, gates=None, dtype=torch.float64) -> list[Tensor]:
    """q, k, v with its last feature, i and log f of `[B, heads, T, *]`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (D, D, D, 1, 1)
    q, k, v, i, f = (torch.randn(B, HEADS, steps, size, generator=generator, dtype=dtype) for size in sizes)
    i, f = (2 * i, 2 * f) if gates is None else (i + gates[0], f + gates[1])
    return [q, k, torch.cat((v, torch.ones_like(v[..., :1])), dim=-1), i, logsigmoid(f)]


def zeros(dtype=torch.float64) -> tuple[Tensor, Tensor]:
    return torch.zeros(B, HEADS, D + 1, D, dtype=dtype), torch.zeros(B, HEADS, 1, 1, dtype=dtype)


def in_chunks(arguments, length, memory, m) -> tuple[Tensor, Tensor, Tensor]:
    readings = []
    for part in zip(*(each.split(length, dim=2) for each in arguments), strict=True):
        read, memory, m = source.chunk(memory, m, *part)
        readings.append(read)
    return torch.cat(readings, dim=2), memory, m


def parallel(q, k, v, i, log_f) -> Tensor:
    """The paper's parallel form: one matrix of decays over the whole sequence, stabilised by row."""
    total = log_f.cumsum(dim=2)
    steps = q.shape[2]
    exponents = (total - total.mT + i.mT).masked_fill(torch.ones(steps, steps).triu(1).bool(), -math.inf)
    largest = exponents.amax(dim=-1, keepdim=True)
    scores = q @ k.mT * (exponents - largest).exp()
    return scores @ v[..., :-1] / torch.maximum(scores.sum(-1, keepdim=True).abs(), (-largest).exp())


@pytest.mark.parametrize("length", [1, 3, 8, 70])
def test_chunks_are_the_parallel_form_and_its_gradients(length):
    arguments = [each.requires_grad_() for each in parts(70)]
    actual, expected = in_chunks(arguments, length, *zeros())[0], parallel(*arguments)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)
    way = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pairs = (torch.autograd.grad((way * each).sum(), [*arguments[:2], *arguments[3:]]) for each in (actual, expected))
    for gradient, other in zip(*pairs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("length", [4, 40])
def test_the_memory_after_chunks_is_that_of_single_steps(length):
    """With the authors' stabiliser m_t = max(log f + m_{t-1}, i), from a state of any kind."""
    arguments, generator = parts(40), torch.Generator().manual_seed(2)
    start = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in zeros()]
    _, memory, m = in_chunks(arguments, length, *start)
    expected, stabiliser = start
    _, k, v, i, log_f = arguments
    for t in range(40):
        before, stabiliser = (
            log_f[:, :, t, None] + stabiliser,
            torch.maximum(log_f[:, :, t, None] + stabiliser, i[:, :, t, None]),
        )
        written = v[:, :, t, :, None] * k[:, :, t, None]
        expected = (before - stabiliser).exp() * expected + (i[:, :, t, None] - stabiliser).exp() * written
    torch.testing.assert_close(m, stabiliser, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(memory, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("chunk_length")
def test_gradients_by_finite_differences():
    assert_gradients(make("mlstm", hidden_size=4, heads=2))


@pytest.mark.parametrize("i", [-1e4, -100.0, 0.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_extreme_gates_in_float32(i, f):
    """Values and gradients are finite, and the values those of single steps in float64.

    float32 holds a sum of 1e4 and a logarithm to 1e-3, so the shares of the steps are as exact.
    """
    arguments = parts(70, gates=(i, f), dtype=torch.float32)
    read, memory, m = in_chunks([each.requires_grad_() for each in arguments], 32, *zeros(torch.float32))
    assert memory.isfinite().all()
    assert m.isfinite().all()
    for gradient in torch.autograd.grad(read.square().sum() + memory.sum(), arguments):
        assert gradient.isfinite().all()
    exact = in_chunks([each.detach().double() for each in arguments], 1, *zeros())[0]
    torch.testing.assert_close(read.double(), exact, rtol=0.1 if i == 1e4 else 1e-3, atol=0.1 if i == 1e4 else 1e-3)


def test_a_closed_forget_gate_takes_no_precision_from_later_steps():
    """Steps after it have shares with the error of their own sums, not of one through the closed gate."""
    arguments = parts(32, gates=(0.0, 3.0), dtype=torch.float32)
    arguments[4][:, :, 5::9] = -3e5
    read = in_chunks(arguments, 32, *zeros(torch.float32))[0]
    exact = in_chunks([each.double() for each in arguments], 1, *zeros())[0]
    torch.testing.assert_close(read.double(), exact, rtol=1e-4, atol=1e-5)


def test_the_trace_is_the_derivative_of_a_moved_state():
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


def test_starts_as_the_program():
    model = make("mlstm", inputs=40, hidden_size=256, heads=4)
    assert not model.input_bias.any()
    assert not model.gate_weight.any()
    assert 0.098 < model.input_weight.std() < 0.102  # sqrt(2 / 200)
    np.testing.assert_allclose(model.gate_bias[4:].detach(), [3, 4, 5, 6], rtol=1e-6)
    assert 0 < model.gate_bias[:4].abs().max() < 0.4


def test_sizes_of_state_and_parameters():
    model = make("mlstm", hidden_size=8)
    assert model.initial_state(3)[0].shape == (3, 4 * (2 * 3 + 1))
    assert model.parameter_count() == (4 * 8 + 2 * 4) * (M + 1) + (8 * P + P)
    with pytest.raises(UsageError, match=r"heads=3 should divide hidden_size \(8\)"):
        make("mlstm", hidden_size=8, heads=3)
