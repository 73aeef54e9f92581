"""Layers of other programs as models: how they are called, what they must not do, and equal numbers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from docs.cells import MGU, Forgetful, LayerNormGRU, PeepholeLSTM
from orthobench.errors import UsageError
from orthobench.foreign.model_of_layer import Foreign, model_of
from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.models.gru import GRU
from orthobench.models.lstm import LSTM
from orthobench.models.rnn import RNN
from orthobench.probe import ProbeContext
from orthobench.probes.orthogonality import Orthogonality
from orthobench.recurrence import GradientTrace
from orthobench.recurrence.backends import forget_used, last_used, use_backend
from orthobench.tasks.adding import Adding, AddingSettings

UNITS, INPUTS, OUTPUTS, STEPS, BATCH = 6, 3, 2, 9, 4


def build(layer: Any, readout: Any = "all", seed: int = 0, **settings: Any) -> Any:
    cls = model_of(layer, f"here:{layer.__name__}")
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
    fields = model_of(nn.LSTM, "torch.nn:LSTM").Settings.model_fields
    assert {"num_layers", "bias", "layer_dropout", "proj_size"} <= set(fields)
    assert not {"input_size", "batch_first", "device", "dtype"} & set(fields)
    assert fields["num_layers"].description.startswith("Number of recurrent layers.")
    leak = model_of(Leaky, "here:Leaky").Settings.model_fields["leak"]
    assert (leak.default, leak.description) == (0.5, "share of the state that stays")
    model = build(nn.LSTM, num_layers="2", bias="false", proj_size=4)
    assert (model.layer.num_layers, model.layer.bias, model.output_weight.shape) == (2, False, (OUTPUTS, 4))
    assert [part.shape for part in model.initial_state(BATCH)] == [(BATCH, 8), (BATCH, 2 * UNITS)]


class DeltaLayer(nn.Module):
    """A layer with the constructor, the call and the returned value of those in `fla.layers`, in plain PyTorch."""

    def __init__(
        self,
        hidden_size: int = 2048,
        expand_v: float = 2,
        head_dim: int = 256,
        num_heads: int = 6,
        mode: str = "chunk",
        layer_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.heads, self.values = num_heads, int(head_dim * expand_v)
        self.qk = nn.Linear(hidden_size, 2 * num_heads * head_dim, bias=False)
        self.v = nn.Linear(hidden_size, num_heads * self.values, bias=False)
        self.beta = nn.Linear(hidden_size, num_heads, bias=False)
        self.out = nn.Linear(num_heads * self.values, hidden_size, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, Any]:
        if attention_mask is not None:
            assert attention_mask.dim() == 2, "Expected attention_mask as a 0-1 matrix"
            raise NotImplementedError
        batch, steps, _ = hidden_states.shape
        q, k = self.qk(hidden_states).view(batch, steps, self.heads, -1).chunk(2, dim=-1)
        k = nn.functional.normalize(k, dim=-1)
        v = self.v(hidden_states).view(batch, steps, self.heads, self.values)
        beta = self.beta(hidden_states).sigmoid().unsqueeze(-1)
        memory, outputs = hidden_states.new_zeros(batch, self.heads, self.values, k.shape[-1]), []
        for t in range(steps):
            error = v[:, t] - torch.einsum("bhvk,bhk->bhv", memory, k[:, t])
            memory = memory + torch.einsum("bhv,bhk->bhvk", beta[:, t] * error, k[:, t])
            outputs.append(torch.einsum("bhvk,bhk->bhv", memory, q[:, t]))
        return self.out(torch.stack(outputs, 1).flatten(2)), None, past_key_values


def test_layer_like_those_of_flash_linear_attention_is_batch_first_with_a_map_in_front():
    model = build(DeltaLayer, num_heads=2, head_dim=4, expand_v=1.5)
    assert {"layer_idx", "attention_mask"}.isdisjoint(type(model).Settings.model_fields)
    x = inputs()
    outputs, state = model(x)
    by_hand = model.layer(nn.functional.linear(x.transpose(0, 1), model.map_weight, model.map_bias))[0]
    torch.testing.assert_close(outputs, linear(by_hand.transpose(0, 1), model))
    assert state == ()


@dataclass
class LayerConfig:
    """A record of arguments as in xlstm: sizes of -1 follow from others, and private ones are computed."""

    hidden_size: int = -1
    num_heads: int = 2
    backend: Literal["vanilla", "cuda"] = "cuda"
    batch_size: int = 8
    constants: dict[str, int] = field(default_factory=dict)
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    embedding_dim: int = -1
    dropout: float = 0.0
    _num_blocks: int = 1

    def __post_init__(self) -> None:
        self.hidden_size = self.embedding_dim


class Configured(nn.Module):
    """A layer whose constructor takes one record."""

    config_class = LayerConfig

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config.backend == "cuda":
            raise KeyError("CUDA_LIB")
        self.config, self.gru = config, nn.GRU(config.embedding_dim, config.hidden_size, batch_first=True)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        return self.gru(x)[0]


def test_layer_that_takes_a_record_has_its_fields_as_settings():
    fields = type(build(Configured, backend="vanilla")).Settings.model_fields
    assert {"num_heads", "backend", "layer_batch_size", "layer_dropout"} <= set(fields)
    assert {"batch_size", "dtype", "embedding_dim", "constants", "_num_blocks", "config"}.isdisjoint(fields)
    model = build(Configured, backend="vanilla", num_heads=3, layer_batch_size=5)
    assert (model.layer.config.num_heads, model.layer.config.batch_size) == (3, 5)
    assert model.layer.config.hidden_size == UNITS
    x = inputs()
    by_hand = model.layer.gru(nn.functional.linear(x.transpose(0, 1), model.map_weight, model.map_bias))[0]
    torch.testing.assert_close(model(x)[0], linear(by_hand.transpose(0, 1), model))


def test_a_record_that_the_layer_refuses_is_one_line_with_its_settings():
    with pytest.raises(UsageError, match=r"KeyError: 'CUDA_LIB', for embedding_dim=6"):
        build(Configured)


class OnTriton(nn.Module):
    """A layer whose kernel fails as Triton's do on a machine without a GPU."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        driver: dict[str, Any] = {"__name__": "triton.runtime.driver"}
        exec("def active():\n    raise RuntimeError('0 active drivers ([]). There should only be one.')", driver)
        driver["active"]()
        return x @ self.weight


