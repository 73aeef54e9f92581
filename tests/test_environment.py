"""The recorded facts of the environment: memory and git."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from orthobench.system.environment import git, peak_memory

SIZE = 300 * 2**20


def test_memory_of_a_process_excludes_its_parents():
    """Linux' resource usage counts the parent's as well."""
    array = np.ones(SIZE, dtype=np.uint8)
    code = "from orthobench.system.environment import peak_memory; print(peak_memory())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    parent = peak_memory()
    del array
    after = peak_memory()
    assert parent >= child + SIZE / 2
    assert after >= child + SIZE / 2  # the most it has held, not what it holds


def test_a_difference_in_another_encoding_is_read(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_bytes("caf\xe9\n".encode("latin-1"))
    me = ("-c", "user.name=me", "-c", "user.email=me@here")
    for arguments in (("init",), ("add", "."), (*me, "commit", "-m", "one")):
        assert git(tmp_path, *arguments) is not None
    assert git(tmp_path, "diff", "HEAD") == ""
    file.write_bytes("th\xe9\n".encode("latin-1"))
    assert "+th" in git(tmp_path, "diff", "HEAD")
