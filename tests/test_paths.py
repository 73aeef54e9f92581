"""Paths of the checkout that programs, settings and documents name: each exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = r"\.ci|\.github|checks|docs|models|orthobench|tasks|tests|workshop"
NAMED = re.compile(rf"(?<![\w./~-])(?:{FOLDERS})/[\w.*/-]*[\w*/]")
"""A path from the root of the checkout; a star stands for any name."""
PLACEHOLDER = re.compile(r"NAME|\bN\b")
SOURCES = (
    ".ci/*", ".github/workflows/*", "MANIFEST.in", "Makefile", "action.yml", "mkdocs.yml", "pyproject.toml",
    "workshop/benchmarks/*.py", "workshop/website/[!p]*.py", "tests/mutants.py",
    "ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/check.md",
)  # fmt: skip
"""Files that name paths. The changelog and reports speak of earlier ones, workshop/website/pages.py of pages."""


def files() -> list[Path]:
    return sorted(path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file())


def exists(name: str) -> bool:
    """Return whether a path or a pattern has a file; models and tasks are packaged inside `orthobench`."""
    paths = [name, re.sub(r"^orthobench/(?=models/|tasks/)", "", name)]
    return any(any(ROOT.glob(path.rstrip("/"))) for path in paths)


@pytest.mark.parametrize("file", files(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_named_path_exists(file):
    names = {name for name in NAMED.findall(file.read_text("utf-8")) if not PLACEHOLDER.search(name)}
    assert [name for name in sorted(names) if not exists(name)] == []


def test_every_source_exists_and_paths_are_found():
    assert [pattern for pattern in SOURCES if not any(ROOT.glob(pattern))] == []
    named = NAMED.findall((ROOT / "Makefile").read_text("utf-8"))
    assert len([name for name in named if name.startswith("tests/")]) > 20
    assert not exists("tests/report")
    assert not exists("tests/gate/*.nothing")


def test_mutation_targets_exist():
    assert [name for name in mutants.TESTS if not exists(name)] == []
    for patterns in mutants.ROOMS.values():
        assert [pattern for pattern in patterns if not exists(pattern)] == []
    ignored = re.findall(r'"--ignore", "([^"]+)"', mutants.CONFIG)
    assert ignored
    assert all(map(exists, ignored))


def test_every_selection_of_ci_collects_tests():
    """A marker or a folder that selects nothing ends pytest with an error at the end of a long CI run."""
    text = (ROOT / ".ci" / "run").read_text("utf-8").replace("\\\n", " ")
    selections = [re.findall(r"tests/[\w./]+", line) for line in text.splitlines() if " -m slow " in f" {line} "]
    assert selections
    for names in selections:
        for name in names:
            assert "slow" in (ROOT / name).read_text("utf-8"), name
    tracked = subprocess.run(["git", "ls-files", "tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name for names in selections for name in names} <= set(tracked.splitlines())
