"""A stored spec is read as JSON reads it, with the hashes that `run_names` computes."""

from __future__ import annotations

import json
import re

import pytest

from orthobench.settings import run_names
from orthobench.store.specs import Spec, read_json
from orthobench.system.strict_json import load_json

SPEC = {
    "task": "adding",
    "model": "rnn",
    "task_settings": {"sequence_length": 20, "data": "/a", "data_sha256": "0f"},
    "model_settings": {"hidden_size": 8, "text": ', "seed": 3}'},
    "training": {"batch_size": 5, "clip_norm": None, "shuffle": False},
    "task_version": "1",
    "model_version": "2",
}


@pytest.mark.parametrize("seed", [0, 7, 2**40])
def test_spec_is_read_with_its_names(seed):
    spec = read_json(json.dumps(SPEC | {"seed": seed}))
    assert isinstance(spec, Spec)
    assert spec == SPEC | {"seed": seed}
    assert spec.names == run_names(dict(spec))


def test_specs_of_a_variant_share_nothing_that_a_program_may_change():
    first, second = (read_json(json.dumps(SPEC | {"seed": seed})) for seed in (0, 1))
    first["training"]["batch_size"] = 99
    first["task"] = "other"
    assert second == SPEC | {"seed": 1}
    assert read_json(json.dumps(SPEC | {"seed": 0})) == SPEC | {"seed": 0}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SPEC | {"training": {"milestones": [1, 2]}, "seed": 0}),
        json.dumps(SPEC | {"seed": -1}),
        json.dumps(SPEC | {"seed": True}),
        json.dumps({"seed": 0} | SPEC),
        json.dumps({"a": {"b": 1, "seed": 2}}),
        '{"a": 1, "seed": 0}',
        '[{"a": 1, "seed": 0}]',
        '{"a": 1, "seed": 0}}',
        '{"a": 1, "seed": 007}',
        '{"a": , "seed": 0}',
        '{"a": NaN, "seed": 0}',
        '{"a": 1e999, "seed": 0}',
        json.dumps(', "seed": 0}'),
        "",
    ],
)
def test_other_texts_are_read_as_json(text):
    try:
        expected = load_json(text)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            read_json(text)
    else:
        value = read_json(text)
        assert value == expected
        assert type(value) is type(expected)
