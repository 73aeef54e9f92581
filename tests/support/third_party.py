"""The package of plugins in `newcomer`, installed as Python's metadata has it, without an installer."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "newcomer"


def forget() -> None:
    """Forget the package's modules, as a new process does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "newcomer"]:
        del sys.modules[name]


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a copy of the package into a folder of Python's path, and yield the package's folder."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    package = folder / "newcomer"
    shutil.copytree(PROJECT / "newcomer", package, ignore=shutil.ignore_patterns("__pycache__"))
    information = folder / f"newcomer-{project['version']}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: newcomer\nVersion: {project['version']}\n", "utf-8"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (information / "entry_points.txt").write_text(points, "utf-8")
    files = sorted(path.relative_to(folder).as_posix() for path in (*package.rglob("*"), *information.iterdir()))
    (information / "RECORD").write_text("".join(f"{name},,\n" for name in files), "utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second may have the same time
    forget()
    yield package
    forget()
