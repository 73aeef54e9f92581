"""workshop.gpu: what it packs comes back, steps end in time, and results merge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orthobench.options.run_options import RunOptions
from orthobench.planning.listed import runs_in
from orthobench.plugins import Catalog
from orthobench.store import open_store
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted
from workshop import gpu

ROOT = Path(__file__).parents[2]
LIST = """
[[runs]]
task = "adding"
models = ["rnn"]
preset = "quick"
settings = { n = 4, sequence_length = 9, train_size = 40, test_size = 9, batch_size = 8, epochs = 3 }
seeds = 2
"""


def test_step_that_outlives_its_time_is_interrupted(tmp_path):
    log = tmp_path / "log.txt"
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\nprint('begun', flush=True)\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n"
        "    print('saved')\n    raise SystemExit(3)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    step = gpu.GPUStep("waits", ["waits"], None)
    begin = time.monotonic()
    limit = 2.0
    while True:  # on a busy machine Python itself may take longer to start
        code = gpu.execute(step, limit, environment, log)
        if "begun" in log.read_text() or time.monotonic() - begin > 300:
            break
        limit *= 2
    assert (code, log.read_text()) == (3, "begun\nsaved\n")


def test_wheels_are_those_of_the_tests_without_those_of_pytorch():
    """The tests of all folders are collected, so what they import is needed too, in whatever file."""
    packed = gpu.packed()
    assert packed >= {"hypothesis", "jinja2", "pandas", "plotly", "pytest", "safetensors", "scipy", "soundfile"}
    assert not packed & {"numpy", "orthobench", "sympy", "torch", "triton"}


def test_prepare_refuses_to_start_while_results_are_not_merged(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    results = tmp_path / "gpu/results/1/runs.db.gz"
    results.parent.mkdir(parents=True)
    results.write_bytes(b"days of work")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "prepare"])
    monkeypatch.chdir(tmp_path)
    assert gpu.main() == 2
    assert capsys.readouterr().err == "gpu/results/1 is not merged yet: make gpu-fold, or move it away\n"
    assert results.read_bytes() == b"days of work"


def test_prepare_keeps_runs_that_no_fold_has_merged(tmp_path, monkeypatch):
    """On the machine of the runs, a kill may leave them in gpu/runs.db alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("gpu/runs.db", "gpu/runs.db.checkpoints/key/newest.pt", "gpu/folded/1/runs.txt", "gpu/wheels/old.whl"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    for name in ("pack_commit", "pack_data", "pack_runs"):
        monkeypatch.setattr(gpu, name, lambda *_: None)
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: None)
    gpu.prepare("3.12", Path("list.toml"))
    left = {str(file) for file in Path("gpu").rglob("*") if file.is_file()}
    assert left == {"gpu/runs.db", "gpu/runs.db.checkpoints/key/newest.pt", "gpu/folded/1/runs.txt"}


def test_second_run_leaves_the_results_of_the_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, "on_this_machine", lambda: dict(os.environ))
    codes = iter((0, 1))
    monkeypatch.setattr(gpu, "execute", lambda step, limit, environment, log: log.write_text(step.name) and next(codes))
    assert gpu.run(1.0, Path("list.toml"), ["tests"]) == 0
    assert gpu.run(1.0, Path("list.toml"), ["cells"]) == 1
    assert [folder.name for folder in gpu.unfolded()] == ["1", "2"]
    assert Path("gpu/results/1/tests.txt").read_text() == "tests"
    assert Path("gpu/results/2/cells.txt").read_text() == "cells"


def test_run_that_is_stopped_packs_what_it_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, "on_this_machine", lambda: dict(os.environ))

    def execute(step, limit, environment, log):
        with open_store("gpu/runs.db", create=True):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "execute", execute)
    assert gpu.run(1.0, Path("list.toml"), ["runs"]) == 1
    assert Path("gpu/results/1/runs.db.gz").exists()


def test_results_of_another_machine_are_merged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(LIST)
    results = gpu.next_folder(Path("gpu/results"))
    first, second = (run.config for run in runs_in(Path("list.toml"), Catalog()))
    database = Path("gpu/runs.db")
    with open_store(str(database), create=True) as store:
        train(first, store, RunOptions(device="cpu"))
        calls = iter(range(1000))
        with pytest.raises(Interrupted):
            train(second, store, RunOptions(device="cpu"), should_stop=lambda: next(calls) > 7)
        store.add_benchmark("models", {"models": []}, {"cpu": "one"})
    gpu.pack(results)
    assert {file.name for file in results.iterdir()} == {"runs.db.gz", "checkpoints.tar.gz"}
    kept = database.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("orthobench.store.merge.merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gpu.fold()
    assert gpu.unfolded() == [results]
    gpu.fold()
    assert gpu.unfolded() == []
    assert database.read_bytes() == kept
    assert {file.name for file in Path("gpu/folded/1").iterdir()} == {"runs.db.gz", "checkpoints.tar.gz"}
    with open_store("results.db") as store:
        assert {run.key: str(run.status) for run in store.runs()} == {
            first.spec.key: "finished",
            second.spec.key: "interrupted",
        }
        assert [each.name for each in store.benchmarks()] == ["models"]
        assert train(second, store, RunOptions(device="cpu")).status == "finished"
    assert [folder.name for folder in Path("results.db.checkpoints").iterdir() if folder.is_dir()] == []


def interrupted(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_results_and_checkpoints_go_to_the_other_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(LIST)
    Path("gpu").mkdir()
    first, second = (run.config for run in runs_in(Path("list.toml"), Catalog()))
    with open_store("results.db", create=True) as store:
        train(first, store, RunOptions(device="cpu"))
        calls = iter(range(1000))
        with pytest.raises(Interrupted):
            train(second, store, RunOptions(device="cpu"), should_stop=lambda: next(calls) > 7)
        store.add_benchmark("models", {"models": []}, {"cpu": "one"})
    gpu.pack_runs(Path("list.toml"))
    with open_store("gpu/runs.db") as store:
        assert {run.key for run in store.runs()} == {first.spec.key, second.spec.key}
        assert store.benchmarks() == []
    assert [folder.name for folder in Path("gpu/runs.db.checkpoints").iterdir()] == [second.spec.key]


def test_command_of_the_makefile_merges(tmp_path):
    """It finds its modules under the names that they have when `make` runs it."""
    shutil.copytree(ROOT / "workshop", tmp_path / "workshop")
    Path(tmp_path, "gpu/results/1").mkdir(parents=True)
    (words,) = re.findall(r"^gpu-fold:.*\n\t\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    done = subprocess.run([sys.executable, *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [folder.name for folder in Path(tmp_path, "gpu/folded").iterdir()] == ["1"]