def test_kernels_of_triton_without_a_gpu_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"OnTriton: its Triton kernels need a GPU, and this machine has none: train"):
        build(OnTriton)


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
    def forward(self, x):
        return super().forward(x + torch.rand_like(x))[0]


class Infinite(nn.GRU):
    def forward(self, x):
        return super().forward(x)[0] / 0 * 0


class LastOnly(nn.GRU):
    def forward(self, x):
        return super().forward(x)[0][-1]


class AheadByFive(nn.GRU):
    def forward(self, x):
        out = super().forward(x)[0]
        return out + nn.functional.pad(out, (0, 0, 0, 0, 0, 5))[5:]


class BackwardsInBlocks(nn.GRU):
    """Its last block is one step of the trial, so that step alone disturbs no earlier one."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, bidirectional=True)

    def forward(self, x):
        return torch.cat([super(BackwardsInBlocks, self).forward(block)[0] for block in x.split(7)])


class UndefinedAhead(nn.GRU):
    """Its outputs become NaN where later inputs are large."""

    def forward(self, x):
        is_large = x.mean((0, 2), keepdim=True) > 1
        return super().forward(x)[0].masked_fill(is_large, torch.nan)


class Detached(nn.GRU):
    def forward(self, x):
        return super().forward(x)[0].detach()


class Mixes(nn.GRU):
    def forward(self, x):
        return super().forward(x)[0] + x.mean() * 0.1


class Needs(nn.GRU):
    def __init__(self, input_size, hidden_size, heads):
        super().__init__(input_size, hidden_size)


class BatchNormCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell, self.norm = nn.RNNCell(input_size, hidden_size), nn.BatchNorm1d(hidden_size)

    def forward(self, x, h=None):
        return self.cell(x, None if h is None else self.norm(h))


class CentredInTraining(nn.RNN):
    """Statistics of the batch without a module for them."""

    def forward(self, x, h=None):
        return super().forward(x - x.mean(1, keepdim=True) if self.training else x, h)


class DropoutCell(nn.RNNCell):
    """Random in training, and each sequence on its own."""

    def forward(self, x, h=None):
        return super().forward(nn.functional.dropout(x, 0.5, self.training), h)


class ParametrisedCell(nn.Module):
    def __init__(self, input_size, hidden_size, kind="orthogonal"):
        super().__init__()
        self.i, self.h = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size, bias=False)
        getattr(nn.utils.parametrizations, kind)(self.h)

    def forward(self, x, h=None):
        return torch.tanh(self.i(x) if h is None else self.i(x) + self.h(h))


@pytest.mark.parametrize(
    ("layer", "given"),
    [
        *((ParametrisedCell, {"kind": kind}) for kind in ("orthogonal", "weight_norm", "spectral_norm")),
        (nn.RNNCell, {"constrain": "cayley"}),
    ],
)
def test_parametrised_weight_is_computed_once_in_a_pass(layer, given, monkeypatch):
    model = build(layer, **given).eval()
    x = torch.randn(9, 2, model.signature.input_size, generator=torch.Generator().manual_seed(0))
    h, steps = None, []
    for each in x:
        h = model.layer(each, h)
        steps.append(h)
    calls = []
    owner = next(module for module in model.modules() if isinstance(module, nn.utils.parametrize.ParametrizationList))
    forward = type(owner).forward
    monkeypatch.setattr(type(owner), "forward", lambda self: calls.append(0) or forward(self))
    with use_backend("reference"):
        outputs, _ = model.run(x)
    assert len(calls) == sum(isinstance(each, nn.utils.parametrize.ParametrizationList) for each in model.modules())
    torch.testing.assert_close(outputs, torch.stack(steps))
    torch.testing.assert_close(model.run(x)[0], outputs)  # by a kernel, which computes it from the step's record


def test_dropout_in_training_keeps_sequences_apart():
    assert build(DropoutCell).interface.way.is_cell


class CarryFirst(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.i, self.h = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, h, x):
        return torch.tanh(self.i(x) + self.h(h))


class CarriedSequence(nn.GRU):
    def forward(self, carry, xs):
        out, h = super().forward(xs, carry)
        return h, out


class Explodes(nn.Module):
    """Its outputs overflow in 64 steps."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.i = nn.Linear(input_size, hidden_size)

    def forward(self, x):
        steps = [self.i(x[0])]
        for step in x[1:]:
            steps.append(self.i(step) + 10 * steps[-1])
        return torch.stack(steps)


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
        (Flat, "depends on none of the 63 steps before it"),
        (Backwards, "must be causal"),
        (Keeps, "the same inputs give other outputs in a second call: it keeps a state between calls"),
        (Random, "other outputs in a second call: .*or it is random in evaluation mode"),
        (Infinite, "NaN or infinite"),
        (Explodes, "NaN or infinite"),
        (LastOnly, r"returns \[3, 8\] for sequences .*and nothing of shape"),
        (AheadByFive, "must be causal"),
        (BackwardsInBlocks, "must be causal"),
        (UndefinedAhead, "must be causal"),
        (CarryFirst, "forward takes h before x: a layer takes its inputs first, then its state"),
        (CarriedSequence, "forward takes carry before xs"),
        (Detached, "no gradient"),
        (Mixes, "influence each other"),
        (BatchNormCell, "influence each other in training, as by the batch statistics of BatchNorm: use LayerNorm"),
        (CentredInTraining, "influence each other in training"),
        (Needs, "the constructor of here:Needs needs heads: set heads=VALUE"),
        (Raises, "RuntimeError: no licence"),
        (Exits, "SystemExit: 3"),
        (
            NoSize,
            r"constructor \(depth\) is a size .*wrap it in a class of yours, as `orthobench plugins adapter` prints it",
        ),
        (int, "not a class derived from torch.nn.Module"),
    ],
)
def test_other_layers_are_refused_in_one_line(layer, words):
    with pytest.raises(UsageError, match=words) as error:
        build(layer)
    assert "\n" not in str(error.value)
    assert isinstance(torch.rand(1).item(), float)


