"""What idle threads do, as the import of the package sets it for this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

POLICY, BLAS = "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"
CHANGES = """
import json, os, signal, sys, threading
import logging, random, warnings
{before}
def state():
    return {{
        "environment": dict(os.environ),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "handlers": [str(logging.getLogger().handlers), logging.getLogger().level],
        "filters": [str(each) for each in warnings.filters],
        "hooks": [str(hook) for hook in (sys.excepthook, sys.displayhook, sys.meta_path, sys.path_hooks)],
        "path": sys.path,
        "random": str(random.getstate()),
        "threads": threading.active_count(),
        "folder": os.getcwd(),
        "mask": os.umask(os.umask(0o22) or 0o22),
        "recursion": sys.getrecursionlimit(),
    }}
before = state()
import orthobench
after = state()
changed = {{name: [old, after[name]] for name, old in before.items() if old != after[name]}}
print(json.dumps([changed, "torch" in sys.modules]))
"""


def python(script: str, folder: object, **own: str) -> subprocess.CompletedProcess[str]:
    """Run a script with none of the variables of this process's threads but these."""
    environment = {name: value for name, value in os.environ.items() if name not in (POLICY, BLAS)} | own
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=str(folder))


def changes(folder: object, before: str = "", **own: str) -> tuple[dict[str, str], bool]:
    """The environment variables that the import changes, after asserting that it changes nothing else."""
    changed, has_torch = json.loads(python(CHANGES.format(before=before), folder, **own).stdout)
    old, new = changed.pop("environment", ({}, {}))
    assert changed == {}
    assert old.items() <= new.items()
    return dict(new.items() - old.items()), has_torch


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {POLICY: "PASSIVE", BLAS: "1"}),
        ({POLICY: "ACTIVE"}, {BLAS: "1"}),
        ({BLAS: "3"}, {POLICY: "PASSIVE"}),
        ({POLICY: "", BLAS: "2"}, {}),
    ],
    ids=["nothing set", "own policy", "own BLAS threads", "both set"],
)
def test_import_lets_idle_threads_sleep_unless_the_user_says_otherwise(tmp_path, own, expected):
    assert changes(tmp_path, **own) == (expected, False)


def test_import_after_torch_changes_nothing(tmp_path):
    fake = "import types; sys.modules['torch'] = types.ModuleType('torch')"
    assert changes(tmp_path, before=fake) == ({}, True)
