"""The states of a sweep's runs, and results of older code among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from support.records import run_record

from orthobench.planning.sweep_runs import PlannedRun, plan
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, RunSpec, resolve
from orthobench.store import Status, Store, open_store
from orthobench.training.checkpoint import CheckpointFolder

CATALOG = Catalog()
NOW = resolve(CATALOG, "adding", "scornn", {"hidden_size": "8"})


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "r.db"), create=True) as opened:
        yield opened


def enter(store: Store, spec: RunSpec, status: str = Status.FINISHED, **columns):
    run = store.start(run_record(spec), {"cpu": "x"})
    store.update(run.id, {"status": status, **columns})
    return spec.key


def planned(store: Store, tmp_path: Path, config: RunConfig = NOW) -> PlannedRun:
    (planned_run,) = plan([(config, {})], store, tmp_path / "checkpoints")
    return planned_run


@pytest.mark.parametrize(
    ("status", "state", "is_pending"),
    [
        ("finished", "finished", False),
        ("diverged", "diverged", False),
        ("failed", "failed", True),
        ("interrupted", "interrupted", True),
        ("running", "interrupted", True),  # for nobody is at it
    ],
)
def test_state_of_a_run_follows_its_status(store, tmp_path, status, state, is_pending):
    assert planned(store, tmp_path).state == "missing"
    enter(store, NOW.spec, status)
    planned_run = planned(store, tmp_path)
    assert (planned_run.state, planned_run.is_pending, planned_run.older_run) == (state, is_pending, None)


def test_run_held_by_another_process_is_left_to_it(store, tmp_path):
    enter(store, NOW.spec, "running")
    with CheckpointFolder(tmp_path / "checkpoints", NOW.spec.key).lock():
        planned_run = planned(store, tmp_path)
    assert (planned_run.state, planned_run.is_pending) == ("running", False)


def raised(model: str = "1", task: str = "1") -> RunConfig:
    return replace(NOW, spec=replace(NOW.spec, model_version=model, task_version=task))


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [
        (raised("2"), raised("1"), "version of scornn 1 -> 2"),
        (raised("3", "2"), raised("1", "1"), "version of adding 1 -> 2, scornn 1 -> 3"),
        (raised("1+bbbb"), raised("1+aaaa"), "version of scornn 1+aaaa -> 1+bbbb"),
        (raised("2+aaaa"), raised("1+aaaa"), "version of scornn 1+aaaa -> 2+aaaa"),
    ],
)
def test_result_of_an_older_version_makes_a_run_stale(store, tmp_path, now, before, change):
    key = enter(store, before.spec)
    planned_run = planned(store, tmp_path, now)
    assert (planned_run.state, planned_run.is_pending, planned_run.change) == ("stale", True, change)
    assert planned_run.older_run.key == key
    enter(store, now.spec)
    assert planned(store, tmp_path, now).state == "finished"


@pytest.mark.parametrize(
    "other",
    [
        raised("3").spec,  # newer code has been here
        NOW.spec.with_seed(1),
        resolve(CATALOG, "adding", "scornn", {"hidden_size": "9"}).spec,
        resolve(CATALOG, "adding", "scornn", {"hidden_size": "8", "bandwidth": "3"}).spec,
        resolve(CATALOG, "adding", "scornn", {"hidden_size": "8", "epochs": "1"}).spec,
        resolve(CATALOG, "adding", "lstm", {"hidden_size": "8"}).spec,
    ],
    ids=["newer", "seed", "setting", "neutral", "training", "model"],
)
def test_result_of_another_run_does_not_make_a_run_stale(store, tmp_path, other):
    enter(store, other)
    assert planned(store, tmp_path, raised("2")).state == "missing"


def test_unfinished_older_result_does_not_make_a_run_stale(store, tmp_path):
    enter(store, raised("1").spec, "interrupted")
    assert planned(store, tmp_path, raised("2")).state == "missing"


def test_newest_older_result_is_named(store, tmp_path):
    enter(store, raised("1").spec)
    newest = enter(store, raised("2").spec)
    assert planned(store, tmp_path, raised("3")).older_run.key == newest


SETTINGS: Any = type(NOW.model_settings)


class Longer(SETTINGS):
    """scoRNN's settings with one that was added since, and changes something even where it is left alone."""

    added: int = Field(3)


@pytest.mark.parametrize(("value", "state"), [("3", "stale"), ("4", "missing")])
def test_setting_added_since_must_have_its_neutral_value(store, tmp_path, monkeypatch, value, state):
    enter(store, NOW.spec)
    monkeypatch.setattr(NOW.model_class, "Settings", Longer)
    settings = Longer.read(NOW.spec.model_settings | {"added": value}).canonical()
    now = replace(NOW, spec=replace(NOW.spec, model_settings=settings, model_version="2"))
    assert planned(store, tmp_path, now).state == state
    same_version = replace(now, spec=replace(now.spec, model_version="1"))
    assert planned(store, tmp_path, same_version).change == ("settings added or removed" if state == "stale" else "")


def test_removed_setting_is_ignored(store, tmp_path):
    enter(store, replace(NOW.spec, model_settings=NOW.spec.model_settings | {"gone": 1}))
    assert planned(store, tmp_path).state == "stale"


def test_edited_plugin_file_makes_its_results_stale(orthobench, tmp_path, tiny_options):
    file = tmp_path / "mine.py"
    text = "from orthobench.models.rnn import RNN\nclass Mine(RNN):\n    title = 'mine'\n"
    file.write_text(text)
    command = ("sweep", "adding", "--models", "mine", "--plugin", "mine.py", *tiny_options)
    assert orthobench(*command).code == 0
    assert "1 finished" in orthobench(*command, "--dry-run").out
    file.write_text(text + "# another try\n")
    edited = orthobench(*command, "--dry-run", "--no-profile")
    assert "1 stale" in edited.out
    assert "stale: version of mine 1+" in edited.out
