"""Layers equal the harness's models and torch's layers: values, gradients, packed batches, both directions."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.gradients import gradient
from support.layers import LAYERS, generator, tensors, torch_copy
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import orthobench.nn
from orthobench.errors import UsageError
from orthobench.model import Model, Signature
from orthobench.nn import GRU, LSTM, RNN, RecurrentLayer, ScoRNN
from orthobench.plugins import Catalog
from orthobench.recurrence import use_backend

each_layer = pytest.mark.parametrize("name", LAYERS)
T, B, M, N = 7, 4, 3, 16


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: gradient(parameter) for name, parameter in module.named_parameters()}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(T, B, M, generator=generator(1))


def test_type_checkers_know_every_layer_and_cell():
    """`cells.pyi` lists the names that `cells.py` makes of the models."""
    stub = Path(orthobench.nn.cells.__file__).with_suffix(".pyi").read_text("utf-8")
    made = {(name, layer.__base__.__name__) for name, layer in orthobench.nn.cells.LAYERS.items()}
    assert set(re.findall(r"^class (\w+)\((\w+)\)", stub, re.M)) == made


def test_every_built_in_model_has_a_layer():
    catalog = Catalog()
    models = {catalog.load("model", plugin.name) for plugin in catalog if plugin.kind == "model"}
    assert {layer.model for layer in LAYERS.values()} == models
    assert all(layer.__name__ == layer.model.__name__ for layer in LAYERS.values())


@each_layer
def test_layer_equals_the_model_without_its_output_map(name, x):
    layer = LAYERS[name](M, N, generator=generator())
    model = layer.model(layer.settings, Signature(M, 5, "all"), generator(2))
    model.load_state_dict(layer.cells[0].state_dict(), strict=False)
    expected, expected_state = model(x)
    output, state = layer(x)
    result = nn.functional.linear(output, model.output_weight, model.output_bias)
    assert output.abs().max() > 0
    torch.testing.assert_close(result, expected)
    for each, whole in zip(tensors(state), expected_state, strict=True):
        torch.testing.assert_close(each[0], whole)
    expected.square().sum().backward()
    result.square().sum().backward()
    for parameter, value in gradients(layer.cells[0]).items():
        torch.testing.assert_close(value, gradients(model)[parameter], rtol=1e-4, atol=1e-4, msg=parameter)


@each_layer
def test_state_continues_a_sequence(name, x):
    layer = LAYERS[name](M, N, num_layers=2, generator=generator())
    whole, final = layer(x)
    first, state = layer(x[:4])
    second, end = layer(x[4:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(end, final, rtol=1e-4, atol=1e-5)


KINDS: dict[str, tuple[type[RecurrentLayer], dict[str, Any]]] = {
    "lstm": (LSTM, {"forget_bias": 0.0}),
    "gru": (GRU, {"reset_after": True}),
    "rnn": (RNN, {}),
}


@pytest.fixture(params=KINDS)
def pair(request) -> tuple[RecurrentLayer, nn.RNNBase]:
    """A layer of two levels and two directions with random biases, and torch's with the same weights."""
    kind, settings = KINDS[request.param]
    layer = kind(M, N, num_layers=2, bidirectional=True, generator=generator(), **settings)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator(3))
    return layer, torch_copy(layer)


def states_of(layer: RecurrentLayer, batch: int) -> torch.Tensor | tuple[torch.Tensor, ...]:
    shape = (layer.num_layers * layer.directions, batch, layer.features)
    drawn = tuple(torch.randn(shape, generator=generator(seed)) for seed in range(2))
    return drawn if isinstance(layer, LSTM) else drawn[0]


def test_stacked_bidirectional_layers_equal_torch(pair, x):
    layer, torch_layer = pair
    start = states_of(layer, B)
    output, state = layer(x, start)
    expected, expected_state = torch_layer(x, start)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, expected_state)


