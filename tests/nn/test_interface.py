"""What programs expect of a layer because torch's have it: the device meta, empty batches, biases, cells, arguments."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support.layers import CELLS, LAYERS
from torch import nn

from orthobench.errors import UsageError
from orthobench.nn import GORU, GRU, LSTM, RNN, WRNN, LSTMCell, RNNCell, ScoRNN, ScoRNNCell

M, N = 3, 16
each_layer = pytest.mark.parametrize("name", LAYERS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensors(state) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(7, 4, M, generator=generator(1))


@each_layer
@pytest.mark.parametrize("assign", [True, False], ids=["as Hugging Face does", "to_empty"])
def test_layer_without_memory_is_filled_by_a_state_dict(name, assign, x):
    layer = LAYERS[name](M, N, num_layers=2, generator=generator())
    with torch.device("meta"):
        loaded = LAYERS[name](M, N, num_layers=2)
    assert all(parameter.is_meta for parameter in loaded.parameters())
    if not assign:
        loaded.to_empty(device="cpu")
        for parameter in loaded.parameters():
            nn.init.constant_(parameter, float("nan"))
    loaded.load_state_dict(layer.state_dict(), assign=assign)
    assert loaded(x)[0].equal(layer(x)[0])
    assert layer.penalty() is None or loaded.penalty().equal(layer.penalty())


def test_default_device_changes_no_number():
    expected = ScoRNN(M, N, generator=generator()).state_dict()
    torch.set_default_device("meta")
    try:
        drawn = ScoRNN(M, N, device="cpu", generator=generator()).state_dict()
    finally:
        torch.set_default_device(None)
    assert all(tensor.equal(expected[name]) for name, tensor in drawn.items())


@each_layer
def test_empty_batch_gives_zero_gradients(name, x):
    layer = LAYERS[name](M, N, num_layers=2, bidirectional=True, generator=generator())
    output, state = layer(x)
    inputs = x[:, :0].requires_grad_()
    empty, empty_state = layer(inputs)
    assert empty.shape == (7, 0, *output.shape[2:])
    assert [each.shape for each in tensors(empty_state)] == [(4, 0, *each.shape[2:]) for each in tensors(state)]
    assert layer(inputs, empty_state)[0].shape == empty.shape
    empty.sum().backward()
    assert inputs.grad.shape == inputs.shape
    assert all((parameter.grad == 0).all() for parameter in layer.parameters())


@pytest.mark.parametrize(("kind", "settings"), [(LSTM, {"forget_bias": 0.0}), (GRU, {"reset_after": True}), (RNN, {})])
def test_layer_without_bias_equals_torch(kind, settings, x):
    layer = kind(M, N, 1, False, True, generator=generator(), **settings)  # by position, as in torch.nn.LSTM
    expected = {LSTM: nn.LSTM, GRU: nn.GRU, RNN: nn.RNN}[kind](M, N, bias=False, batch_first=True)
    with torch.no_grad():
        expected.weight_ih_l0.copy_(layer.cells[0].input_weight)
        expected.weight_hh_l0.copy_(layer.cells[0].recurrent_weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    torch.testing.assert_close(layer(x)[0], expected(x)[0])
    layer(x)[0].square().sum().backward()
    optimizer.step()
    layer.reset_parameters()
    assert all((each == 0).all() for each in biases(layer))
    assert "bias=False" in repr(layer)


def biases(layer: nn.Module) -> list[torch.Tensor]:
    found = [each for key, each in layer.state_dict().items() if key.endswith("bias")]
    assert found
    return found


@pytest.mark.parametrize("name", ["LSTM", "GRU", "ScoRNN", "Antisymmetric"])
def test_layer_without_bias_keeps_none_after_it_is_frozen_and_trained_again(name, x):
    layer = LAYERS[name](M, N, bias=False, generator=generator(), **({"reset_after": True} if name == "GRU" else {}))
    layer.requires_grad_(False)
    layer.requires_grad_(True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer(x)[0]
    before.square().sum().backward()
    optimizer.step()
    output = layer(x)[0]
    assert not output.equal(before)
    assert all((each == 0).all() for each in biases(layer))
    copied = pickle.loads(pickle.dumps(copy.deepcopy(layer)))
    assert copied(x)[0].equal(output)
    values = {key: each.detach() for key, each in layer.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(copied, values, (x,))[0], output)
    assert layer.double()(x.double())[0].dtype == torch.float64


def test_layer_without_bias_loads_no_bias(x):
    biased, layer = LSTM(M, N, generator=generator()), LSTM(M, N, bias=False, generator=generator(1))
    nn.init.ones_(biased.cells[0].bias)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "cells\.0\.bias"'):
        layer.load_state_dict(biased.state_dict())
    layer.load_state_dict(biased.state_dict(), strict=False)
    assert all((each == 0).all() for each in biases(layer))
    nn.init.zeros_(biased.cells[0].bias)
    layer.load_state_dict(biased.state_dict())
    assert layer(x)[0].equal(biased(x)[0])


@each_layer
def test_layer_on_the_meta_device_computes_shapes(name, x):
    layer = LAYERS[name](M, N, num_layers=2, device="meta")
    expected, expected_state = LAYERS[name](M, N, num_layers=2)(x)
    output, state = layer(x.to("meta"))
    assert output.shape == expected.shape
    assert [each.shape for each in tensors(state)] == [each.shape for each in tensors(expected_state)]


def test_nonlinearity_is_the_activation(x):
    layer, expected = RNN(M, N, nonlinearity="relu", generator=generator()), nn.RNN(M, N, nonlinearity="relu")
    with torch.no_grad():
        expected.weight_ih_l0.copy_(layer.cells[0].input_weight)
        expected.weight_hh_l0.copy_(layer.cells[0].recurrent_weight)
        expected.bias_ih_l0.zero_()
        expected.bias_hh_l0.zero_()
    torch.testing.assert_close(layer(x)[0], expected(x)[0])


@pytest.mark.parametrize(
    ("kind", "arguments", "line"),
    [
        (LSTM, {"nonlinearity": "relu"}, "nonlinearity=relu: LSTM has only one nonlinearity"),
        (GORU, {"bias": False}, "bias=False: GORU needs its biases (gate_bias)"),
        (WRNN, {"bias": False}, "bias=False: WRNN needs its biases (channel_bias)"),
        (ScoRNNCell, {"num_layers": 2}, "unknown setting 'num_layers': did you mean layers?"),
    ],
)
def test_argument_that_a_cell_lacks_is_refused_in_one_line(kind, arguments, line):
    with pytest.raises(UsageError) as refusal:
        kind(M, N, **arguments)
    assert str(refusal.value) == line


def test_dropout_with_one_layer_warns_as_torch_does(x):
    with pytest.warns(UserWarning, match=r"dropout=0.5 .* num_layers=1"):
        layer = ScoRNN(M, N, dropout=0.5)
    assert layer(x)[0].equal(layer(x)[0])


def test_flatten_parameters_does_nothing(x):
    layer = ScoRNN(M, N)
    before = layer(x)[0]
    layer.flatten_parameters()
    assert layer(x)[0].equal(before)


@each_layer
def test_cell_steps_as_the_layer_does(name, x):
    layer, cell = LAYERS[name](M, N, generator=generator()), CELLS[name](M, N, generator=generator(5))
    cell.load_state_dict(layer.state_dict())
    expected, final = layer(x)
    state, outputs = None, []
    for inputs in x:
        output, next_state = cell.step(inputs, state)
        state = cell(inputs, state)
        assert all(one.equal(other) for one, other in zip(tensors(state), tensors(next_state), strict=True))
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs), expected, rtol=1e-4, atol=1e-5)
    for each, whole in zip(tensors(state), tensors(final), strict=True):
        torch.testing.assert_close(each, whole[0], rtol=1e-4, atol=1e-5)
    alone = cell(x[0, 1])
    torch.testing.assert_close(tensors(alone), tuple(each[1] for each in tensors(cell(x[0]))))


def test_cells_take_torch_cells_place(x):
    cell, expected = LSTMCell(M, N, forget_bias=0.0, generator=generator()), nn.LSTMCell(M, N)
    with torch.no_grad():
        expected.weight_ih.copy_(cell.cells[0].input_weight)
        expected.weight_hh.copy_(cell.cells[0].recurrent_weight)
        expected.bias_ih.zero_()
        expected.bias_hh.zero_()
    start = torch.randn(4, N, generator=generator(2)), torch.randn(4, N, generator=generator(3))
    torch.testing.assert_close(cell(x[0], start), expected(x[0], start))
    assert isinstance(RNNCell(M, N)(x[0]), torch.Tensor)
    with pytest.raises(UsageError, match=r"inputs \[7, 4, 3\] should be \[batch, features\] or \[features\]"):
        cell(x)
