"""Whole writes: a file or folder is there completely or not at all, and errors of the disk say what to do."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from orthobench.errors import StorageError, UsageError
from orthobench.system.cache import private_folder, user_cache_folder

MAKE_ROOM = "make room there"
DELETE_FILES = "delete files there"
NO_INODES = "the disk has no inodes left for another file"
MAKE_WRITABLE = "make its folder writable, or name another location"
MAKE_FOLDER = "create its folder, or name another location"
FIXES = {
    errno.ENOENT: MAKE_FOLDER,
    errno.ENOTDIR: MAKE_FOLDER,
    errno.ENOSPC: MAKE_ROOM,
    errno.EDQUOT: MAKE_ROOM,
    errno.EROFS: MAKE_WRITABLE,
    errno.EACCES: MAKE_WRITABLE,
    errno.EPERM: MAKE_WRITABLE,
}

MOST_LINKS = 40
"""Links that a path may follow, as in Linux."""
FULL_BELOW = 64 * 1024
"""Free bytes below which a disk counts as full."""


def storage_error(what: object, error: OSError) -> StorageError:
    """Return the error for a file or folder that the system refuses to write."""
    if error.errno == errno.ENOSPC and error.filename is not None and has_no_inodes(Path(error.filename)):
        return unwritable(what, NO_INODES, DELETE_FILES)
    return unwritable(what, error.strerror or str(error), FIXES.get(error.errno or 0, MAKE_WRITABLE))


def unwritable(what: object, reason: str, fix: str) -> StorageError:
    """Return the error for something that cannot be written."""
    return StorageError(f"{what} cannot be written: {reason}: {fix}, and run the same command again")


def is_full(folder: Path) -> bool:
    """Return whether a folder's disk is full."""
    return shutil.disk_usage(folder).free < FULL_BELOW


def has_no_inodes(path: Path) -> bool:
    """Return whether the disk of a path, which need not exist, has free bytes but no room for another file."""
    folder = next((parent for parent in (path, *path.absolute().parents) if parent.exists()), None)
    if folder is None or not hasattr(os, "statvfs"):
        return False
    disk = os.statvfs(folder)
    return disk.f_files > 0 and disk.f_favail == 0  # some file systems have no limit, and report 0 of 0


@contextmanager
def replacing(file: Path, *, locked: bool = False, backup: Path | None = None, new: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file to write; at the end it replaces `file`, with its permissions.

    A link stays, and the file to which it leads is replaced. If the block or the replacement raises, `file` stays as it
    was and the temporary file is removed. A device, a pipe or an open output such as /dev/stdout cannot be replaced, so
    the content is written into it.

    Args:
        locked: only this process writes `file` now. The temporary name is then fixed, so that the next write overwrites
            what a killed process left.
        backup: the new path of the previous file.
        new: `file` must not exist; if several processes write it at once, only one succeeds.

    Raises:
        OSError: the file cannot be written; FileExistsError if it must be new but exists.
    """
    if is_stream(file):
        with TemporaryDirectory() as folder:
            yield Path(folder, file.name)
            with Path(folder, file.name).open("rb") as content, file.open("ab") as stream:
                shutil.copyfileobj(content, stream)
        return
    file = _behind_links(file)
    part = file.with_name(f"{file.name}.part" if locked else f".{file.name}.{uuid4().hex}.part")
    try:
        yield part
        if file.exists():
            part.chmod(file.stat().st_mode)
        with part.open("rb+") as stream:
            # Before the new name, because after a loss of power the name could
            # otherwise stand for a file without content.
            os.fsync(stream.fileno())
        if backup is not None and file.exists():
            rename(file, backup)
        (name_new if new else rename)(part, file)
    finally:
        part.unlink(missing_ok=True)


def is_stream(file: Path) -> bool:
    """Return whether a path is a device, a pipe, or an open file of a process, as /dev/stdout is."""
    if file.exists() and not file.is_file() and not file.is_dir():
        return True
    # An open file of a process has a name as well, but the process would go on writing to what has been replaced.
    links = [file, *_links(file)]
    return len(links) > 1 and any(Path("/proc") in link.parent.resolve().parents for link in links)


def _behind_links(file: Path) -> Path:
    """Return the file to which links lead; it need not exist.

    Raises:
        OSError: the links form a circle.
    """
    return [file, *_links(file)][-1]


def _links(file: Path) -> list[Path]:
    """Return where a link leads, one after the other."""
    found: list[Path] = []
    while file.is_symlink():
        if len(found) == MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))
        file = file.parent.resolve() / file.readlink()
        found.append(file)
    return found


def write_bytes(
    file: Path,
    content: bytes | memoryview,
    *,
    locked: bool = False,
    backup: Path | None = None,
) -> None:
    """Write or replace a file in one step, with the arguments of `replacing`.

    Raises:
        OSError: the file cannot be written; it stays as it was.
    """
    with replacing(file, locked=locked, backup=backup) as part:
        part.write_bytes(content)


def rename(file: Path, to: Path) -> None:
    """Rename a file durably: the new name survives a loss of power."""
    file.replace(to)
    _sync(to.parent)


def name_new(file: Path, to: Path) -> None:
    """Give a file a new name durably, unless another file has that name; the old name may stay.

    Raises:
        OSError: the file cannot be renamed; FileExistsError if another file has that name.
    """
    try:
        # A link and no rename, because `rename` replaces an existing file without a word.
        os.link(file, to)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if to.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to)) from None
        file.replace(to)
    _sync(to.parent)


def _sync(folder: Path) -> None:
    if os.name == "posix":  # elsewhere folders cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; at the end it replaces `folder`. Concurrent processes wait for each other.

    If the block raises, `folder` stays as it was. If it is a link, it stays one, to the new folder.

    Raises:
        StorageError: a file cannot be written or read: no permission, a full disk.
    """
    # Here, because it loads asyncio, and nothing else of this module needs it.
    from filelock import FileLock

    folder = Path(os.path.realpath(folder))  # and not `resolve`, which raises errors of its own
    new, old = (folder.with_name(f".{folder.name}.{state}") for state in ("new", "old"))
    try:
        make_folder(folder.parent)
        # Locked, because two processes that download the same data would remove each other's folders.
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if old.exists() and not folder.exists():  # a process was killed between the two renames
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
        raise StorageError(
            f"{error.filename or folder} cannot be written or read: {error.strerror or error}"
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder of data, with those above it; if the user's cache folder is one of them, it becomes private.

    Raises:
        OSError: a folder cannot be made.
    """
    if (cache := user_cache_folder()) in folder.absolute().parents:
        private_folder(cache)
    folder.mkdir(parents=True, exist_ok=True)


def check_folder(file: Path) -> None:
    """Check that a file can be written, before any training.

    Raises:
        UsageError: the folder does not exist or is not writable.
    """
    # The folder counts and not the file, because a new file takes the place of the old one.
    if not os.access(file.parent, os.W_OK) or file.is_dir():
        raise UsageError(f"{file} cannot be written: name a file in a folder that exists and is writable")


def write_text(file: Path, text: str) -> None:
    """Write or replace a file atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        write_bytes(file, text.encode())
    except OSError as error:
        raise storage_error(file, error) from error
