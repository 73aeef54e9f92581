"""What has to reach the disk, and what is said where it cannot."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from orthobench.errors import StorageError

MAKE_ROOM = "make room there"
MAKE_WRITABLE = "make its folder writable, or name another place"
FIXES = {
    errno.ENOSPC: MAKE_ROOM,
    errno.EDQUOT: MAKE_ROOM,
    errno.EROFS: MAKE_WRITABLE,
    errno.EACCES: MAKE_WRITABLE,
    errno.EPERM: MAKE_WRITABLE,
}
NO_ROOM = 64 * 1024  # bytes: a disk with less left counts as full


def storage_error(what: object, error: OSError) -> StorageError:
    """The error for a file or folder that the system does not let be written."""
    return unwritable(what, error.strerror or str(error), FIXES.get(error.errno or 0, MAKE_WRITABLE))


def unwritable(what: object, reason: str, fix: str) -> StorageError:
    """The error for something that cannot be written, in the words that all of them share."""
    return StorageError(f"{what} cannot be written: {reason}: {fix}, and run the same command again")


def is_full(folder: Path) -> bool:
    """Whether there is next to no room left in a folder."""
    return shutil.disk_usage(folder).free < NO_ROOM


def write_whole(file: Path, content: bytes) -> None:
    """Write or replace a file in one step, so that no reader and no crash meets half of it.

    Raises:
        OSError: it cannot be written; what was there is there still.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(file.stat().st_mode if file.exists() else 0o644)
        temporary.replace(file)
    except OSError:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise


def rename(file: Path, to: Path) -> None:
    """Give a file another's name, for good: after a loss of power it has it still."""
    file.replace(to)
    if os.name == "posix":  # elsewhere folders cannot be opened
        folder = os.open(to.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
