"""Test what the changes touch, for at most a minute: `make quick`.

The changes are those that are not committed, with untracked files; without any, those since the branch left the
upstream branch or main. The tests of what a new model or task needs elsewhere come first, because they say what is
missing. Then come changed test files, the tests of the touched rooms, and those of the rooms that import them. Rooms
that are equally near share the time that is left, because a wide change breaks any of them. What does not fit into the
minute is named at the end, and `make test` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import pytest

from workshop.rooms import LINKED, ROOT, room_of, table

SECONDS = 45
"""After this time no test begins. The rest of the minute is for the end of the last test."""
LEAST = 5
"""The least share of a path in seconds, because less passes while the modules of its tests are loaded."""
BASES = ("@{upstream}", "upstream/main", "origin/main", "main")
FOLDERS = {"workshop": "docs"}
"""The folders of tests of code outside the package, where they have another name."""
OF_NEW = ("tests/cli/test_cite.py", "tests/gate/test_project_baseline.py", "tests/repository/test_index.py")
OF_NEW_MODEL = (
    "tests/reporting/test_styles.py",
    "tests/nn/test_layer.py::test_type_checkers_know_every_layer_and_cell",
)
"""Tests in other rooms that fail while an entry for a new model or task is missing."""


def changed_files() -> list[str]:
    """Return the paths of the changed files below the root of the repository, deleted ones included."""
    return _listed("diff", "--name-only", "--no-renames", _base())


def added_files() -> list[str]:
    """Return the paths of those changed files that are new."""
    return _listed("diff", "--name-only", "--no-renames", "--diff-filter=A", _base())


def _listed(*command: str) -> list[str]:
    """Return the paths that a command of git lists, with those of untracked files."""
    return sorted({*_git(*command), *_git("ls-files", "--others", "--exclude-standard")})


def _base() -> str:
    """Return the commit since which changes count: the last one, or if all is committed, where the branch began."""
    if _listed("diff", "--name-only", "HEAD"):
        return "HEAD"  # what is committed was tested before
    for name in BASES:
        if found := _git("merge-base", "HEAD", name, check=False):
            return found[0]
    return "HEAD"


def _git(*words: str, check: bool = True) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=check, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def selection(changed: Iterable[str], imports: dict[str, set[str]], added: Iterable[str] = ()) -> list[list[str]]:
    """Return the tests to run in groups, the nearest to the changes first.

    The groups are what new models and tasks need elsewhere, changed test files, the touched rooms, and the rooms that
    import them. Small folders come first in a group, because the large ones get what these leave of their share of the
    time.

    Args:
        changed: paths of changed files below the root.
        imports: each room with the rooms that it imports, from the top floor down.
        added: those of the changed files that are new.
    """
    changed = list(changed)
    own = [path for path in changed if path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")]
    touched = {room for path in changed if (room := room_of(path)) is not None}
    others = {path.partition("/")[0] for path in changed if room_of(path) is None and not path.startswith("tests/")}
    outside = [f"tests/{FOLDERS.get(name, name)}" for name in sorted(others) if (ROOT / name).is_dir()]
    importers = [room for room in reversed(imports) if room not in touched and imports[room] & touched]
    near = [*_tests_of(sorted(touched)), *outside]
    far = [*_tests_of(importers), *["tests/repository"][: len(others)]]
    groups, known = [], set[str]()
    for group in (_tests_of_new(added), own, near, far):
        found = [path for path in dict.fromkeys(group) if path not in known and _file(path).exists()]
        groups.append(sorted(found, key=_size))
        known.update(found)
    return [group for group in groups if group]


def _file(path: str) -> Path:
    """Return the folder or file of a path, which may name a single test of the file."""
    return ROOT / path.partition("::")[0]


def _size(path: str) -> int:
    """Return the number of test files in a folder."""
    return sum(1 for _ in _file(path).rglob("test_*.py"))


def _tests_of_new(added: Iterable[str]) -> Iterator[str]:
    """Yield the tests of what new models and tasks need in other rooms."""
    for path in map(PurePosixPath, added):
        if room_of(str(path)) in LINKED and path.suffix == ".py" and not path.name.startswith("_"):
            yield from OF_NEW
            if path.parts[0] == "models":
                yield from OF_NEW_MODEL


def _tests_of(rooms: Sequence[str]) -> Iterator[str]:
    """Yield the folder and the file in which a room may have its tests."""
    for room in rooms:
        yield from (f"tests/{room}", f"tests/test_{room}.py")


class Minute:
    """A plugin of pytest that begins no test after the time of a path.

    Attributes:
        left: the number of tests that did not begin, by path.
    """

    def __init__(self, seconds: float) -> None:
        self.end = self.end_of_path = time.monotonic() + seconds
        self.path = ""
        self.left: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        """Whether the whole time is over."""
        return time.monotonic() >= self.end

    def begin(self, path: str, paths: int) -> None:
        """Give a path its share of the time that is left, of a number of paths that includes it."""
        now = time.monotonic()
        self.path, self.end_of_path = path, min(self.end, now + max(LEAST, (self.end - now) / paths))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Skip a test after the time, by claiming to have run it."""
        if time.monotonic() < self.end_of_path:
            return None
        self.left[self.path] = self.left.get(self.path, 0) + 1
        return True


def main() -> int:
    """Run the selected tests and return pytest's exit code; 0 if there is nothing to test."""
    os.chdir(ROOT)
    changed = changed_files()
    groups = selection(changed, table(), added_files())
    if not groups:
        print(f"{len(changed)} files have changed, and none has tests of its own")
        return 0
    minute, worst, missed = Minute(SECONDS), 0, list[str]()
    for group in groups:
        for number, path in enumerate(group):
            if minute.is_over:
                missed.append(path)
                continue
            print(path)
            minute.begin(path, len(group) - number)
            code = pytest.main([path], plugins=[minute])  # not all at once: collecting may take the whole minute
            worst = max(worst, 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code))
    if minute.left or missed:
        parts = [f"{count} tests of {path}" for path, count in minute.left.items()]
        parts += [f"all of {', '.join(missed)}"] if missed else []
        print(
            f"not run, because they did not fit into the minute: {'; '.join(parts)}. make test and make lint run them."
        )
    return worst


if __name__ == "__main__":
    sys.exit(main())
