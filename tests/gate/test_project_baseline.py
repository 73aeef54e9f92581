"""The project's own baseline has every model and task, and each of its runs can be decided and has to learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthobench.gate.baseline import condition, read_baseline
from orthobench.gate.update import vacuous_metrics
from orthobench.gate.verdict import refusal
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

BASELINE = read_baseline(Path(__file__).parents[2] / "checks" / "baseline.toml")
CATALOG = Catalog()


def test_every_model_is_in_the_baseline():
    built_in = {plugin.name for plugin in CATALOG if plugin.kind == "model" and plugin.origin == "built in"}
    assert {run.model for run in BASELINE.run} == built_in


@pytest.mark.parametrize("run", BASELINE.run, ids=[run.name for run in BASELINE.run])
def test_every_run_can_be_decided_and_has_to_learn(run):
    config = resolve(CATALOG, run.task, run.model, run.settings, run.preset, 0)
    assert refusal(run, condition(config.spec)) is None
    assert vacuous_metrics(run, config) == []
    assert run.preset == "quick"
    assert BASELINE.origin(run) is not None
    assert all(len(metric.values) >= (1 if run.exact else 20) for metric in run.metrics.values())
    assert all(run.exact or (metric.allowed_loss is None and metric.margin) for metric in run.metrics.values())


def test_every_task_has_an_exact_run():
    exact = [run for run in BASELINE.run if run.exact]
    assert {run.task for run in exact} == {
        plugin.name for plugin in CATALOG if plugin.kind == "task" and plugin.origin == "built in"
    }
    configs = [resolve(CATALOG, run.task, run.model, run.settings, run.preset, 0) for run in exact]
    settings = [config.training for config in configs]
    models = [config.model_settings.model_dump() for config in configs]
    assert all(run.tolerance for run in exact)
    assert all(model["learning_rate"] != model.get("recurrent_learning_rate") for model in models)
    assert all(training.clip_norm or training.clip_value for training in settings)
    assert all(training.learning_rate_decay < 1 for training in settings)
    assert sum(training.plateau_decay < 1 for training in settings) >= 2
    assert all(training.shuffle or run.task == "ptb" for training, run in zip(settings, exact, strict=True))
    assert {run.task for run in exact if any(name.startswith("valid/") for name in run.metrics)} == {
        "mnist",
        "cifar10",
        "fitzhugh_nagumo",
        "ptb",
        "timit",
    }
