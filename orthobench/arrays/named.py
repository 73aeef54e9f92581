"""Find the task that a word for the user's own data names, such as `array:data.npz`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from orthobench.arrays.arrange import kind_of
from orthobench.arrays.own_files import check_name, read_own_data
from orthobench.arrays.tables import Roles
from orthobench.arrays.words import ANY, Kind
from orthobench.errors import UsageError
from orthobench.options.arguments import is_none
from orthobench.settings import whole_path
from orthobench.system.location import from_home


class Named(NamedTuple):
    """A task of the user's own data: its name, the path of its file, and the known settings that say how to read it.

    A stored run has the name alone, because its settings give the file.
    """

    name: str
    path: str = ""
    reading: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Any:
        """Return the class of the task."""
        from orthobench.arrays.own_tasks import task_of  # with torch, which the names do not need

        kind, _, name = self.name.partition(":")
        return task_of(cast(Kind, kind), name, self.path, self.reading)


def find_data(word: str, settings: Mapping[str, Any] | None = None) -> Named:
    """Return the task that a user's word names.

    Args:
        settings: the user's settings, as values or text, which say how to read the file.

    Raises:
        UsageError: the file does not exist or cannot be read, or has no name.
    """
    kind, _, place = word.partition(":")
    if not place.strip():
        raise UsageError(f"'{word}' names no file: write {kind}:data.npz, or {kind}:FOLDER")
    path = Path(from_home(place))
    name = path.name if path.name not in ("", "..") else Path(whole_path(place)).name
    given = settings or {}
    reading = {each: given[each] for each in (*Roles._fields, "missing") if not is_none(given.get(each))}
    try:
        check_name(path)
        roles = Roles(*(reading.get(role) for role in Roles._fields))
        found = kind if kind != ANY else kind_of(read_own_data(path, roles).targets)
    except UsageError as error:
        raise UsageError(f"{word.encode(errors='backslashreplace').decode()}: {error}") from error
    is_here = kind == ANY or path.exists()
    return Named(f"{found}:{name}", whole_path(str(path)) if is_here else "", tuple(reading.items()))
