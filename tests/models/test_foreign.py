"""Layers of other programs as models: how they are called, what they must not do, and equal numbers."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from orthobench.errors import UsageError
from orthobench.model import Signature
from orthobench.model.foreign import Foreign, model_of
from orthobench.models.gru import GRU
from orthobench.models.lstm import LSTM
from orthobench.models.rnn import RNN
from orthobench.recurrence import GradientTrace
from orthobench.recurrence.runtime import use_backend
from orthobench.training.trainer import build_model

UNITS, INPUTS, OUTPUTS, STEPS, BATCH = 6, 3, 2, 9, 4


def build(layer: Any, readout: Any = "all", seed: int = 0, **settings: Any) -> Any:
    cls = model_of(layer, f"here:{layer.__name__}", "here")
    values = cls.Settings.read({"hidden_size": UNITS, **settings})
    return build_model(cls, values, Signature(INPUTS, OUTPUTS, readout), torch.Generator().manual_seed(seed))


def inputs(steps: int = STEPS) -> Tensor:
    return torch.randn(steps, BATCH, INPUTS, generator=torch.Generator().manual_seed(1))


def linear(x: Tensor, model: Any) -> Tensor:
    return nn.functional.linear(x, model.output_weight, model.output_bias)


class Leaky(nn.Module):
    """A cell of this file.

    Args:
        n_inp: number of inputs.
        n_hid: number of
            units.
        leak (float): share of the state that stays. Default: 0.5
    """

    recurrent_weights = ("W",)

    def __init__(self, n_inp, n_hid, leak=0.5):
        super().__init__()
        self.W = nn.Parameter(torch.randn(n_hid, n_hid) / n_hid)
        self.U = nn.Linear(n_inp, n_hid)
        self.leak = leak

    def forward(self, x, h):
        return self.leak * h + (1 - self.leak) * torch.tanh(self.U(x) + h @ self.W.T)


class Sums(nn.Module):
    """A sequence layer of one width for [batch, time, width] that returns more than its outputs."""

    def __init__(self, d_model: int):
        super().__init__()
        self.mix = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        total = self.mix(x).cumsum(1)
        return {"weights": total.sum(), "output": total.tanh(), "last": total[:, -1]}


@pytest.mark.parametrize(
    ("layer", "is_cell", "batch_first"),
    [
        (nn.RNN, False, False),
        (nn.LSTM, False, False),
        (nn.GRUCell, True, False),
        (nn.LSTMCell, True, False),
        (Leaky, True, False),
        (Sums, False, True),
    ],
)
def test_outputs_are_those_of_the_layer_called_by_hand(layer, is_cell, batch_first):
    model = build(layer)
    way = model.interface.way
    assert (way.is_cell, way.batch_first) == (is_cell, batch_first)
    x, own = inputs(), model.layer
    if layer is Sums:
        front = nn.functional.linear(x, model.map_weight, model.map_bias)
        expected = own(front.transpose(0, 1))["output"].transpose(0, 1)
    elif is_cell:
        state: Any = None if layer is not Leaky else torch.zeros(BATCH, UNITS)
        steps = []
        for step in x:
            state = own(step, state)
            steps.append(state[0] if isinstance(state, tuple) else state)
        expected = torch.stack(steps)
    else:
        expected = own(x)[0]
    torch.testing.assert_close(model(x)[0], linear(expected, model))
    torch.testing.assert_close(build(layer, "last")(x)[0], model(x)[0][-1])


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRUCell, Leaky])
@pytest.mark.parametrize("settings", [{}, {"layers": 2}, {"block": "residual", "block_size": 4, "embedding_size": 5}])
def test_the_final_state_continues_a_sequence(layer, settings):
    model = build(layer, **settings)
    whole, _ = model(inputs())
    first, state = model(inputs()[:4])
    second, _ = model(inputs()[4:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    assert [part.shape[0] for part in state] == [BATCH] * len(model.initial_state(BATCH))


def test_weights_follow_from_the_generator_alone():
    def draws() -> list[Any]:
        return [torch.rand(1).item(), random.random(), np.random.rand()]

    class Numpy(Leaky):
        def __init__(self, n_inp, n_hid):
            super().__init__(n_inp, n_hid)
            with torch.no_grad():
                self.W += torch.from_numpy(np.random.rand(n_hid, n_hid)).float() + random.random()

    states = []
    for start in (5, 6):
        torch.manual_seed(start), random.seed(start), np.random.seed(start)
        undisturbed = draws()
        torch.manual_seed(start), random.seed(start), np.random.seed(start)
        states.append(build(Numpy).state_dict())
        assert draws() == undisturbed
    other = build(Numpy, seed=1).state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["layer.W"], other["layer.W"])
    stack = build(nn.RNN, layers=2)
    assert not torch.equal(stack.layers[0].cell.layer.weight_hh_l0, stack.layers[1].cell.layer.weight_hh_l0)


def test_settings_are_the_constructors_arguments_with_its_words():
    fields = model_of(nn.LSTM, "torch.nn:LSTM", "torch").Settings.model_fields
    assert {"num_layers", "bias", "layer_dropout", "proj_size"} <= set(fields)
    assert not {"input_size", "batch_first", "device", "dtype"} & set(fields)
    assert fields["num_layers"].description.startswith("Number of recurrent layers.")
    leak = model_of(Leaky, "here:Leaky", "here").Settings.model_fields["leak"]
    assert (leak.default, leak.description) == (0.5, "share of the state that stays")
    model = build(nn.LSTM, num_layers="2", bias="false", proj_size=4)
    assert (model.layer.num_layers, model.layer.bias, model.output_weight.shape) == (2, False, (OUTPUTS, 4))
    assert [part.shape for part in model.initial_state(BATCH)] == [(BATCH, 8), (BATCH, 2 * UNITS)]


@pytest.mark.parametrize("layer", [nn.LSTM, nn.RNNCell, Leaky])
@pytest.mark.parametrize("settings", [{}, {"layers": 2}])
def test_the_trace_has_the_total_derivatives(layer, settings):
    model, trace = build(layer, **settings).double(), GradientTrace(of_sum=True)
    x = inputs().double()
    weights = torch.randn(STEPS, BATCH, OUTPUTS, dtype=torch.float64)
    plain, _ = model(x)
    traced, _ = model(x, trace=trace)
    torch.testing.assert_close(traced, plain)
    (traced * weights).sum().backward()
    if not settings:  # at step t, of the outputs from t on by a disturbance of the state after t
        t = 5
        _, state = model(x[: t + 1])
        h = state[0].detach().requires_grad_()
        rest = model(x[t + 1 :], (h, *(part.detach() for part in state[1:])))[0]
        loss = (rest * weights[t + 1 :]).sum() + (linear(h, model) * weights[t]).sum()
        (gradient,) = torch.autograd.grad(loss, h)
        torch.testing.assert_close(trace.norms["h"][t], gradient.norm(dim=1))
        torch.testing.assert_close(trace.sums["h"][t], gradient.sum(0).norm())
    assert trace.norms["h"].shape == (STEPS, BATCH)


def test_recurrent_matrices_of_gates_are_no_step_matrices():
    rnn, gru, own = build(nn.RNN, num_layers=2), build(nn.GRU), build(Leaky)
    assert rnn.step_matrices == ("weight_hh_l0", "weight_hh_l1")
    assert rnn.recurrent_matrices()["weight_hh_l1"] is rnn.layer.weight_hh_l1
    assert own.step_matrices == ("W",)
    assert (len(gru.recurrent_matrices()), gru.step_matrices) == (3, ())
    assert {matrix.shape for matrix in gru.recurrent_matrices().values()} == {(UNITS, UNITS)}


class Flat(nn.Linear):
    pass


class Backwards(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, bidirectional=True)


class Keeps(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.kept = None

    def forward(self, x):
        out, h = super().forward(x, self.kept if self.kept is not None and self.kept.shape[1] == x.shape[1] else None)
        self.kept = h.detach()
        return out


class Random(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

    def forward(self, x):
        return super().forward(x + torch.rand_like(x))[0]


class Infinite(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

    def forward(self, x):
        return super().forward(x)[0] / 0 * 0


class LastOnly(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

    def forward(self, x):
        return super().forward(x)[0][-1]


class Detached(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

    def forward(self, x):
        return super().forward(x)[0].detach()


class Mixes(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

    def forward(self, x):
        return super().forward(x)[0] + x.mean() * 0.1


class Needs(nn.GRU):
    def __init__(self, input_size, hidden_size, heads):
        super().__init__(input_size, hidden_size)


class Raises(nn.GRU):
    def __init__(self, input_size, hidden_size):
        raise RuntimeError("no licence")


class Exits(nn.GRU):
    def __init__(self, input_size, hidden_size):
        raise SystemExit(3)


class NoSize(nn.Module):
    def __init__(self, depth=1):
        super().__init__()


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Flat, "depends on that step alone"),
        (Backwards, "must be causal"),
        (Keeps, "keeps a state between calls"),
        (Random, "random in evaluation mode"),
        (Infinite, "NaN or infinite"),
        (LastOnly, r"returns \[3, 8\] for sequences .*and nothing of shape"),
        (Detached, "no gradient"),
        (Mixes, "influence each other"),
        (Needs, "the constructor of here:Needs needs heads: set heads=VALUE"),
        (Raises, "RuntimeError: no licence"),
        (Exits, "SystemExit: 3"),
        (NoSize, r"constructor \(depth\) is a size .*docs/any-layer.md"),
        (int, "not a class derived from torch.nn.Module"),
    ],
)
def test_other_layers_are_refused_in_one_line(layer, words):
    with pytest.raises(UsageError, match=words) as error:
        build(layer)
    assert "\n" not in str(error.value)
    assert isinstance(torch.rand(1).item(), float)


def copied(pairs: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for to, value in pairs:
            to.copy_(value)


def as_lstm() -> tuple[Any, Any]:
    """torch.nn.LSTM, and `lstm` with its weights: both have the gates i, f, g, o, and two biases."""
    theirs = build(nn.LSTM).double()
    ours = build_model(
        LSTM,
        LSTM.Settings(hidden_size=UNITS, bias_start="torch", forget_bias=0.0),
        theirs.signature,
        torch.Generator().manual_seed(3),
    ).double()
    layer = theirs.layer
    copied([(ours.input_weight, layer.weight_ih_l0), (ours.recurrent_weight, layer.weight_hh_l0)])
    copied([(ours.bias, layer.bias_ih_l0), (ours.recurrent_bias, layer.bias_hh_l0)])
    return theirs, ours


def as_rnn() -> tuple[Any, Any]:
    """torch.nn.RNN without biases, and `rnn`."""
    theirs = build(nn.RNN, bias=False).double()
    ours = build_model(RNN, RNN.Settings(hidden_size=UNITS), theirs.signature, torch.Generator().manual_seed(3))
    ours.double()
    ours.bias.requires_grad_(False)
    copied([(ours.input_weight, theirs.layer.weight_ih_l0), (ours.recurrent_weight, theirs.layer.weight_hh_l0)])
    return theirs, ours


def as_gru() -> tuple[Any, Any]:
    """torch.nn.GRU without biases, and `gru` with the reset gate after the product."""
    theirs = build(nn.GRU, bias=False).double()
    settings = GRU.Settings(hidden_size=UNITS, reset_after=True)
    ours = build_model(GRU, settings, theirs.signature, torch.Generator().manual_seed(3)).double()
    ours.bias.requires_grad_(False)
    ours.candidate_bias.requires_grad_(False)
    copied([(ours.input_weight, theirs.layer.weight_ih_l0), (ours.recurrent_weight, theirs.layer.weight_hh_l0)])
    return theirs, ours


@pytest.mark.parametrize("pair", [as_lstm, as_gru, as_rnn])
def test_equal_weights_train_equally(pair):
    theirs, ours = pair()
    copied([(ours.output_weight, theirs.output_weight), (ours.output_bias, theirs.output_bias)])
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (theirs, ours)]
    generator = torch.Generator().manual_seed(4)
    for _ in range(200):
        x = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64, generator=generator)
        target = x.cumsum(0)[..., :OUTPUTS].tanh()
        losses, gradients = [], []
        for model, optimizer in zip((theirs, ours), optimizers, strict=True):
            with use_backend("reference"):
                loss = (model(x)[0] - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
            losses.append(loss.item())
            gradients.append(sorted(p.grad.norm().item() for p in model.parameters() if p.grad is not None))
            optimizer.step()
        assert math.isclose(*losses, rel_tol=0, abs_tol=1e-10)
        np.testing.assert_allclose(*gradients, rtol=0, atol=1e-10)
    assert losses[0] < 0.15  # it has learned something, so the weights have moved far


def test_counting_needs_no_memory():
    cls = model_of(nn.GRU, "torch.nn:GRU", "torch")
    with torch.device("meta"):
        model = build_model(
            cls, cls.Settings(hidden_size=2000, layers=2), Signature(INPUTS, OUTPUTS, "last"), torch.Generator()
        )
    assert isinstance(model.layers[0].cell, Foreign)
    expected = nn.GRU(INPUTS, 2000, 1), nn.GRU(2000, 2000, 1), nn.Linear(2000, OUTPUTS)
    assert model.parameter_count() == sum(p.numel() for each in expected for p in each.parameters())
