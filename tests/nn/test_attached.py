"""Constraints that need the end of a step: attached optimisers, parameter groups, other programs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from support.layers import LAYERS, generator

from orthobench.errors import UsageError
from orthobench.nn import EURNN, LSTM, FullURNN, IndRNN

DOCUMENT = Path(__file__).parents[2] / "docs" / "layers.md"
RECIPES = dict(re.findall(r'```python title="(\w+)"\n(.*?)```', DOCUMENT.read_text("utf-8"), re.S))
INSTALLED = [name for name in RECIPES if importlib.util.find_spec(name)]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(7, 4, 3, generator=generator(1))


def deviation(layer) -> float:
    weight = layer.cells[0].recurrent_matrices()["W"]
    return float((weight.mH @ weight - torch.eye(len(weight))).abs().max().detach())


def train(layer, x, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()


def assert_equal(layer, other):
    expected = other.state_dict()
    assert all(tensor.equal(expected[key]) for key, tensor in layer.state_dict().items())


NEEDY = [name for name, layer in LAYERS.items() if layer(3, 16).needs_after_step]


def test_layers_that_need_the_end_of_a_step_are_those_of_the_document():
    listed = DOCUMENT.read_text("utf-8").partition("(`layer.needs_after_step`):\n\n")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", listed))
    assert named == {*NEEDY, "IndRNN"}
    assert IndRNN(3, 16, bounded_steps=7).needs_after_step


@pytest.mark.parametrize("name", NEEDY)
def test_attached_optimiser_does_what_after_step_does(name, x):
    called, attached = (LAYERS[name](3, 16, num_layers=2, generator=generator()) for _ in range(2))
    optimizer = torch.optim.Adam(attached.parameters(), lr=0.05)
    handle = attached.attach(optimizer)
    train(attached, x, optimizer)
    by_hand = torch.optim.Adam(called.parameters(), lr=0.05)
    for _ in range(3):
        train(called, x, by_hand, steps=1)
        called.after_step()
    assert_equal(attached, called)
    handle.remove()
    train(attached, x, optimizer, steps=1)
    train(called, x, by_hand, steps=1)  # without after_step
    assert_equal(attached, called)


@pytest.mark.parametrize("name", LAYERS)
def test_parameter_groups_hold_each_parameter_once(name):
    layer = LAYERS[name](3, 16, num_layers=2, proj_size=4)
    groups = layer.param_groups(lr=1e-3)
    parameters = [parameter for group in groups for parameter in group["params"]]
    assert len(parameters) == len(set(parameters)) == len(list(layer.parameters()))
    assert {group["lr"] for group in groups} == {1e-3}
    constrained = layer.model.orthogonal or layer.model.matrix_parameters
    assert len(groups) == (2 if constrained else 1)


def test_constrained_parameters_have_their_rate():
    layer = EURNN(3, 16, num_layers=2)
    free, constrained = layer.param_groups(lr=1e-3, constrained_lr=1e-4)
    names = {parameter: name.rpartition(".")[2] for name, parameter in layer.named_parameters()}
    assert {names[each] for each in constrained["params"]} == {"theta", "phi", "omega"}
    assert (free["lr"], constrained["lr"]) == (1e-3, 1e-4)
    torch.optim.Adam([free, constrained])
    with pytest.raises(UsageError, match=r"^constrained_lr=0.1: LSTM has no constrained matrix$"):
        LSTM(3, 16).param_groups(lr=1e-3, constrained_lr=0.1)


def test_averaged_copy_is_restored_by_after_step(x):
    layer = FullURNN(3, 16, generator=generator())
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer.attach(optimizer)
    for _ in range(5):
        train(layer, x, optimizer, steps=1)
        averaged.update_parameters(layer)
    assert deviation(averaged.module) > 1e-4
    averaged.module.after_step()
    assert deviation(averaged.module) < 1e-5


if INSTALLED:  # a parametrised test without cases would be skipped

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", INSTALLED)
    def test_recipe_keeps_the_constraint(name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (block,) = (
            each
            for each in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.S)
            if "class Classifier" in each
        )
        images, labels = torch.rand(512, 28, 28, generator=generator(1)), torch.arange(512) % 10
        data = torch.utils.data.TensorDataset(images, labels)
        names = {"torch": torch, "images": images, "labels": labels}
        names["loader"] = torch.utils.data.DataLoader(data, batch_size=8)
        names["dataset"] = [{"images": image, "labels": label} for image, label in data]
        exec(block, names)
        layers = []
        start = FullURNN.forward
        monkeypatch.setattr(FullURNN, "forward", lambda self, *args: (layers.append(self), start(self, *args))[1])
        exec(RECIPES[name], names)
        assert len(layers) >= 4
        assert deviation(layers[-1]) < 1e-5
