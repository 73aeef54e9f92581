"""Find the task that a word for the user's own data names, such as `array:data.npz`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orthobench.arrays.arrange import kind_of
from orthobench.arrays.own_files import read_own_data
from orthobench.arrays.words import ANY, Kind
from orthobench.errors import UsageError
from orthobench.settings import whole_path
from orthobench.system.location import from_home


@dataclass(frozen=True)
class Named:
    """A task of the user's own data: its name, its kind, and the path of the file, or "" if a setting gives it."""

    name: str
    kind: Kind
    path: str

    def load(self) -> Any:
        """Return the class of the task."""
        from orthobench.arrays.own_tasks import task_of  # with torch, which the names do not need

        return task_of(self.kind, self.name.partition(":")[2], self.path)


def find_data(word: str) -> Named:
    """Return the task that a user's word names.

    Raises:
        UsageError: the file does not exist or cannot be read, or has no name.
    """
    kind, _, place = word.partition(":")
    if not place.strip():
        raise UsageError(f"'{word}' names no file: write {kind}:data.npz, or {kind}:FOLDER")
    path = Path(from_home(place))
    name = path.name if path.name not in ("", "..") else Path(whole_path(place)).name
    if kind != ANY:
        return Named(f"{kind}:{name}", kind, whole_path(str(path)) if path.exists() else "")  # type: ignore[arg-type]
    try:
        found = "classification" if path.is_dir() else kind_of(read_own_data(path))
    except UsageError as error:
        raise UsageError(f"{word}: {error}") from error
    return Named(f"{found}:{name}", found, whole_path(str(path)))


def stored_data(name: str) -> Named:
    """Return the task of a stored run, whose settings give the file. Nothing is read."""
    return Named(name, name.partition(":")[0], "")  # type: ignore[arg-type]