@pytest.mark.parametrize("with_start", [False, True])
def test_packed_sequences_equal_torch(pair, with_start):
    layer, torch_layer = pair
    sequences = [torch.randn(length, M, generator=generator(length)) for length in (5, 2, 7, 5)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    start = states_of(layer, 4) if with_start else None
    output, state = layer(packed, start)
    expected, expected_state = torch_layer(packed, start)
    torch.testing.assert_close(pad_packed_sequence(output)[0], pad_packed_sequence(expected)[0])
    torch.testing.assert_close(state, expected_state)
    output.data.square().sum().backward()
    expected.data.square().sum().backward()
    # Two backward passes add the same terms in different orders; some of them cancel.
    torch.testing.assert_close(layer.cells[0].input_weight.grad, torch_layer.weight_ih_l0.grad, rtol=2e-5, atol=1e-5)


@each_layer
def test_packed_sequence_equals_the_sequence_alone(name):
    layer = LAYERS[name](M, N, bidirectional=True, generator=generator())
    padded = torch.randn(T, 2, M, generator=generator(1))
    output, state = layer(pack_padded_sequence(padded, torch.tensor([T, 4])))
    unpacked, _ = pad_packed_sequence(output)
    alone, state_alone = layer(padded[:4, 1:])
    torch.testing.assert_close(unpacked[:4, 1:], alone)
    for each, whole in zip(tensors(state), tensors(state_alone), strict=True):
        torch.testing.assert_close(each[:, 1:], whole)


@each_layer
def test_packed_batch_has_the_gradients_of_its_sequences(name):
    layer = LAYERS[name](M, 8, bidirectional=True, dtype=torch.float64, generator=generator())
    sequences = [torch.randn(length, M, dtype=torch.float64, generator=generator(length)) for length in (7, 4, 2)]

    def loss(inputs):
        output, state = layer(inputs)
        output = output if isinstance(output, torch.Tensor) else output.data
        return output.sin().sum() + sum(each.cos().sum() for each in tensors(state))

    results = []
    for total in (loss(pack_sequence(sequences)), sum(loss(each) for each in sequences)):
        results.append(torch.autograd.grad(total, list(layer.parameters()), materialize_grads=True, allow_unused=True))
    assert any(each.count_nonzero() for each in results[0])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("EXPRNN", "weight"),
        ("FullURNN", "weight"),
        ("Antisymmetric", "weight"),
        ("GORU", "product"),
        ("URNN", "multiplier"),
    ],
)
def test_packed_batch_needs_each_matrix_once(name, method, monkeypatch):
    layer = LAYERS[name](M, 8, bidirectional=True, generator=generator())
    for cell in layer.cells:
        cell.forms_weight = method != "multiplier"
    compute, calls = getattr(layer.model, method), []
    monkeypatch.setattr(layer.model, method, lambda cell: calls.append(cell) or compute(cell))
    packed = pack_sequence([torch.randn(length, M, generator=generator(length)) for length in (7, 4, 2)])
    for _ in range(2):  # nothing is kept for the next batch, because training changes the parameters
        layer(packed)
    assert calls == 2 * list(layer.cells)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "SLSTM", "LRU"])  # one, two and four states, and a complex one
def test_batch_first_and_unbatched_inputs(name, x):
    layer = LAYERS[name](M, N, generator=generator())
    other = LAYERS[name](M, N, batch_first=True, generator=generator())
    output, state = layer(x)
    torch.testing.assert_close(other(x.transpose(0, 1))[0].transpose(0, 1), output)
    alone, state_alone = layer(x[:, 2])
    torch.testing.assert_close(alone, output[:, 2])
    for each, whole in zip(tensors(state_alone), tensors(state), strict=True):
        torch.testing.assert_close(each, whole[:, 2])
    again, _ = layer(x[3:, 2], layer(x[:3, 2])[1])
    torch.testing.assert_close(again, output[3:, 2])


@each_layer
def test_copies_pickles_and_state_dicts_give_the_same_outputs(name, x):
    layer = LAYERS[name](M, N, num_layers=2, generator=generator())
    output, _ = layer(x)
    loaded = LAYERS[name](M, N, num_layers=2, generator=generator(9))
    assert not loaded(x)[0].equal(output)
    loaded.load_state_dict(layer.state_dict())
    for duplicate in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        assert duplicate(x)[0].equal(output)
    assert not any("parametrizations" in key or "output" in key for key in layer.state_dict())


