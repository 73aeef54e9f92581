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
        UsageError: the folder does not exist, or it or a subfolder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent) / name for name in names if not name.startswith("."))
