"""A single run passes through the listed files, and imports only what it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orthobench
from workshop.traced_run import PROGRAM

PACKAGE = Path(orthobench.__file__).parent
LISTED = Path(__file__).with_name("files_of_a_run.txt")
"""The files whose functions a run calls. A change that adds one is to say why the run needs it."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> dict[str, list[str]]:
    small = ["sequence_length=10", "train_size=40", "test_size=20", "batch_size=10", "epochs=1", "optimizer=adam"]
    words = ["run", "adding", "scornn", "--device", "cpu", *(word for setting in small for word in ("-s", setting))]
    command = [sys.executable, "-c", PROGRAM, str(PACKAGE), *words, "--db", "r.db"]
    folder, cache = tmp_path_factory.mktemp("counted"), tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "ORTHOBENCH_CACHE": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result, counts = done.stdout.splitlines()
    assert "finished" in result
    traced = json.loads(counts)
    return {"files": [file for file, _ in traced["called"]], "modules": traced["modules"]}


def test_run_calls_the_listed_files(counted):
    listed = set(LISTED.read_text().split())
    assert set(counted["files"]) - listed == set(), "new files on the way of a single run"
    assert listed - set(counted["files"]) == set(), "files that a single run no longer calls"


def test_run_imports_only_what_it_uses(counted):
    branches = ("executors.ray", "executors.slurm", "executors.processes", "data.mnist", "planning.grid")
    assert {f"orthobench.{name}" for name in branches} & set(counted["modules"]) == set()
    compiler = {"torch._dynamo", "torch.distributed.tensor"} & set(counted["modules"])
    assert not compiler, "torch's compiler takes nearly as long to import as torch"
