"""A job makes the same run again from what it carries."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from pydantic import Field

from orthobench.errors import UsageError
from orthobench.executors.job import Ending, Job, attempt
from orthobench.papers import papers
from orthobench.plugins import Catalog
from orthobench.settings import Settings
from orthobench.spec.resolve import resolve, resolve_again
from orthobench.store import Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.events import EventSink


def test_every_published_run_is_restored_from_its_canonical_form():
    catalog, seen = Catalog(), 0
    for paper in papers():
        for experiment in paper.experiments():
            try:
                config = resolve(catalog, experiment.task, experiment.model, {}, seed=3, experiment=experiment)
            except UsageError:  # a model of the paper that there is not here
                continue
            assert resolve_again(catalog, pickle.loads(pickle.dumps(config.spec))) == config
            seen += 1
    assert seen > 100


def test_setting_at_its_neutral_value_is_restored_as_such():
    class Later(Settings):
        size: int = 3
        factor: float = Field(2.0, json_schema_extra={"neutral": 1.0})

    for factor in (1.0, 2.0, 3.0):
        settings = Later(size=4, factor=factor)
        assert Later.restore(settings.canonical()) == settings


def test_failure_after_the_end_keeps_the_result(tmp_path, tiny, monkeypatch):
    database = str(tmp_path / "r.db")
    job = Job(resolve(Catalog(), "adding", "lstm", tiny).spec, "a", Location.of(database))

    def fails(_):
        raise RuntimeError("the place of the checkpoints is gone")

    monkeypatch.setattr(CheckpointFolder, "clear", fails)
    assert attempt(job, EventSink()).ending == Ending.FAILED
    with open_store(database) as store:
        (run,) = store.runs()
    assert (run.status, run.message) == (Status.FINISHED, None)


def test_job_of_other_code_is_refused(tiny):
    config = resolve(Catalog(), "adding", "lstm", tiny)
    with pytest.raises(UsageError, match=r"has adding 1 and lstm 1, and the run needs adding 1 and lstm 1[.]5;"):
        resolve_again(Catalog(), replace(config.spec, model_version="1.5"))
    settings = {name: value for name, value in config.spec.model_settings.items() if name != "forget_bias"}
    with pytest.raises(UsageError, match="its settings differ here, with the same versions adding 1 and lstm 1;"):
        resolve_again(Catalog(), replace(config.spec, model_settings=settings))
