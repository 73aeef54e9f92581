"""Models whose outputs are an affine function of their inputs: exactly those that say so."""

from __future__ import annotations

import pytest
import torch

from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog

MODELS = {plugin.name: plugin.load() for plugin in Catalog() if plugin.kind == "model" and plugin.is_built_in}
CASES = [(name, {}) for name in MODELS] + [
    (name, {setting: value for setting, value in model.affine_if.items() if setting != "block"})
    for name, model in MODELS.items()
    if model.affine_if and set(model.affine_if) != {"block"}
]


def departure(name: str, settings: dict) -> float:
    """Return by how much f(x + y) - f(x) - f(y) + f(0) differs from 0, for random weights."""
    model_class = MODELS[name]
    record = model_class.Settings.read({"hidden_size": 8, **settings})
    model = build_model(model_class, record, Signature(2, 3, "last"), torch.Generator().manual_seed(0)).double().eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        x, y = torch.randn(2, 5, 4, 2, generator=draw, dtype=torch.float64)
        outputs = [model(each)[0] for each in (x + y, x, y, 0 * x)]
    together, first, second, nothing = outputs
    return float((together - first - second + nothing).abs().max() / (first - nothing).abs().max())


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_model_is_affine_exactly_if_it_says_so(name, settings):
    needed = MODELS[name].affine_if
    default = MODELS[name].Settings.read({"hidden_size": 8, **settings}).model_dump()
    says_so = needed is not None and all(default[setting] == value for setting, value in needed.items())
    assert (departure(name, settings) < 1e-9) == says_so
