"""Every model of the package meets the contract that authors of plugins meet."""

from typing import Any, get_args

import pytest
import torch

from orthobench.model import ModelSettings, Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.testing import problems

pytestmark = pytest.mark.grid


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_every_model_meets_the_contract(name):
    assert problems("model", Catalog().load("model", name)) == []


def choices() -> list[Any]:
    """Every value that a setting of a model chooses from a few: texts, and true or false.

    The settings that all models have are read by the same code, so one model in eight stands for all in a quick test.
    """
    combinations: list[Any] = []
    catalog = Catalog()
    names = catalog.names("model")
    for name in names:
        for setting, field in catalog.load("model", name).Settings.model_fields.items():
            values = (True, False) if field.annotation is bool else get_args(field.annotation)
            quick = setting not in ModelSettings.model_fields or name in names[::8]
            marks = () if quick else pytest.mark.slow
            chosen = (value for value in values if isinstance(value, str | bool))
            combinations += [pytest.param(name, setting, value, marks=marks) for value in chosen]
    return combinations


@pytest.mark.parametrize(("name", "setting", "value"), choices())
def test_every_setting_draws_from_the_given_generator_alone(name, setting, value):
    needs = {("soft_orthogonal", "glorot"): {"margin": None}}.get((name, value), {})
    if setting == "embedding_start":
        needs = {"embedding_size": 3}
    before = torch.get_rng_state()
    cls = Catalog().load("model", name)
    settings = cls.Settings.read({"hidden_size": 8, setting: value, **needs})
    first, again = (
        build_model(cls, settings, Signature(4, 3, "all"), torch.Generator().manual_seed(0)).state_dict()
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
