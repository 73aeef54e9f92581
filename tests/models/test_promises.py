"""What each model's construction promises, after 200 steps of training on a task's data."""

from typing import get_args

import numpy as np
import pytest
import torch
from support.models import trained

from orthobench.model.base import Family
from orthobench.plugins import Catalog
from orthobench.probes.orthogonality import orthogonality

ORTHOGONAL = [entry.name for entry in Catalog() if entry.kind == "model" and entry.load().orthogonal]
EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", Catalog().built_in("model"))
def test_every_model_belongs_to_a_family(name):
    assert Catalog().load("model", name).family in get_args(Family)


def distances(name: str, **settings) -> list[float]:
    return [orthogonality(matrix.detach()) for matrix in trained(name, **settings).recurrent_matrices().values()]


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_orthogonal_by_construction_stays_orthogonal_to_rounding(name):
    assert max(distances(name)) <= 10 * 16 * EPS


def test_unconstrained_rnn_leaves_orthogonality():
    assert max(distances("rnn")) > 0.1


@pytest.mark.parametrize("diffusion", [0.0, 0.1])
def test_antisymmetric_matrix_stays_antisymmetric(diffusion):
    w = trained("antisymmetric", diffusion=diffusion).weight().detach()
    assert torch.equal(w - w.diag().diag(), -(w - w.diag().diag()).T)
    torch.testing.assert_close(w.diag(), torch.full((16,), -diffusion))


def test_enrnn_radius_stays_at_most_one():
    """From above 1, which the first step notices and corrects for good."""

    def widen(model):
        model.short_weight.mul_(1.05 / model.radius())

    model = trained("enrnn", prepare=widen, learning_rate=1e-2, short_size=8, negative_ones=2)
    assert model.normalised
    results = np.linalg.eigvals(model.weight().detach().double().numpy())
    assert np.abs(results).max() <= 1 + 1e-5


def test_full_capacity_matrix_drifts_with_the_steps():
    """As in figure 4 of the scoRNN paper: by rounding alone, but more and more of it."""
    early, late = (distances("full_urnn", iterations=count)[0] for count in (20, 200))
    assert 2 * early < late < 1e-3


@pytest.mark.parametrize(
    ("name", "margin"), [("spectral_rnn", 0.05), ("soft_orthogonal", 0.1), ("soft_orthogonal", 0.0)]
)
def test_singular_values_stay_inside_the_margin(name, margin):
    values = torch.linalg.svdvals(trained(name, margin=margin).weight().detach().double())
    assert 1 - margin - 1e-4 <= values.min()
    assert values.max() <= 1 + margin + 1e-4
