"""A loss of power loses no run: commits reach the disk before a checkpoint is replaced or removed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

CALLS = "pwrite64,fdatasync,fsync,rename,renameat,renameat2,unlink,unlinkat"


def traced(folder, command) -> list[str]:
    """Return the system calls of a command that write, flush, rename and remove files."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "true"], capture_output=True).returncode:
        pytest.skip("strace is not installed, or may trace no process")
    log = folder / "calls"
    options = ["-f", "-y", "--seccomp-bpf", "-o", str(log), "-e", f"trace={CALLS}"]
    environment = {**os.environ, "ORTHOBENCH_JOBS": "0", "OMP_NUM_THREADS": "1"}
    subprocess.run([strace, *options, *command], cwd=folder, env=environment, capture_output=True, check=True)
    return log.read_text("utf-8", "replace").splitlines()


@pytest.mark.slow
def test_commits_are_on_disk_before_a_checkpoint_is_replaced_or_removed(tmp_path, tiny_options):
    run = ["run", "adding", "rnn", *tiny_options, "--checkpoint-every", "0", "--db", "r.db"]
    is_flushed, moments = True, []
    for call in traced(tmp_path, [sys.executable, "-m", "orthobench", *run]):
        if re.search(r"pwrite64\(\d+<[^>]*r\.db-wal>", call):
            is_flushed = False
        elif re.search(r"(fdatasync|fsync)\(\d+<[^>]*r\.db-wal>", call):
            is_flushed = True
        elif re.search(r"(rename|unlink)\w*\(.*checkpoint(\.before)?\.pt\"", call):
            moments.append(("removed" if "unlink" in call else "replaced", is_flushed))
    assert {kind for kind, _ in moments} == {"replaced", "removed"}
    assert all(flushed for _, flushed in moments)
