"""Layers in programs that `torch.compile` compiles as a whole."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from support.layers import LAYERS, generator
from torch.nn.utils.rnn import pack_padded_sequence

from orthobench.nn import GRU, LSTM, ScoRNN, ScoRNNCell, compiled

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = {"ScoRNN", "LSTM"}


def compile_whole(module):
    return torch.compile(module, backend="aot_eager", fullgraph=True)


@pytest.fixture
def x() -> torch.Tensor:
    torch.compiler.reset()
    return torch.randn(7, 4, 3, generator=generator(1), requires_grad=True)


def assert_same(compiled_layer, layer, x, state=None):
    """Compare outputs, state and all gradients with those of the layer itself."""
    results = []
    for run, module in ((layer, layer), (compiled_layer, compiled_layer._orig_mod)):
        outputs, final = run(x, state)
        final = final if isinstance(final, tuple) else (final,)
        loss = sum(each.sin().sum() for each in (outputs, *final))
        gradients = torch.autograd.grad(loss, [x, *module.parameters()], allow_unused=True, materialize_grads=True)
        results.append([outputs, *final, *gradients])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LAYERS]
)
def test_whole_graph_gives_the_same_results(name, x):
    layer = LAYERS[name](3, 16, num_layers=2, bidirectional=True, generator=generator())
    program = compile_whole(copy.deepcopy(layer))
    assert_same(program, layer, x)
    with torch.no_grad():
        torch.testing.assert_close(program(x)[0], layer(x)[0], rtol=1e-4, atol=1e-5)
    gc.collect()
    assert not compiled._graphs


def test_programs_of_two_layers_keep_their_own_numbers(x):
    layers = [ScoRNN(3, 16, negative_ones=ones, generator=generator()) for ones in (0, 8)]
    programs = [compile_whole(layer) for layer in layers]
    for layer, program in zip(layers, programs, strict=True):
        assert_same(program, copy.deepcopy(layer), x, torch.ones(1, 4, 16))
    assert not programs[0](x)[0].equal(programs[1](x)[0])


def test_training_a_compiled_layer_equals_training_the_layer(x):
    layer, other = (LAYERS["FullURNN"](3, 8, generator=generator()) for _ in range(2))
    results = []
    for run, module in ((layer, layer), (compile_whole(other), other)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        module.attach(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            run(x.detach())[0].square().sum().backward()
            optimizer.step()
        results.append(module.state_dict())
    for key, tensor in results[0].items():
        torch.testing.assert_close(results[1][key], tensor, rtol=1e-4, atol=1e-5)


def test_gradients_can_be_taken_twice_from_one_forward_pass(x):
    program = compile_whole(GRU(3, 8, generator=generator()))
    loss = program(x)[0].square().sum()
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert first.equal(second)


@pytest.mark.parametrize("first", [True, False], ids=["compiled in inference mode", "compiled before"])
@pytest.mark.parametrize("fixed", [True, False])
def test_program_runs_in_inference_mode(first, fixed, x):
    layer = LAYERS["EXPRNN"](3, 8, num_layers=2, generator=generator())
    layer = layer.for_inference() if fixed else layer
    program, expected = compile_whole(layer), layer(x)[0]
    if not first:
        program(x)[0].sum().backward()
    with torch.inference_mode():
        for inputs in (x, x.clone()):  # the clone is an inference tensor
            torch.testing.assert_close(program(inputs)[0], expected)
    with torch.no_grad():
        torch.testing.assert_close(program(x)[0], expected)
    assert_same(program, copy.deepcopy(layer), x)


@pytest.mark.parametrize("name", ["LSTM", "EXPRNN"])
def test_layers_of_equal_sizes_share_a_program(name, x):
    torch._dynamo.utils.counters.clear()
    for seed in range(torch._dynamo.config.recompile_limit + 2):
        layer = LAYERS[name](3, 8, generator=generator(seed))
        assert_same(compile_whole(layer), copy.deepcopy(layer), x)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_cells_and_autocast_compile(x):
    cell = ScoRNNCell(3, 8, generator=generator())
    torch.testing.assert_close(compile_whole(cell)(x[0]), cell(x[0]))
    layer = LSTM(3, 8, generator=generator())
    program = compile_whole(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = program(x.bfloat16())
        expected, _ = layer(x.bfloat16())
    assert output.equal(expected)


def test_packed_batches_compile_in_parts(x):
    layer = LSTM(3, 8, bidirectional=True, generator=generator())
    packed = pack_padded_sequence(x, torch.tensor([7, 5, 5, 2]))
    output, _ = torch.compile(layer, backend="aot_eager")(packed)
    torch.testing.assert_close(output.data, layer(packed)[0].data)
