"""A user's cell as a layer: its calls, and the ways in which programs use a layer."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support.own_cells import Independent
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from docs.cells import JANET, PeepholeLSTM
from orthobench.errors import UsageError
from orthobench.nn import compile
from orthobench.recurrence.backends import forget_used, last_used, use_backend


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def layer():
    return compile(JANET(3, 20))


@pytest.fixture
def x():
    return torch.randn(7, 4, 3)


@pytest.fixture
def h():
    return torch.randn(4, 20)


def by_kernel(run):
    """Return what a call of a layer returns, which a kernel must have run."""
    forget_used()
    result = run()
    assert last_used() == {"cpu"}
    return result


def in_torch(run):
    with use_backend("reference"):
        return run()


@pytest.mark.parametrize(
    ("cell", "whole"),
    [(nn.LSTMCell, nn.LSTM), (nn.GRUCell, nn.GRU), (nn.RNNCell, nn.RNN)],
    ids=lambda each: each.__name__,
)
def test_torchs_cells_are_torchs_layers(cell, whole, x):
    layer, expected = compile(cell(3, 20), batch_first=True), whole(3, 20, batch_first=True)
    expected.load_state_dict({f"{name}_l0": value for name, value in layer.cell.state_dict().items()})
    outputs, final = by_kernel(lambda: layer(x.transpose(0, 1)))
    expected_outputs, expected_final = expected(x.transpose(0, 1))
    torch.testing.assert_close(outputs, expected_outputs)
    for one, other in zip(final, expected_final, strict=True) if cell is nn.LSTMCell else [(final, expected_final)]:
        torch.testing.assert_close(one, other.reshape(one.shape))


def test_first_step_without_a_state_is_the_cells_own(x):
    class FromOnes(JANET):
        def forward(self, x, h=None):
            return super().forward(x, torch.ones(len(x), 20) if h is None else h)

    layer = compile(FromOnes(3, 20))
    torch.testing.assert_close(by_kernel(lambda: layer(x))[0], layer(x, torch.ones(4, 20))[0])
    one_step = layer(x[:1])
    torch.testing.assert_close(one_step, (one_step[1][None], layer(x[:1], torch.ones(4, 20))[1]))


def test_output_and_state_may_be_returned_together(x):
    class Both(PeepholeLSTM):
        def forward(self, x, state):
            state = super().forward(x, state)
            return state[0], state

    state = torch.randn(4, 20), torch.randn(4, 20)
    layer = compile(Both(3, 20))
    outputs, final = by_kernel(lambda: layer(x, state))
    expected = in_torch(lambda: layer(x, state))
    torch.testing.assert_close((outputs, final), expected)
    assert torch.equal(outputs[-1], final[0])


def test_copies_have_weights_of_their_own(layer, x, h):
    outputs, _ = layer(x, h)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(by_kernel(lambda: other(x, h)[0]), outputs)  # noqa: B023 - called at once
        with torch.no_grad():
            other.cell.x.bias.add_(1.0)
        assert not torch.equal(other(x, h)[0], outputs)
    assert torch.equal(layer(x, h)[0], outputs)


def test_layer_has_the_parameters_of_the_cell_alone(layer):
    assert list(layer.state_dict()) == [f"cell.{name}" for name in layer.cell.state_dict()]


def test_another_cell_takes_the_place_of_the_first(layer, x, h):
    layer(x, h)
    layer.cell = PeepholeLSTM(3, 20)
    by_kernel(lambda: layer(x, (h, h)))
    layer.cell = other = JANET(3, 20)
    assert torch.equal(by_kernel(lambda: layer(x, h)[0]), compile(other)(x, h)[0])


def test_first_use_may_be_in_a_checkpoint(layer, x, h):
    results = [
        torch.autograd.grad(run(x, h)[0].sum(), list(layer.parameters()))
        for run in (lambda *given: checkpoint(layer, *given, use_reentrant=False), layer)
    ]
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_cell_in_bfloat16_runs_under_autocast(x, h):
    layer = compile(JANET(3, 20).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = layer(x, h)
        state = h
        for step in x:
            state = layer.cell(step, state)
    torch.testing.assert_close(outputs[-1].float(), state.float())


def test_autocast_computes_in_float32_and_returns_its_type(layer, x, h):
    expected, _ = layer(x, h)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, final = by_kernel(lambda: layer(x.bfloat16().float(), h))
    assert (outputs.dtype, final.dtype) == (torch.bfloat16, torch.bfloat16)
    assert (outputs.float() - expected).detach().abs().max() < 0.02


def test_second_derivative_is_refused_and_not_zero(layer, x, h):
    weight = layer.cell.h.weight
    (gradient,) = torch.autograd.grad(layer(x, h)[0].square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(gradient.sum(), weight)
    (expected,) = in_torch(lambda: torch.autograd.grad(layer(x, h)[0].square().sum(), weight, create_graph=True))
    assert torch.autograd.grad(expected.sum(), weight)[0].any()


def test_transforms_and_modes_see_the_steps(layer, x, h):
    layer(x, h)
    mapped = torch.func.vmap(lambda each: layer(each, h)[0])(torch.stack((x, x + 1)))
    torch.testing.assert_close(mapped, torch.stack((layer(x, h)[0], layer(x + 1, h)[0])))
    with FlopCounterMode(display=False) as counter:
        layer(x, h)
    assert counter.get_total_flops() == 7 * 4 * 2 * (3 + 20) * 40


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_first_use_may_be_without_gradients(mode, x, h):
    layer = compile(JANET(3, 20))
    with mode():
        outputs, _ = by_kernel(lambda: layer(x, h))
    torch.testing.assert_close(by_kernel(lambda: layer(x, h))[0], outputs)


def test_first_use_changes_no_generator_and_no_gradient(x, h):
    layer = compile(Independent(3, 20))
    torch.manual_seed(3)
    by_kernel(lambda: layer(x, h))
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert all(each.grad is None for each in layer.parameters())


@pytest.mark.filterwarnings("ignore")
def test_program_of_torch_compile_has_the_same_gradients(layer, x, h):
    torch.compiler.reset()
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        outputs, final = run(x, h)
        loss = outputs.sin().sum() + final.cos().sum()
        results.append([outputs, *torch.autograd.grad(loss, list(layer.parameters()))])
    torch.testing.assert_close(*results)


def test_output_of_a_compiled_program_may_have_another_size_than_the_state(x, h):
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.h, self.output = nn.Linear(3, 20), nn.Linear(20, 20), nn.Linear(20, 4)

        def forward(self, x, h):
            h = torch.tanh(self.x(x) + self.h(h))
            return self.output(h), h

    layer = compile(Projected())
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x, h), layer(x, h))


def test_other_types_run_as_a_loop_without_a_word(layer, x, h, caplog):
    forget_used()
    layer.double()(x.double(), h.double())
    assert not last_used()
    assert not caplog.records


def test_frozen_parameters_have_no_gradient(layer, x, h):
    layer.cell.h.requires_grad_(False)
    by_kernel(lambda: layer(x, h))[0].sum().backward()
    assert layer.cell.h.weight.grad is None
    assert layer.cell.x.weight.grad.any()


def test_wrong_arguments_are_refused(layer, h):
    with pytest.raises(UsageError, match="compile takes a cell"):
        compile(JANET)
    with pytest.raises(UsageError, match=r"x \[4, 3\] should be \[time, batch, features\]"):
        layer(torch.randn(4, 3), h)


def test_explanation_names_products_and_inputs(layer, h):
    assert layer.explain(3, h) == "compiled (products with a state: 2; inputs: 2; vectors: 0)"