@each_layer
def test_reset_parameters_draws_new_values(name):
    layer = LAYERS[name](M, N, generator=generator())
    before = {key: tensor.clone() for key, tensor in layer.state_dict().items()}
    layer.reset_parameters(generator(5))
    fresh = LAYERS[name](M, N, generator=generator(5)).state_dict()
    assert all(tensor.equal(fresh[key]) for key, tensor in layer.state_dict().items())
    assert any(not tensor.equal(before[key]) for key, tensor in layer.state_dict().items())


def test_torch_seed_determines_the_start():
    torch.manual_seed(3)
    first = ScoRNN(M, N)
    torch.manual_seed(3)
    assert first.cells[0].skew_entries.equal(ScoRNN(M, N).cells[0].skew_entries)


def deviation(layer: Any) -> float:
    """The largest entry of |W* W - I|."""
    (weight,) = layer.cells[0].recurrent_matrices().values()
    return float((weight.mH @ weight - torch.eye(len(weight))).abs().max().detach())


ORTHOGONAL = [name for name, layer in LAYERS.items() if layer.model.orthogonal]


@pytest.mark.parametrize("name", [*ORTHOGONAL, "FullURNN", "SoftOrthogonal"])
def test_constraint_holds_with_any_optimiser(name, x):
    settings = {"margin": 0} if name == "SoftOrthogonal" else {}
    layer = LAYERS[name](M, N, generator=generator(), **settings)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    for _ in range(20):
        optimizer.zero_grad()
        output, _ = layer(x)
        (output - 1).square().sum().backward()
        optimizer.step()
        layer.after_step()
    assert deviation(layer) < 2e-5
    assert all(not now.equal(then) for now, then in zip(layer.parameters(), before, strict=True))


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_do_not_depend_on_later_inputs(name, backend):
    layer, changed = LAYERS[name](3, 8, generator=torch.Generator().manual_seed(1)), 6
    x = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), use_backend(backend):
        before = layer(x)[0][:changed]
        for value in (math.nan, math.inf, 100.0):
            later = x.clone()
            later[changed:] = value
            assert torch.equal(layer(later)[0][:changed], before)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_match_finite_differences_in_float64(name):
    # With one matrix PD-SSM's gradient with respect to its inputs has no part of a softmax in place of a largest entry.
    settings = {"LRU": {"block_size": 3}, "PDSSM": {"dictionary_size": 1}}.get(name, {})
    layer = LAYERS[name](2, 4, dtype=torch.float64, generator=generator(), **settings)
    inputs = torch.randn(3, 2, 2, dtype=torch.float64, generator=generator(1), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], inputs)


def test_kernels_refuse_double_backward(x):
    layer = ScoRNN(M, N)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.sum().backward()
    with use_backend("reference"):
        (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        gradient.sum().backward()


def test_dropout_acts_between_layers_in_training_only(x):
    layer = ScoRNN(M, N, num_layers=2, dropout=0.5, generator=generator())
    first, second = layer(x)[0], layer(x)[0]
    assert not first.equal(second)
    layer.eval()
    assert layer(x)[0].equal(layer(x)[0])


def test_projection_reduces_the_output_size(x):
    layer = ScoRNN(M, N, num_layers=2, proj_size=5, generator=generator())
    output, state = layer(x)
    assert output.shape == (T, B, 5)
    assert state.shape == (2, B, N)
    plain = ScoRNN(M, N, generator=generator(1))
    plain.cells[0].load_state_dict(layer.cells[0].state_dict())
    below = plain(x)[0] @ layer.projections[0].T
    plain = ScoRNN(5, N)
    plain.cells[0].load_state_dict(layer.cells[1].state_dict())
    torch.testing.assert_close(plain(below)[0] @ layer.projections[1].T, output)


def test_penalties_of_the_cells_are_summed():
    layer = orthobench.nn.KRU(M, N, num_layers=2, generator=generator())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1.1)
    torch.testing.assert_close(layer.penalty(), sum(cell.penalty() for cell in layer.cells))
    assert ScoRNN(M, N).penalty() is None


def test_repr_shows_sizes_and_settings():
    layer = ScoRNN(M, N, num_layers=2, batch_first=True, negative_ones=3)
    assert repr(layer).splitlines()[1].strip() == "3, 16, num_layers=2, batch_first=True, negative_ones=3"
    assert inspect.getdoc(ScoRNN).startswith("scoRNN: a real orthogonal recurrent matrix")


