"""What programs expect of a layer because torch's have it: the device meta, empty batches, biases, cells, arguments."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from support.layers import CELLS, LAYERS, generator, tensors, torch_copy
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrizations, vector_to_parameters

from orthobench.errors import UsageError
from orthobench.nn import GORU, GRU, LSTM, RNN, WRNN, LSTMCell, RNNCell, ScoRNN, ScoRNNCell, constrain

M, N = 3, 16
each_layer = pytest.mark.parametrize("name", LAYERS)


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
    layer = RNN(M, N, nonlinearity="relu", generator=generator())
    torch.testing.assert_close(layer(x)[0], torch_copy(layer, nonlinearity="relu")(x)[0])


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


@pytest.mark.parametrize("is_compiled", [False, True])
def test_torchs_keywords_name_the_inputs_and_the_state(is_compiled, x):
    layer = LSTM(M, N, generator=generator())
    start = torch.randn(1, 4, N, generator=generator(2)), torch.randn(1, 4, N, generator=generator(3))
    expected, final = layer(x, start)
    called = torch.compile(layer, backend="aot_eager", fullgraph=True) if is_compiled else layer
    for output, state in (called(x, hx=start), called(input=x, hx=start), called(inputs=x, state=start)):
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(state, final)
    cell = LSTMCell(M, N, generator=generator())
    torch.testing.assert_close(cell(input=x[0], hx=(start[0][0], start[1][0]))[0], expected[0])


def test_exported_program_takes_torchs_keywords(x):
    layer, h = GRU(M, N, generator=generator()).for_inference(), torch.randn(1, 4, N, generator=generator(2))
    program = torch.export.export(layer, (x,), {"hx": h}, strict=False).module()
    torch.testing.assert_close(program(x.flip(0), hx=2 * h)[0], layer(x.flip(0), 2 * h)[0])


def test_argument_under_both_names_or_none_is_refused(x):
    layer, h = RNN(M, N), torch.zeros(1, 4, N)
    with pytest.raises(UsageError, match=r"^inputs and input are the same argument: give one of them$"):
        layer(x, input=x)
    with pytest.raises(UsageError, match=r"^state and hx are the same argument"):
        layer(x, h, hx=h)
    for module in (layer, RNNCell(M, N)):
        with pytest.raises(TypeError, match="needs inputs"):
            module()


@pytest.mark.parametrize("whole", [np.int64, np.uint8])
def test_sizes_may_be_numpys_whole_numbers(whole):
    def built(number, truth):
        layer = LSTM(number(M), number(N), number(2), proj_size=number(5), bias=truth(True), generator=generator())
        return repr(layer), layer.state_dict()

    text, state = built(whole, np.bool_)
    expected, own = built(int, bool)
    assert text == expected
    assert all(each.equal(own[name]) for name, each in state.items())
    for size in (whole(0), np.float32(2.5), np.bool_(True)):
        with pytest.raises(UsageError, match=r"^num_layers=\S+ should be a whole number, at least 1$"):
            RNN(M, N, size)


def reset_with(layer: Any) -> torch.Tensor:
    """The recurrent weight that a layer of its own draws from the generator with which this layer is reset."""
    layer.reset_parameters(generator(5))
    fresh = type(layer)(M, N, generator=generator(5))
    torch.testing.assert_close(layer.cells[0].input_weight, fresh.cells[0].input_weight, rtol=0, atol=0)
    torch.testing.assert_close(layer.cells[0].bias, fresh.cells[0].bias, rtol=0, atol=0)
    return fresh.cells[0].recurrent_weight.detach()


def test_reset_draws_a_weight_under_weight_norm_anew(x):
    layer = LSTM(M, N, generator=generator())
    parametrizations.weight_norm(layer.cells[0], "recurrent_weight")
    drawn = reset_with(layer)
    torch.testing.assert_close(layer.cells[0].recurrent_weight, drawn)
    layer(x)[0].square().mean().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_reset_draws_a_weight_under_spectral_norm_anew():
    layer = RNN(M, N, generator=generator())
    parametrizations.spectral_norm(layer.cells[0], "recurrent_weight")
    drawn = reset_with(layer)
    for _ in range(300):  # each access in training improves the estimate of the norm
        weight = layer.cells[0].recurrent_weight
    torch.testing.assert_close(weight, drawn / torch.linalg.matrix_norm(drawn, 2), rtol=1e-3, atol=1e-4)


def test_reset_draws_a_constrained_weight_anew():
    layer = RNN(M, N, generator=generator())
    constrain(layer.cells[0], "recurrent_weight")
    left, _, right = torch.linalg.svd(reset_with(layer))  # the nearest orthogonal matrix
    torch.testing.assert_close(layer.cells[0].recurrent_weight, left @ right, rtol=0, atol=1e-5)


def test_subclass_with_another_constructor_is_reset():
    class Fixed(RNN):
        def __init__(self) -> None:
            super().__init__(M, N, generator=generator())
            self.scale = nn.Parameter(torch.ones(()))

    layer = Fixed()
    layer.reset_parameters(generator(5))
    assert layer.cells[0].recurrent_weight.equal(RNN(M, N, generator=generator(5)).cells[0].recurrent_weight)


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_may_be_parts_of_one_vector(name, x):
    """The vector begins with one number, so that every other parameter begins at an odd place of it."""
    layer = LAYERS[name](3, 8, generator=torch.Generator().manual_seed(0))
    before = layer(x)[0].detach().clone()
    owners = nn.ModuleList([nn.Linear(1, 1, bias=False), layer])
    assert all(parameter.is_contiguous() for parameter in layer.parameters())
    vector_to_parameters(parameters_to_vector(owners.parameters()), owners.parameters())
    offsets = {parameter.storage_offset() % 2 for parameter in layer.parameters()}
    assert 1 in offsets
    outputs = layer(x)[0]
    torch.testing.assert_close(outputs, before)
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters() if parameter.requires_grad)


SHARDED = """
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh

from orthobench import nn

name, settings = sys.argv[2], eval(sys.argv[3])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
states = []
for shard in (False, True):
    layer = getattr(nn, name)(3, 8, generator=torch.Generator().manual_seed(1), **settings)
    if shard:
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer.attach(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()
    values = layer.state_dict().values()
    states.append([value.full_tensor() if hasattr(value, "full_tensor") else value for value in values])
torch.testing.assert_close(*states)
distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ORNN", {}),
        ("SpectralRNN", {}),
        ("DTRIV", {"rebase_every": 2}),
        ("ENRNN", {}),
        pytest.param("IndRNN", {"bounded_steps": 5}, marks=pytest.mark.slow),
        pytest.param("FullURNN", {}, marks=pytest.mark.slow),
    ],
)
def test_sharded_layer_trains_as_a_whole_one(tmp_path, name, settings):
    command = [sys.executable, "-W", "ignore", "-c", SHARDED, str(tmp_path / "group"), name, repr(settings)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
