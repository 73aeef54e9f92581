"""The size of a state is that of what two steps return."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.spec.model_sizes import Counter
from orthobench.spec.resolve import resolve
from orthobench.spec.state_sizes import state_sizes

CATALOG = Catalog()


def config_of(model: str, **settings):
    given = {"sizes": "single", "vocabulary": "128", "hidden_size": "16", **settings}
    return resolve(CATALOG, "mqar", model, given, published=False)


@pytest.mark.parametrize("name", CATALOG.names("model"))
def test_declared_size_is_that_of_the_state_after_two_steps(name):
    config = config_of(name)
    model = build_model(config.model_class, config.model_settings, Signature(5, 3, "all"), torch.Generator()).eval()
    with torch.no_grad():
        _, state = model(torch.zeros(2, 1, 5))
    numbers = sum(torch.view_as_real(part).numel() if part.is_complex() else part.numel() for part in state)
    assert Counter().state_size(config) == numbers


def test_sizes_are_those_of_the_equations():
    specs = {
        "gru": config_of("gru").spec,
        "lstm": config_of("lstm").spec,
        "stacked": config_of("lstm", layers="3").spec,
        "stack": config_of("stack_lstm", stack_depth="10", stack_width="2").spec,
    }
    assert state_sizes(specs) == {"gru": 16, "lstm": 32, "stacked": 96, "stack": 52}


def test_strange_runs_have_no_size():
    """A layer of another program, whose code a stored name must not import, and settings that no model has."""
    spec, changes = config_of("lstm").spec, ({"model": "os.path:join"}, {"model_settings": {"hidden_size": -1}})
    foreign, broken = (type(spec)(**{**asdict(spec), **change}) for change in changes)
    assert state_sizes({"foreign": foreign, "broken": broken, "known": spec}) == {"known": 32}


def test_large_states_take_no_memory():
    assert state_sizes({"a": config_of("lstm", hidden_size="100000").spec}) == {"a": 200_000}
