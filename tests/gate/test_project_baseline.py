"""The project's own baseline holds every model, and none of its runs would let through what learnt nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthobench.gate.baseline import condition, read_baseline
from orthobench.gate.update import vacuous_metrics
from orthobench.gate.verdict import refusal
from orthobench.plugins import Catalog
from orthobench.spec import resolve

BASELINE = read_baseline(Path(__file__).parents[2] / "checks" / "baseline.toml")
CATALOG = Catalog()


def test_every_model_is_in_it():
    built_in = {plugin.name for plugin in CATALOG if plugin.kind == "model" and plugin.origin == "built in"}
    assert {run.model for run in BASELINE.run} == built_in


@pytest.mark.parametrize("run", BASELINE.run, ids=[run.name for run in BASELINE.run])
def test_a_run_can_be_decided_and_has_to_have_learnt(run):
    config = resolve(CATALOG, run.task, run.model, run.settings, run.preset, 0)
    assert refusal(run, condition(config.spec)) is None
    assert vacuous_metrics(run, config) == []
    assert all(len(metric.values) >= 20 and metric.margin is not None for metric in run.metrics.values())
    assert run.preset == "quick"
    assert BASELINE.origin(run) is not None
