"""The files below a folder that a user sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from orthobench.errors import UsageError


def visible_files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder, except hidden ones and those in hidden folders.

    macOS writes a file `._NAME` next to each file on other systems' disks, and editors keep copies in such folders.

    Raises:
        UsageError: the folder does not exist, it or a subfolder cannot be read, or a link below it leads to a folder or
            to nothing.
    """

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen = [name for name in names if not name.startswith(".")]
        for name in (*folders, *seen):
            place = Path(parent) / name
            if place.is_symlink() and not place.is_file():  # not followed, because it may lead in a circle
                raise UsageError(f"{place} is a link to {place.readlink()}, which is not a file: copy its files here")
        yield from (Path(parent) / name for name in seen)
