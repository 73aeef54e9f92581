"""Whether what a cell is before training predicts its score, on planted cells and on cells with a known gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthobench.isolation import isolated
from orthobench.plugins import Catalog
from orthobench.probes._jacobians import start, state_jacobian
from orthobench.spec.resolve import RunConfig, RunSpec, resolve
from orthobench.task import Batch
from orthobench.training.build import build_trainer
from orthobench.training.device import CPU
from workshop.website import predictors
from workshop.website.predictors import Tuned, advantage, correlation, measure

FAMILIES = [f"family {number}" for number in range(6)]


def planted(score_of, seed: int = 0) -> list[Tuned]:
    draws = np.random.default_rng(seed).lognormal(0, 3, 36)
    return [
        Tuned(FAMILIES[number % 6], score_of(number, draw), {"quantity": float(draw)})
        for number, draw in enumerate(draws)
    ]


def test_quantity_that_decides_the_score_is_found():
    cells = planted(lambda number, draw: 1 / (1 + draw))
    related, low, high = correlation(cells, "quantity")
    assert (related, low, high) == pytest.approx((-1, -1, -1))
    error, gain, low, _ = advantage(cells, ["quantity"])
    assert gain > 0.7 * error
    assert low > 0


def test_quantity_without_meaning_is_not_found():
    scores = np.random.default_rng(1).uniform(size=36)
    cells = planted(lambda number, draw: scores[number])
    _, low, high = correlation(cells, "quantity")
    assert low < 0 < high
    *_, low, high = advantage(cells, ["quantity"])
    assert low < 0 < high or high < 0


def test_family_that_alone_explains_a_correlation_is_left_out():
    # Within families the quantity says nothing: one family has high scores and high values, the others neither.
    draws, noises = np.random.default_rng(2).uniform(size=(2, 36))
    cells = [
        Tuned(FAMILIES[number % 6], (number % 6 == 0) + noise, {"quantity": draw + 10 * (number % 6 == 0)})
        for number, (draw, noise) in enumerate(zip(draws, noises / 10, strict=True))
    ]
    assert correlation(cells, "quantity")[0] > 0.3
    assert advantage(cells, ["quantity"])[2] <= 0


def test_orthogonal_steps_keep_the_gradient():
    # modReLU has the derivative 1 for numbers away from its bias, which is 0 at the start.
    assert measure(spec_of("scornn")) == (16, pytest.approx(1, abs=1e-4))


def test_gradient_kept_is_that_of_the_whole_jacobian():
    spec = spec_of("gru")
    with isolated():
        trainer = build_trainer(RunConfig(spec, Catalog()), CPU)
        inputs = Batch.of(trainer.task.train, torch.arange(predictors.SEQUENCES)).inputs
        jacobians = state_jacobian(trainer.model, inputs, start(trainer.model, predictors.SEQUENCES))
    truth = float(jacobians.square().sum((1, 2)).mean().div(16).sqrt())
    assert 0 < truth < 0.5
    assert measure(spec)[1] == pytest.approx(truth, rel=0.2)  # a sample of random vectors


def spec_of(model: str) -> RunSpec:
    return resolve(Catalog(), "adding", model, {"sequence_length": 5, "hidden_size": 16}, "quick").spec