def test_user_model_becomes_a_layer(x):
    class Decay(Model):
        """h_t = h_{t-1} / 2 + U x_t."""

        title, paper = "decay", "nowhere"

        def __init__(self, settings, signature, generator):
            super().__init__(settings, signature, generator)
            self.input_weight = nn.Parameter(torch.ones(settings.hidden_size, signature.input_size))

        def states(self, inputs, state, trace):
            (h,), steps = state, []
            for driven in nn.functional.linear(inputs, self.input_weight):
                h = h / 2 + driven
                steps.append(h)
            return torch.stack(steps), (h,)

        def recurrent_matrices(self):
            return {}

    class DecayLayer(RecurrentLayer):
        model = Decay

    output, _ = DecayLayer(M, N)(x)
    expected = sum(x[t].sum(dim=-1) / 2 ** (T - 1 - t) for t in range(T))
    torch.testing.assert_close(output[-1], expected[:, None].expand(B, N))


@pytest.mark.parametrize(
    ("arguments", "settings", "line"),
    [
        ((0, 8), {}, "input_size=0 should be a whole number, at least 1"),
        ((3, 0), {}, "hidden_size=0: should be greater than or equal to 1"),
        ((3, 8, 0), {}, "num_layers=0 should be a whole number, at least 1"),
        ((3, 2.5), {}, "hidden_size=2.5: should be a whole number"),
        (
            (3, 8, 1, "tanh"),
            {},
            "bias=tanh should be true or false, as in torch.nn.LSTM; give nonlinearity",
        ),
        ((3, 8), {"nonlinearity": "gelu"}, "activation=gelu: should be 'modrelu', 'relu' or 'tanh'"),
        ((3, 8, 2), {"dropout": 1.0}, "dropout=1.0 should be at least 0 and below 1"),
        ((3, 8), {"proj_size": -1}, "proj_size=-1 should be a whole number, at least 0"),
        ((3, 8), {"embedding_size": 4}, "embedding_size is a setting of whole models"),
        ((3, 8), {"embedding_start": "normal"}, "embedding_start is a setting of whole models"),
        ((3, 8), {"negative_one": 4}, "unknown setting 'negative_one': did you mean negative_ones?"),
        ((3, 8), {"negative_ones": 9}, "negative_ones=9 should be a whole number from 0 to hidden_size"),
    ],
)
def test_impossible_layers_are_refused_in_one_line(arguments, settings, line):
    with pytest.raises(UsageError) as refusal:
        ScoRNN(*arguments, **settings)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_incompatible_shapes_are_refused_in_one_line(x):
    layer = LSTM(M, N)
    with pytest.raises(UsageError, match=r"inputs \[7, 4, 2\] should be \[time, batch, features\]"):
        layer(x[..., :2])
    with pytest.raises(UsageError, match=r"inputs \[0, 4, 3\] should be"):
        layer(x[:0])
    with pytest.raises(UsageError, match=r"the state should be 2 tensors of shape \[1, 4, 16\]"):
        layer(x, torch.zeros(1, B, N))
    with pytest.raises(UsageError, match=r"packed inputs \[2, 2\] should have 3 features"):
        layer(pack_sequence([torch.zeros(2, 2)]))


@each_layer
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_one_sequence_leaves_the_others_unchanged(name, value):
    """Outputs, states and gradients of the inputs of the other sequences keep every bit."""
    bad, others = 1, [0, 2, 3, 4]
    results = []
    for spoiled in (False, True):
        layer = LAYERS[name](M, 8, generator=generator())  # less than a vector
        inputs = torch.randn(T, 5, M, generator=generator(1))
        if spoiled:
            inputs[2, bad, 1] = value
        output, state = layer(inputs.requires_grad_())
        way = torch.randn(output.shape, generator=generator(2))
        (gradient,) = torch.autograd.grad(output, inputs, way)
        results.append([output.detach(), gradient, *(each.detach() for each in tensors(state))])
    clean, spoiled = results
    assert not spoiled[0][:, bad].isfinite().all() or value == float("inf")
    for actual, expected in zip(spoiled, clean, strict=True):
        assert torch.equal(actual[:, others], expected[:, others])
