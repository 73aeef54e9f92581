"""A single run passes through the listed files, and imports only what it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orthobench

PACKAGE = Path(orthobench.__file__).parent
LISTED = Path(__file__).with_name("files_of_a_run.txt")
"""The files whose functions a run calls. A change that adds one is to say why the run needs it."""
COUNT = """
import json, sys
from pathlib import Path

package, depth, called = Path(sys.argv[1]), 0, set()


def on_call(frame, event, argument):
    global depth
    code = frame.f_code
    if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
        depth += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not depth and code.co_filename.startswith(str(package)):
        called.add(Path(code.co_filename).relative_to(package).as_posix())


from orthobench.cli import main

sys.argv = ["orthobench", *sys.argv[2:]]
sys.setprofile(on_call)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
modules = sorted(name for name in sys.modules if name.partition(".")[0] == "orthobench")
modules += [name for name in ("torch._dynamo", "torch.distributed.tensor") if name in sys.modules]
print(json.dumps({"files": sorted(called), "modules": modules}))
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> dict[str, list[str]]:
    small = ["sequence_length=10", "train_size=40", "test_size=20", "batch_size=10", "epochs=1", "optimizer=adam"]
    words = ["run", "adding", "scornn", "--device", "cpu", *(word for setting in small for word in ("-s", setting))]
    command = [sys.executable, "-c", COUNT, str(PACKAGE), *words, "--db", "r.db"]
    folder, cache = tmp_path_factory.mktemp("counted"), tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "ORTHOBENCH_CACHE": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result, counts = done.stdout.splitlines()
    assert "finished" in result
    return json.loads(counts)


def test_run_calls_the_listed_files(counted):
    listed = set(LISTED.read_text().split())
    assert set(counted["files"]) - listed == set(), "new files on the way of a single run"
    assert listed - set(counted["files"]) == set(), "files that a single run no longer calls"


def test_run_imports_only_what_it_uses(counted):
    branches = ("executors.ray", "executors.slurm", "executors.processes", "data.mnist", "planning.grid")
    assert {f"orthobench.{name}" for name in branches} & set(counted["modules"]) == set()
    compiler = [name for name in counted["modules"] if name.startswith("torch")]
    assert not compiler, "torch's compiler takes nearly as long to import as torch"
