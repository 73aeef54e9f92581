"""The rooms of the package: the table in ARCHITECTURE.md, and the files of each."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "orthobench"
LINKED = ("models", "tasks")
"""Rooms whose files lie next to the package."""
ROW = re.compile(r"^\| `(?:(?P<within>\w+)/)?(?P<room>\w+)` \| (?P<purpose>[^|]*) \| (?P<imports>[^|]*) \|$", re.M)


def table(within: str | None = None) -> dict[str, set[str]]:
    """Return the rooms of ARCHITECTURE.md from the top floor down, each with the rooms that it imports.

    Args:
        within: a room whose sub-rooms to return instead.
    """
    rows = ROW.finditer((ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    return {row["room"]: set(re.findall(r"`(\w+)`", row["imports"])) for row in rows if row["within"] == within}


def room_of(path: str) -> str | None:
    """Return the room of a file, given by its path below the root; None for a file outside the package."""
    first, *rest = PurePosixPath(path).parts
    if first in LINKED:
        return first
    if first != "orthobench" or not rest:
        return None
    room = rest[0].removesuffix(".py")
    return "orthobench" if room == "__init__" else room


def rooms() -> dict[str, list[Path]]:
    """Return the Python files of each room; a top-level module is a room of its own."""
    files: dict[str, list[Path]] = {}
    for folder in (PACKAGE, *(ROOT / name for name in LINKED)):
        for path in folder.rglob("*.py"):
            room = room_of(path.relative_to(ROOT).as_posix())
            assert room is not None
            files.setdefault(room, []).append(path)
    return files


def subrooms(room: str) -> dict[str, list[Path]]:
    """Return the Python files of each folder and module of a room, but for `__init__.py`, which hands names on."""
    files: dict[str, list[Path]] = {}
    for path in (PACKAGE / room).rglob("*.py"):
        name = path.relative_to(PACKAGE / room).parts[0].removesuffix(".py")
        if name != "__init__":
            files.setdefault(name, []).append(path)
    return files