class PairCell(nn.Module):
    """A cell that needs its state, a pair, and returns its outputs and the next one."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell = nn.LSTMCell(input_size, hidden_size)

    def forward(self, x, state):
        h, c = self.cell(x, state)
        return 2 * h, (h, c)


@pytest.mark.parametrize(
    ("layer", "interface"),
    [(nn.LSTM, "rnn"), (nn.LSTMCell, "cell"), (PairCell, "cell"), (Leaky, "cell"), (Sums, "sequence")],
)
def test_interface_that_is_named_is_the_one_that_is_found(layer, interface):
    found, named = build(layer), build(layer, interface=interface)
    assert found.interface == named.interface
    assert found.interface.way.interface == interface
    torch.testing.assert_close(found(inputs())[0], named(inputs())[0])


class NeedsState(nn.GRU):
    """A layer for sequences that looks like a cell, because it needs a state."""

    def forward(self, x, h):
        return super().forward(x, h)


def test_layer_that_is_taken_for_a_cell_says_so_and_may_be_named():
    with pytest.raises(
        UsageError, match=r"for inputs \[3, 5\] and a state .* otherwise, set interface=cell, interface=rnn "
    ):
        build(NeedsState)
    named = build(NeedsState, interface="rnn")
    torch.testing.assert_close(named(inputs())[0], linear(named.layer(inputs(), None)[0], named))


def test_layer_that_is_named_a_sequence_carries_no_state():
    assert build(nn.GRU, interface="sequence").initial_state(BATCH) == ()


@pytest.mark.parametrize(
    ("layer", "interface", "words"),
    [
        (
            nn.GRUCell,
            "sequence",
            r"for inputs \[64, 3, 5\]; wrap it .* `orthobench plugins adapter`",
        ),
        (nn.GRU, "cell", "influence each other"),
        (Sums, "rnn", "the state that it returns does not continue a sequence: set interface=sequence"),
    ],
)
def test_wrong_interface_is_one_line(layer, interface, words):
    with pytest.raises(UsageError, match=words):
        build(layer, interface=interface)


class Dilated(nn.GRU):
    """Step t continues step t - 4."""

    def forward(self, x):
        padded = nn.functional.pad(x, (0, 0, 0, 0, 0, -len(x) % 4))
        out = super().forward(padded.reshape(-1, 4 * x.shape[1], x.shape[2]))[0]
        return out.reshape(len(padded), x.shape[1], -1)[: len(x)]


class AtMost20(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.positions = nn.Parameter(torch.randn(20, 1, input_size))

    def forward(self, x):
        return super().forward(x + self.positions[: len(x)].expand(len(x), -1, -1))


class DelayedCell(nn.Module):
    """Its outputs are the inputs of five steps before, through a linear map."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.i = nn.Linear(input_size, hidden_size)

    def forward(self, x, state=None):
        new = self.i(x)
        state = (torch.zeros_like(new),) * 5 if state is None else state
        return state[-1], (new, *state[:-1])


