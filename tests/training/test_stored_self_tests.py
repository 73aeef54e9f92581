"""The self-tests of the CUDA kernels that a run relied on are stored with its segment."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from orthobench.cli import app
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.recurrence import backends, operation
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.training.lifecycle import train

MACHINE = {"device": "a fake GPU", "driver": "580.65.06", "code": "abc"}


@pytest.fixture
def fake_verdict(monkeypatch):
    """Every call of a recurrence records a verdict, as those on a GPU do; a function changes its reason."""
    reasons = []
    run = operation.run

    def recorded(call):
        backends.record_self_test("recurrence", reasons[-1] if reasons else "passed", MACHINE)
        return run(call)

    monkeypatch.setattr(operation, "run", recorded)
    yield reasons.append
    backends.forget_used()


def trained(config, folder):
    with open_store(str(folder / "r.db"), create=True) as store:
        run = train(config, store, RunOptions(device="cpu"))
        return run, store.segments([run.id])


def test_run_stores_the_self_tests_of_its_kernels(tiny, tmp_path, fake_verdict):
    runs = [resolve(Catalog(), "adding", "scornn", tiny, seed=seed) for seed in range(3)]
    run, (segment,) = trained(runs[0], tmp_path)
    assert run.status == Status.FINISHED
    assert segment.environment.facts["self_tests"] == MACHINE | {"tests": {"recurrence": "passed"}}
    assert segment.environment.facts["packages"]["torch"]
    assert run.environment.digest == segment.environment.digest
    _, (other,) = trained(runs[1], tmp_path)
    assert other.environment.id == segment.environment.id, "runs on the same machine share the record"
    fake_verdict("differs from the reference")
    _, (failed,) = trained(runs[2], tmp_path)
    assert failed.environment.facts["self_tests"]["tests"] == {"recurrence": "differs from the reference"}
    shown = CliRunner().invoke(app, ["show", run.key, "--db", str(tmp_path / "r.db"), "--json"])
    assert json.loads(shown.stdout)["segments"][0]["environment"]["self_tests"]["driver"] == "580.65.06"


def test_run_without_cuda_stores_no_self_test(tiny, tmp_path):
    _, (segment,) = trained(resolve(Catalog(), "adding", "scornn", tiny, seed=0), tmp_path)
    assert "self_tests" not in segment.environment.facts
