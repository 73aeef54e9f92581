"""checks/gpu.py: what it packs comes back, steps end in time, and results merge."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from orthobench.options import RunOptions
from orthobench.planning.listed import runs_in
from orthobench.plugins import Catalog
from orthobench.store import open_store
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CHECKS = Path(__file__).parents[2] / "checks"
LIST = """
[[runs]]
task = "adding"
models = ["rnn"]
preset = "quick"
settings = { n = 4, sequence_length = 9, train_size = 40, test_size = 9, batch_size = 8, epochs = 3 }
seeds = 2
"""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKS))
    spec = importlib.util.spec_from_file_location("checks_gpu", CHECKS / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "checks_gpu", module)
    spec.loader.exec_module(module)
    return module


def test_step_that_outlives_its_time_is_interrupted(gpu, tmp_path):
    log = tmp_path / "log.txt"
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\nprint('begun', flush=True)\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n"
        "    print('saved')\n    raise SystemExit(3)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    step = gpu.Step("waits", ["waits"], None)
    begin = time.monotonic()
    limit = 2.0
    while True:  # on a busy machine Python itself may take longer to start
        code = gpu.execute(step, limit, environment, log)
        if "begun" in log.read_text() or time.monotonic() - begin > 300:
            break
        limit *= 2
    assert (code, log.read_text()) == (3, "begun\nsaved\n")


def test_step_without_time_is_not_started(gpu, tmp_path):
    assert gpu.execute(gpu.Step("late", ["this_module_does_not_exist"], None), -1.0, {}, tmp_path / "log") == 124


def test_requirements_come_along(gpu):
    packages = {name.lower() for name in gpu.needed(["sqlalchemy", "alembic", "a-package-that-does-not-exist"])}
    assert packages >= {"sqlalchemy", "alembic", "mako", "markupsafe", "typing-extensions"}
    assert "a-package-that-does-not-exist" not in packages


def test_results_of_another_machine_are_merged(gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(LIST)
    Path("gpu/results").mkdir(parents=True)
    first, second = (run.config for run in runs_in(Path("list.toml"), Catalog()))
    database, benchmarks = Path("gpu/runs.db"), Path("gpu/benchmarks.db")
    with open_store(str(database), create=True) as store:
        train(first, store, RunOptions(device="cpu"))
        calls = iter(range(1000))
        with pytest.raises(Interrupted):
            train(second, store, RunOptions(device="cpu"), should_stop=lambda: next(calls) > 7)
    with open_store(str(benchmarks), create=True) as store:
        store.add_benchmark("models", {"models": []}, {"cpu": "one"})
    with open_store("results.db", create=True):
        pass
    gpu.pack(database, benchmarks, Path("gpu/results"))
    for file in (database, benchmarks):
        file.unlink()
    gpu.fold(Path("list.toml"))
    with open_store("results.db") as store:
        assert {run.key: str(run.status) for run in store.runs()} == {
            first.spec.key: "finished",
            second.spec.key: "interrupted",
        }
        assert [each.name for each in store.benchmarks()] == ["models"]
    assert [file.name for file in Path("reports/checkpoints").iterdir()] == [f"{second.spec.key}.pt.gz"]