class Caches(nn.Module):
    """A cell whose state grows by a step in each step."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.i = nn.Linear(input_size, hidden_size)

    def forward(self, x, past=None):
        new = self.i(x)[:, None]
        past = new if past is None else torch.cat((past, new), dim=1)
        return past.mean(1), past


def test_state_that_grows_is_not_carried():
    model, x = build(Caches), inputs()
    means = model.layer.i(x).cumsum(0) / torch.arange(1, STEPS + 1)[:, None, None]
    torch.testing.assert_close(model(x)[0], linear(means, model))
    assert model.initial_state(BATCH) == ()


@pytest.mark.parametrize("layer", [Dilated, AtMost20])
def test_length_of_the_trial_suits_the_layer(layer):
    model = build(layer)
    expected = model.layer(inputs())
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(model(inputs())[0], linear(expected, model))


def test_a_cell_with_a_delay_is_a_recurrence():
    model, x = build(DelayedCell), inputs()
    torch.testing.assert_close(model(x)[0][5:], linear(model.layer.i(x[:-5]), model))
    first, state = model(x[:4])
    torch.testing.assert_close(torch.cat((first, model(x[4:], state)[0])), model(x)[0])


class Pair(NamedTuple):
    h: Tensor
    c: Tensor


class NamedState(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell = nn.LSTMCell(input_size, hidden_size)

    def forward(self, x, state=None):
        pair = Pair(*self.cell(x, None if state is None else (state.h, state.c)))
        return pair.h, pair


def test_named_tuples_keep_their_type():
    model = build(NamedState)
    assert len(model.initial_state(BATCH)) == 2
    first, state = model(inputs()[:4])
    torch.testing.assert_close(torch.cat((first, model(inputs()[4:], state)[0])), model(inputs())[0])


class Counts(nn.GRU):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.steps = 0

    def after_step(self):
        self.steps += 1

    def penalty(self):
        return self.weight_hh_l0.sum()


class Wraps(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.layers = nn.ModuleList([Counts(input_size, hidden_size), Counts(hidden_size, hidden_size)])

    def forward(self, x):
        return self.layers[1](self.layers[0](x)[0])[0]


class Delegates(Wraps):
    def after_step(self):
        for layer in self.layers:
            layer.after_step()

    def penalty(self):
        return self.layers[0].penalty()


@pytest.mark.parametrize("layer", [Counts, Wraps, Delegates])
def test_methods_for_training_are_also_those_of_modules_inside(layer):
    model = build(layer)
    model.after_step()
    counted = [each for each in model.layer.modules() if isinstance(each, Counts)]
    assert [each.steps for each in counted] == [1] * len(counted)
    penalised = counted[:1] if layer is Delegates else counted
    torch.testing.assert_close(model.penalty(), sum(each.penalty() for each in penalised))


def copied(pairs: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for to, value in pairs:
            to.copy_(value)


def as_lstm() -> tuple[Any, Any]:
    """torch.nn.LSTM, and `lstm` with its weights: both have the gates i, f, g, o, and two biases."""
    theirs: Any = build(nn.LSTM).double()
    ours: Any = build_model(
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
    theirs: Any = build(nn.RNN, bias=False).double()
    ours: Any = build_model(RNN, RNN.Settings(hidden_size=UNITS), theirs.signature, torch.Generator().manual_seed(3))
    ours.double()
    ours.bias.requires_grad_(False)
    copied([(ours.input_weight, theirs.layer.weight_ih_l0), (ours.recurrent_weight, theirs.layer.weight_hh_l0)])
    return theirs, ours


def as_gru() -> tuple[Any, Any]:
    """torch.nn.GRU without biases, and `gru` with the reset gate after the product."""
    theirs: Any = build(nn.GRU, bias=False).double()
    settings = GRU.Settings(hidden_size=UNITS, reset_after=True)
    ours: Any = build_model(GRU, settings, theirs.signature, torch.Generator().manual_seed(3)).double()
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
    cls = model_of(nn.GRU, "torch.nn:GRU")
    with torch.device("meta"):
        model = build_model(
            cls, cls.Settings(hidden_size=2000, layers=2), Signature(INPUTS, OUTPUTS, "last"), torch.Generator()
        )
    assert isinstance(model.layers[0].cell, Foreign)
    expected = nn.GRU(INPUTS, 2000, 1), nn.GRU(2000, 2000, 1), nn.Linear(2000, OUTPUTS)
    assert model.parameter_count() == sum(p.numel() for each in expected for p in each.parameters())


class Rotates(nn.Module):
    """A linear cell whose W is orthogonal."""

    recurrent_weights = ("W",)

    def __init__(self, n_inp, n_hid):
        super().__init__()
        self.W = nn.Parameter(torch.linalg.qr(torch.randn(n_hid, n_hid))[0])
        self.U = nn.Linear(n_inp, n_hid)

    def forward(self, x, h):
        return self.U(x) + h @ self.W.T


class Phases(Rotates):
    """A cell with a complex state."""

    def forward(self, x, h=None):
        h = torch.zeros(len(x), len(self.W), dtype=torch.complex64) if h is None else h
        h = 1j * h + self.U(x)
        return h.real + h.imag, h


class OneSequence(Rotates):
    """A cell that takes few sequences at once."""

    def forward(self, x, h):
        if len(x) > BATCH:
            raise ValueError("too many sequences")
        return super().forward(x, h)


def scores(layer: Any) -> dict[str, float]:
    settings = AddingSettings(sequence_length=STEPS, train_size=BATCH, test_size=BATCH)
    task = Adding(settings, 0, torch.device("cpu"))
    cls = model_of(layer, f"here:{layer.__name__}")
    model = build_model(cls, cls.Settings.read({"hidden_size": UNITS}), task.signature, torch.Generator())
    before = torch.get_rng_state()
    values = Orthogonality()(ProbeContext(model, task, task.train.batch(torch.arange(BATCH)))).values
    assert torch.equal(torch.get_rng_state(), before)
    return dict(values)


def test_layers_have_scores_of_their_step_or_a_reason():
    rotates = scores(Rotates)
    assert rotates["orthogonality/W"] < 1e-5
    assert 0 < rotates["orthogonality_jacobian/J"] < 1e-5
    gru = scores(nn.GRU)
    assert set(gru) == {f"orthogonality_inside/weight_hh_l0.{k}" for k in (1, 2, 3)} | {"orthogonality_jacobian/J"}
    assert 0.1 < gru["orthogonality_jacobian/J"] < UNITS
    for layer, reason in ((Sums, "no_state"), (Phases, "not_real"), (OneSequence, "fails")):
        stored = {name: value for name, value in scores(layer).items() if name.startswith("orthogonality_jacobian/")}
        assert list(stored) == [f"orthogonality_jacobian/undefined/{reason}"], layer
        assert all(math.isnan(value) for value in stored.values())


@pytest.mark.parametrize("cell", [PeepholeLSTM, MGU, nn.LSTMCell])
def test_cell_trains_by_a_kernel_with_the_norms_of_its_steps(cell):
    model = build(cell)
    x = torch.randn(9, 4, model.signature.input_size, generator=torch.Generator().manual_seed(0))
    results = []
    for backend in ("auto", "reference"):
        forget_used()
        trace = GradientTrace()
        with use_backend(backend):
            outputs, final = model.run(x, None, trace)
        assert last_used() == ({"cpu"} if backend == "auto" else set())
        outputs.sin().sum().backward()
        gradients = [parameter.grad for parameter in model.layer.parameters()]
        results.append([outputs, *final, trace.norms["h"], *gradients])
        model.zero_grad()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_measures_say_what_the_compiler_made_of_a_cell():
    gated, normed, broken, layer = (model_of(each, "x").measures() for each in (MGU, LayerNormGRU, Forgetful, nn.GRU))
    assert "compiled (products with a state: 1 and then 1; inputs: 2; vectors: 0)" in gated
    assert any(line.endswith("vectors: 6; means over the units: 4)") for line in normed)
    reason = "a loop in PyTorch: the step detaches a state from its gradient ("
    assert any(line.startswith(reason) for line in broken)
    assert not any("PyTorch" in line or "compiled" in line for line in layer)
