"""A single run imports only what it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import orthobench
from workshop.traced_run import PROGRAM


def test_run_imports_only_what_it_uses(tmp_path):
    small = ["sequence_length=10", "train_size=40", "test_size=20", "batch_size=10", "epochs=1", "optimizer=adam"]
    words = ["run", "adding", "scornn", "--device", "cpu", *(word for setting in small for word in ("-s", setting))]
    command = [sys.executable, "-c", PROGRAM, str(Path(orthobench.__file__).parent), *words, "--db", "r.db"]
    environment = {**os.environ, "ORTHOBENCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result, traced = done.stdout.splitlines()
    assert "finished" in result
    modules = set(json.loads(traced)["modules"])
    branches = ("executors.ray", "executors.slurm", "executors.processes", "data.mnist", "planning.grid")
    assert {f"orthobench.{name}" for name in branches} & modules == set()
    compiler = {"torch._dynamo", "torch.distributed.tensor"} & modules
    assert not compiler, "torch's compiler takes nearly as long to import as torch"
