"""Files written whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from orthobench.errors import UsageError


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new, empty folder to fill, which takes the place of `folder` at the end if nothing was raised.

    Until then, and for good if something is raised, `folder` stays as it was. Processes that fill the same one do so
    one after the other.

    Raises:
        UsageError: the folder cannot be written: no permission, a full disk.
    """
    new, old = (folder.with_name(f".{folder.name}.{state}") for state in ("new", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if old.exists() and not folder.exists():  # of a process that was killed; so may `new` be
                old.rename(folder)
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            try:
                yield new
                if folder.exists():
                    folder.rename(old)
                new.rename(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be written or read: {error.strerror or error}") from error


def md5(path: Path) -> str:
    """The MD5 of a file's bytes, in hexadecimal; these are the checksums the data sets' makers publish."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
