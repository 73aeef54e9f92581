"""Every built-in model computes with the kernels of this installation what it computes in float64 with PyTorch."""

from __future__ import annotations

import copy
from typing import get_args

import pytest
import torch
from torch import Tensor

from orthobench.isolation import isolated
from orthobench.model import Signature
from orthobench.model.base import OptimizerName
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.recurrence import backends, use_backend
from orthobench.recurrence.kernel_case import distance, normal
from orthobench.recurrence.passes.cross_entropy import cross_entropy
from orthobench.testing.kernels import DEVICES, TOLERANCE
from orthobench.training.optimizers import build_optimizer

STEPS, BATCH, INPUTS, CLASSES = 35, 17, 3, 7  # two chunks of steps and a tile of rows, each with a remainder
HIDDEN = 40  # two vectors and a half
OTHER_SIZES = {"goru": 32, "kru": 128, "eurnn": 130, "wrnn": 130}  # powers of 2, and sizes with sparse layers
CATALOG = Catalog(installed=False)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reads_all", [True, False], ids=["all", "last"])
@pytest.mark.parametrize("name", CATALOG.built_in("model"))
def test_model_agrees(name: str, reads_all: bool, device: str) -> None:
    """Outputs, final states, a loss, and the gradients of inputs and parameters.

    The sequence is in two parts, so that the second one has an initial state with a gradient.
    """
    cls = CATALOG.load("model", name)
    settings = cls.Settings.read({"hidden_size": OTHER_SIZES.get(name, HIDDEN)})
    signature = Signature(INPUTS, CLASSES, "all" if reads_all else "last")
    built = build_model(cls, settings, signature, torch.Generator().manual_seed(1))
    results = []
    for dtype, place, back_end in ((torch.float32, device, "auto"), (torch.float64, "cpu", "reference")):
        model, u = copy.deepcopy(built).to(place, dtype), normal(STEPS, BATCH, INPUTS, seed=0).to(place, dtype)
        leaves = [u.requires_grad_(), *model.parameters()]
        backends.forget_used()
        with isolated(), use_backend(back_end):
            first, state = model(u[:18])
            outputs, state = model(u[18:], state)
            targets = torch.arange(outputs[..., 0].numel(), device=place).view(outputs.shape[:-1]) % CLASSES
            loss = cross_entropy(outputs, targets)
            results.append(_with_gradients(leaves, [first, outputs, *state, targets.numel() * loss]))
        expected = "reference" if back_end == "reference" else "cpu"
        assert place != "cpu" or backends.last_used() <= {expected}
    errors = [distance(actual, expected) for actual, expected in zip(*results, strict=True)]
    assert [error for error in errors if not error <= TOLERANCE] == []  # NaN is wrong, too


def _with_gradients(leaves: list[Tensor], results: list[Tensor]) -> list[Tensor]:
    """Return results with the gradients of the leaves, for a loss so large that `distance` counts small gradients."""
    values = [torch.view_as_real(each) if each.is_complex() else each for each in results]
    ways = [10 * normal(*value.shape, seed=20 + i).to(value) for i, value in enumerate(values)]
    gradients = torch.autograd.grad(values, leaves, ways, allow_unused=True, materialize_grads=True)
    return [each.detach().double().cpu() for each in (*values, *gradients)]


@pytest.mark.parametrize("name", [name for name in get_args(OptimizerName) if not name.startswith("cayley")])
def test_steps_of_an_optimiser_round_as_those_of_torch(name: OptimizerName) -> None:
    results = []
    for back_end in ("auto", "reference"):
        parameters = [torch.nn.Parameter(normal(*shape, seed=0).float()) for shape in ((170,), (33, 7))]
        optimizer = build_optimizer(name, parameters, 3.3e-3, 0.1 if name == "adamw" else 0.0)
        with use_backend(back_end):
            for seed in range(3):
                for parameter in parameters:
                    parameter.grad = normal(*parameter.shape, seed=seed + 1).float()
                optimizer.step()
        results.append(parameters)
    assert all(torch.equal(actual, expected) for actual, expected in zip(*results, strict=True))
