"""Mixed precision: under autocast a layer returns what torch's LSTM would, computed in the parameters' precision."""

from __future__ import annotations

import pytest
import torch
from support.layers import LAYERS, generator, tensors
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from orthobench.errors import UsageError
from orthobench.nn import KRU, FullURNN, ScoRNN

LOW = torch.bfloat16


def rounded(state):
    return tuple(rounded(each) for each in state) if isinstance(state, tuple) else state.to(LOW).float()


@pytest.fixture
def x() -> torch.Tensor:
    numbers_of_both_types = torch.randn(7, 4, 3, generator=generator(1)).to(LOW).float()
    return numbers_of_both_types.requires_grad_()  # kernels round differently for inputs without gradients


@pytest.mark.parametrize("name", LAYERS)
def test_layer_under_autocast_rounds_what_it_returns_and_nothing_else(name, x):
    layer = LAYERS[name](3, 16, num_layers=2, proj_size=4, generator=generator())
    exact, exact_state = layer(x)
    exact_again, _ = layer(x, rounded(exact_state))
    for dtype in (torch.float32, LOW):
        inputs = x.detach().to(dtype, copy=True).requires_grad_()
        with torch.autocast("cpu", dtype=LOW):
            output, state = layer(inputs)
            again, _ = layer(inputs, state)
        assert output.equal(exact.to(LOW))
        assert again.equal(exact_again.to(LOW))
        assert all(each.equal(whole.to(LOW)) for each, whole in zip(tensors(state), tensors(exact_state), strict=True))
        output.float().square().sum().backward()
        assert inputs.grad.dtype == dtype
    assert all(each.grad.dtype == torch.float32 for each in layer.parameters() if each.grad is not None)


@pytest.mark.parametrize("own", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [LOW, torch.float16])
@pytest.mark.parametrize("packed", [False, True])
def test_types_are_those_of_torch(own, low, packed):
    def types(layer):
        x = torch.zeros(5, 2, 3, dtype=own)
        with torch.autocast("cpu", dtype=low):
            output, state = layer(pack_sequence([*x.unbind(1)]) if packed else x)
        return (output.data if isinstance(output, PackedSequence) else output).dtype, state.dtype

    assert types(ScoRNN(3, 4, dtype=own)) == types(nn.RNN(3, 4, dtype=own))


def test_other_methods_leave_autocast():
    def results(layer):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(1.01)
        layer.after_step()
        matrices = layer.for_inference().cells[0].fixed_weight
        return [*layer.parameters(), *(each for each in (layer.penalty(), matrices) if each is not None)]

    for kind in (KRU, FullURNN):
        exact = results(kind(3, 16, generator=generator()))
        with torch.autocast("cpu", dtype=LOW):
            mixed = results(kind(3, 16, generator=generator()))
        assert all(torch.equal(each, whole) for each, whole in zip(mixed, exact, strict=True))


@pytest.mark.parametrize("name", ["EXPRNN", "ORNN", "ScoRNN", "ScuRNN"])
def test_backward_pass_inside_autocast_is_exact(name):
    cell = LAYERS[name](3, 16, generator=generator()).cells[0]
    parameter = cell.entries if name == "ORNN" else cell.skew_entries
    weight = cell.weight()
    way = torch.randn(weight.shape, generator=generator(2))
    (exact,) = torch.autograd.grad(weight, parameter, way, retain_graph=True)
    with torch.autocast("cpu", dtype=LOW):
        (mixed,) = torch.autograd.grad(weight, parameter, way)
    assert mixed.equal(exact)


def test_parameters_of_low_precision_are_refused_in_one_line(x):
    layer = ScoRNN(3, 16).to(LOW)
    with pytest.raises(UsageError, match=r"float32 or float64, not torch.bfloat16: call layer.float\(\)") as refusal:
        layer(x.to(LOW))
    assert "\n" not in str(refusal.value)
    with torch.autocast("cpu", dtype=LOW), pytest.raises(UsageError, match=r"autocast"):
        layer(x)


def test_types_that_do_not_fit_are_refused_in_one_line(x):
    layer = ScoRNN(3, 4)
    with pytest.raises(UsageError, match=r"inputs are torch.bfloat16, .*: give inputs.to\(torch.float32\)"):
        layer(x.to(LOW))
    with torch.autocast("cpu", dtype=LOW), pytest.raises(UsageError, match=r"inputs are torch.float64"):
        layer(x.double())
    with pytest.raises(UsageError, match=r"the state is torch.float64 on cpu, not torch.float32 on cpu"):
        layer(x, torch.zeros(1, 4, 4, dtype=torch.float64))
