"""The recorded facts of the environment: memory and git."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from orthobench.system import environment
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


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of the package's name with one commit, which this process takes for its own."""
    folder = tmp_path / "checkout"
    for name in ("orthobench/one.py", "models/two.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("caf\xe9 = 1\n" * 20, "latin-1")
    commit(folder)
    monkeypatch.setattr(environment, "__file__", str(folder / "orthobench" / "system" / "environment.py"))
    return folder


def commit(folder):
    """Make a folder a repository with all its files in one commit."""
    me = ("-c", "user.name=me", "-c", "user.email=me@here")
    for arguments in (("init",), ("add", "."), (*me, "commit", "-m", "one")):
        assert git(folder, *arguments) is not None


def code():
    """Return the commit and the hash of the changes of this process's checkout, asked anew."""
    environment._code.cache_clear()
    facts = environment.describe(torch.device("cpu"))
    environment._code.cache_clear()
    return facts["commit"], facts["changes"]


def test_every_change_of_the_code_has_a_hash_of_its_own(checkout):
    clean, head = code(), git(checkout, "rev-parse", "HEAD")
    assert clean == (head, None)
    seen = set()
    for content in (b"caf\xe9 = 2\n", b"caf\xea = 2\n", b"", b"\0\1"):  # of no encoding, empty, and binary
        (checkout / "models" / "two.py").write_bytes(content)
        seen.add(code())
    (checkout / "models" / "two.py").unlink()
    seen.add(code())
    assert {commit for commit, _ in seen} == {head}
    assert len(seen - {clean}) == 5
    assert git(checkout, "checkout", ".") is not None
    for content in ("three = 3\n", "three = 4\n"):  # a new model that git does not know yet
        (checkout / "models" / "three.py").write_text(content)
        seen.add(code())
    assert len(seen - {clean}) == 7
    (checkout / "models" / "three.py").unlink()
    for name in (".DS_Store", ".two.py.swp", "two.py~", ".#two.py"):
        (checkout / "models" / name).write_text("of an editor")
    (checkout / "notes.txt").write_text("no code")
    assert git(checkout, "add", "notes.txt") is not None
    assert code() == clean


CONFIGURATIONS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "core.abbrev": "20",
    "diff.external": "/bin/true",
    "diff.renames": "copies",
    "diff.orderFile": "order.txt",
    "diff.algorithm": "histogram",
    "diff.context": "1",
    "color.ui": "always",
    "core.quotePath": "false",
}
"""Configuration that changes how git writes a difference."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_change_has_one_hash_under_every_configuration(checkout, name, monkeypatch):
    (checkout / "order.txt").write_text("orthobench/*\nmodels/*\n")
    (checkout / "models" / "two.py").write_text("two = 2\n")
    (checkout / "orthobench" / "one.py").rename(checkout / "orthobench" / "another.py")
    assert git(checkout, "add", ".") is not None
    plain = code()
    for variable, value in (("COUNT", "1"), ("KEY_0", name), ("VALUE_0", CONFIGURATIONS[name])):
        monkeypatch.setenv(f"GIT_CONFIG_{variable}", value)
    assert git(checkout, "config", name) == CONFIGURATIONS[name]  # so that the next line can fail
    assert code() == plain
    assert plain[1] is not None


def test_variables_that_git_sets_for_hooks_change_nothing(checkout, tmp_path, monkeypatch):
    (checkout / "models" / "two.py").write_text("two = 2\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    commit(other)
    plain = code()
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/true")
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u1")
    assert code() == plain
    assert git(checkout, "ls-files") == "models/two.py\northobench/one.py"
