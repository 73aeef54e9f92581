"""What is timed side by side is the same work."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from support.gradients import gradient

from orthobench.bench.implementations import (
    EAGER,
    EagerLSTM,
    LSTMNetwork,
    Network,
    ScoRNNNetwork,
    TorchLSTM,
    TorchRNN,
    TrainingStep,
    implementations,
)
from orthobench.bench.shapes import SHAPES, Shape
from orthobench.matrices.spectral_radius import spectral_radius
from orthobench.recurrence import TANH, project, recurrence
from orthobench.training.graph import WARM_UP

CPU = torch.device("cpu")
CONSTRAINTS = runpy.run_path(str(Path(__file__).parents[2] / "workshop" / "benchmarks" / "constraints.py"))[
    "CONSTRAINTS"
]
TINY = [
    Shape("last", 5, 7, 2, 6, 3),
    Shape("all", 5, 7, 2, 6, 3, "all"),
    Shape("mse", 5, 7, 2, 6, 1),
    Shape("lstm", 5, 7, 2, 6, 3, cell="lstm"),
    Shape("lstm all", 5, 7, 2, 6, 3, "all", cell="lstm"),
]


def outcome(step: TrainingStep) -> list[torch.Tensor]:
    loss = step.gradients()
    return [loss, *(gradient(parameter) for parameter in step.network.parameters())]


@pytest.mark.parametrize("shape", TINY, ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", [EAGER, "cpu"])
def test_every_back_end_matches_the_reference_loss_and_gradients(shape, name):
    makers = implementations(shape, CPU)
    torch.testing.assert_close(outcome(makers[name]()), outcome(makers["reference"]()), rtol=1e-4, atol=1e-6)


def test_implementations_measured_on_each_device():
    assert list(implementations(TINY[0], CPU)) == [EAGER, "reference", "cpu", "nn.RNN", "nn.LSTM"]
    assert list(implementations(TINY[3], CPU)) == [EAGER, "reference", "cpu", "nn.LSTM"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("shape", TINY, ids=lambda shape: shape.name)
def test_recorded_step_trains_as_the_eager_one(shape):
    """The memory that a step no longer needs is overwritten in between, so the recording must keep its own."""
    device = torch.device("cuda")
    graphed, eager = (implementations(shape, device)[name]() for name in ("cuda, graph", "cuda"))
    for _ in range(WARM_UP + 1):
        eager()
    for size in range(1, 200):
        torch.full((size,), -1e9, device=device)
    for step in (graphed, eager):
        step()
        step()
    for actual, expected in zip(graphed.network.parameters(), eager.network.parameters(), strict=True):
        torch.testing.assert_close(actual, expected)


def gradients_by_name(network: Network) -> dict[str, torch.Tensor]:
    TrainingStep(network).gradients()
    return {name: gradient(parameter) for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("readout", ["last", "all"])
def test_torch_lstm_equals_the_lstm(readout):
    shape = Shape("lstm", 5, 7, 2, 6, 3, readout, cell="lstm")
    torch_result, actual, loop = TorchLSTM(shape, CPU), LSTMNetwork(shape, CPU), EagerLSTM(shape, CPU)
    with torch.no_grad():
        torch_result.lstm.weight_ih_l0.copy_(actual.input_weight)
        torch_result.lstm.weight_hh_l0.copy_(actual.recurrent_weight)
        torch_result.lstm.bias_ih_l0.copy_(actual.bias)
        torch_result.lstm.bias_hh_l0.zero_()
    results = gradients_by_name(torch_result)
    for network in (actual, loop):
        expected = gradients_by_name(network)
        torch.testing.assert_close(results["lstm.weight_ih_l0"], expected["input_weight"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(results["lstm.weight_hh_l0"], expected["recurrent_weight"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(results["lstm.bias_ih_l0"], expected["bias"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(results["output_weight"], expected["output_weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("readout", ["last", "all"])
def test_torch_rnn_equals_the_tanh_recurrence(readout):
    shape = Shape("rnn", 5, 7, 2, 6, 3, readout)
    torch_result = TorchRNN(shape, CPU)
    step = TrainingStep(torch_result)
    x = project(step.inputs, torch_result.rnn.weight_ih_l0, torch_result.rnn.bias_ih_l0 + torch_result.rnn.bias_hh_l0)
    outputs, (final,) = recurrence(x, torch_result.rnn.weight_hh_l0, (torch_result.start(step.inputs),), None, TANH)
    torch.testing.assert_close(torch_result.states(step.inputs), final if readout == "last" else outputs)


def test_step_updates_every_parameter():
    for make in (
        lambda: ScoRNNNetwork(TINY[1], CPU),
        lambda: LSTMNetwork(TINY[4], CPU),
        lambda: TorchRNN(TINY[1], CPU),
    ):
        network = make()
        before = [parameter.clone() for parameter in network.parameters()]
        TrainingStep(network)()
        assert all(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_flop_count_matches_a_count_by_hand():
    assert SHAPES["mnist-170"].gflop(gates=1) == pytest.approx(3 * 2 * 128 * 784 * 170 * 170 / 1e9)
    assert SHAPES["lstm-128"].gflop(gates=4) == pytest.approx(3 * 2 * 128 * 784 * 4 * 128 * 128 / 1e9)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_each_constraint_produces_the_matrix_it_names(name):
    start, make = CONSTRAINTS[name](6, torch.Generator().manual_seed(0), CPU)
    weight = make(start)
    if name == "spectral radius":
        assert spectral_radius(weight).item() == pytest.approx(1, rel=1e-5)
    else:
        torch.testing.assert_close(weight @ weight.T, torch.eye(6), rtol=0, atol=1e-5)
