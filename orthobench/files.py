"""Files: whole writes, strict JSON, kinds of files, folders at URLs, and the user's cache folder.

Nothing here knows the database. The cache folder holds what can be computed again, such as compiled kernels and the
index of the plugins.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from filelock import FileLock

from orthobench.errors import StorageError, UsageError
from orthobench.location import Location, from_home

MAKE_ROOM = "make room there"
DELETE_FILES = "delete files there"
NO_INODES = "the disk has no inodes left for another file"
MAKE_WRITABLE = "make its folder writable, or name another location"
FIXES = {
    errno.ENOSPC: MAKE_ROOM,
    errno.EDQUOT: MAKE_ROOM,
    errno.EROFS: MAKE_WRITABLE,
    errno.EACCES: MAKE_WRITABLE,
    errno.EPERM: MAKE_WRITABLE,
}
SHARED = stat.S_IWGRP | stat.S_IWOTH
"""The permissions of others than the owner to write."""
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
def replacing(
    file: Path, *, locked: bool = False, backup: Path | None = None, new: bool = False, private: bool = False
) -> Iterator[Path]:
    """Yield the path of a temporary file to write; at the end it replaces `file`, with its permissions.

    If the block or the replacement raises, `file` stays as it was and the temporary file is removed.

    Args:
        locked: only this process writes `file` now. The temporary name is then fixed, so that the next write overwrites
            what a killed process left.
        backup: the new path of the previous file.
        new: `file` must not exist; if several processes write it at once, only one succeeds.
        private: only this user may read and write `file`, whatever the umask and the permissions that it had.

    Raises:
        OSError: the file cannot be written; FileExistsError if it must be new but exists.
    """
    part = file.with_name(f"{file.name}.part" if locked else f".{file.name}.{uuid4().hex}.part")
    try:
        if private:
            part.touch(0o600)
        yield part
        if file.exists() and not private:
            part.chmod(file.stat().st_mode)
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        if backup is not None and file.exists():
            rename(file, backup)
        (name_new if new else rename)(part, file)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(
    file: Path,
    content: bytes | memoryview,
    *,
    locked: bool = False,
    backup: Path | None = None,
    private: bool = False,
) -> None:
    """Write or replace a file in one step, with the arguments of `replacing`.

    Raises:
        OSError: the file cannot be written; it stays as it was.
    """
    with replacing(file, locked=locked, backup=backup, private=private) as part:
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

    If the block raises, `folder` stays as it was.

    Raises:
        StorageError: a file cannot be written or read: no permission, a full disk.
    """
    new, old = (folder.with_name(f".{folder.name}.{state}") for state in ("new", "old"))
    try:
        make_folder(folder.parent)
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


DEEPEST = 50
"""The most nested levels of lists and dictionaries in JSON that this program reads; its own has fewer than ten."""


def dump_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for floats that are not finite; `options` are those of `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # not all floats are finite
        return json.dumps(finite(value), allow_nan=False, **options)


def load_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, has a number that is not finite, or is nested so deeply that a program may
            fail while it walks through the value.
    """
    try:
        value = json.loads(text, parse_constant=_not_json, parse_float=_finite_float)
        opened = "[{" if isinstance(text, str) else b"[{"
        if sum(map(text.count, opened)) > DEEPEST and _depth(value) > DEEPEST:  # type: ignore[arg-type]
            raise ValueError(f"JSON of more than {DEEPEST} levels")
    except RecursionError as error:
        raise ValueError(f"JSON of more than {DEEPEST} levels") from error
    return value


def _not_json(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _finite_float(digits: str) -> float:
    if math.isfinite(value := float(digits)):
        return value
    raise ValueError(f"{digits:.40} is too large for a number")


def _depth(value: Any) -> int:
    """Return the number of nested levels of lists and dictionaries in a JSON value."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [entry for each in level for entry in (each.values() if isinstance(each, dict) else each)]
    return depth


def finite(value: Any) -> Any:
    """Replace every float that is not finite by null, also inside dictionaries and lists."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


START = 4096
"""Bytes at the start of a file that show its kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: the kind's name in messages.
        suffix: the usual suffix of the file's name.
        is_own: a function that decides whether a file has this kind, from its path and the start of its content. Text
            without a distinctive start is recognised by its suffix.
    """

    name: str
    suffix: str
    is_own: Callable[[Path, bytes], bool]


def _begins_with(*marks: bytes) -> Callable[[Path, bytes], bool]:
    return lambda file, start: start.lstrip().lower().startswith(marks)


def _is_text_named(*suffixes: str) -> Callable[[Path, bytes], bool]:
    return lambda file, start: file.suffix.lower() in (*suffixes, ".txt", "") and b"\0" not in start


def _is_svg(file: Path, start: bytes) -> bool:
    return _begins_with(b"<svg", b"<?xml")(file, start) and b"<svg" in start


def _is_xml(file: Path, start: bytes) -> bool:
    return _begins_with(b"<?xml", b"<testsuite")(file, start) and not _is_svg(file, start)


def _is_json(file: Path, start: bytes) -> bool:
    try:
        json.loads(file.read_text("utf-8"))
    except ValueError:
        return False
    return True


def _is_safetensors(file: Path, start: bytes) -> bool:
    return start[8:9] == b"{"  # after the length of the header


KINDS = {
    kind.name: kind
    for kind in (
        Kind("HTML", ".html", _begins_with(b"<!doctype html", b"<html")),
        Kind("XML", ".xml", _is_xml),
        Kind("SVG", ".svg", _is_svg),
        Kind("PNG", ".png", _begins_with(b"\x89png")),
        Kind("PDF", ".pdf", _begins_with(b"%pdf")),
        Kind("Parquet", ".parquet", _begins_with(b"par1")),
        Kind("JSON", ".json", _is_json),
        Kind("CSV", ".csv", _is_text_named(".csv")),
        Kind("Markdown", ".md", _is_text_named(".md", ".markdown")),
        Kind("safetensors", ".safetensors", _is_safetensors),
        Kind("ONNX", ".onnx", _begins_with(b"\x08")),
        Kind("PT2", ".pt2", _begins_with(b"pk\x03\x04")),
        Kind("LaTeX", ".tex", _is_text_named(".tex")),
    )
}
"""The kinds of files that commands write, by name."""


def refuse_other_kinds(file: Path, kind: str) -> None:
    """Refuse to replace an existing file of another kind. An empty file may be replaced.

    Args:
        kind: a name in `KINDS`.

    Raises:
        UsageError: the path is a folder or not a regular file, or its content has another kind; it stays as it is.
    """
    own = KINDS[kind]
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file in it, such as {file / f'report{own.suffix}'}")
    if not file.exists():
        return
    if not file.is_file():
        raise UsageError(f"refusing to overwrite {file}: it is not a regular file; name another file")
    try:
        with file.open("rb") as stream:
            start = stream.read(START)
        is_own = not start or own.is_own(file, start)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}: name another file") from error
    if not is_own:
        raise UsageError(
            f"refusing to overwrite {file}: it is not a file of type {own.name}; name another file, such as "
            f"{file.with_suffix('')}-new{own.suffix}"
        )


def refuse_file(folder: Path) -> None:
    """Refuse a file where a folder is expected.

    Raises:
        UsageError: the path is a file; it stays as it is.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file and is left as it is: name a folder")


class RemoteFolder:
    """Files below a URL.

    Args:
        url: the URL.
        below: the path below it.
        what: the word for the files in the error.

    Raises:
        UsageError: no installed file system supports the URL.
    """

    def __init__(self, url: Location, below: str = "", what: str = "files") -> None:
        from fsspec.core import url_to_fs

        self.url = Location("/".join(filter(None, (url.real.rstrip("/"), below))))
        try:
            self.files, self.folder = url_to_fs(self.url.real)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{what} cannot be kept at {url}: {error}") from error

    def put(self, name: str, content: bytes, backup: str | None = None) -> None:
        """Write or replace a file in one step.

        Args:
            backup: the new name of the previous file.

        Raises:
            OSError: the file cannot be written.
        """
        part = f"{self.folder}/{name}.{uuid4().hex}"
        self.files.makedirs(self.folder, exist_ok=True)
        self.files.pipe_file(part, content)
        self.files.invalidate_cache()
        if backup is not None and self.files.exists(f"{self.folder}/{name}"):
            self._move(f"{self.folder}/{name}", f"{self.folder}/{backup}")
        self._move(part, f"{self.folder}/{name}")

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file.

        Raises:
            OSError: the file cannot be read.
        """
        self.files.invalidate_cache()  # another machine may have written
        try:
            content: bytes = self.files.cat_file(f"{self.folder}/{name}")
        except FileNotFoundError:
            return None
        return content

    def exists(self, *names: str) -> bool:
        """Return whether at least one of these files exists."""
        self.files.invalidate_cache()
        return any(self.files.exists(f"{self.folder}/{name}") for name in names)

    def remove(self, name: str) -> None:
        """Remove a file.

        Raises:
            OSError: the file cannot be removed, or does not exist.
        """
        self.files.rm_file(f"{self.folder}/{name}")

    def remove_parts(self, names: str) -> None:
        """Remove what processes that were killed in `put` have left of files whose names match a pattern.

        Raises:
            OSError: a file cannot be removed.
        """
        self.files.invalidate_cache()
        for path in self.files.glob(f"{self.folder}/{names}.{'[0-9a-f]' * 32}"):
            self.files.rm_file(path)

    def clear(self) -> None:
        """Remove the folder with all its files."""
        with suppress(OSError):
            self.files.rm(self.folder, recursive=True)

    def _move(self, file: str, to: str) -> None:
        if self.files.exists(to):  # some file systems do not replace files
            self.files.rm_file(to)
        self.files.mv(file, to)


def cache_folder() -> Path:
    """Return $ORTHOBENCH_CACHE, or the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.
    """
    folder = os.environ.get("ORTHOBENCH_CACHE")
    return Path(from_home(folder)) if folder else user_cache_folder().expanduser()


def user_cache_folder() -> Path:
    """Return the user's cache folder; it begins with ~ for a user who has no home folder."""
    import platformdirs

    return platformdirs.user_cache_path("orthobench")


def private_folder(folder: Path) -> None:
    """Make a folder of the user's cache, with those above it that are missing, so that no other user can enter it.

    `mkdir(mode=0o700, parents=True)` would give the folders above it the mode that the umask leaves.

    Raises:
        OSError: a folder cannot be made.
    """
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder of data, with those above it; if the user's cache folder is one of them, it becomes private.

    Raises:
        OSError: a folder cannot be made.
    """
    if (cache := user_cache_folder()) in folder.absolute().parents:
        private_folder(cache)
    folder.mkdir(parents=True, exist_ok=True)


class UntrustedError(Exception):
    """Another user could have written a file of the cache; the message says how."""


@contextmanager
def open_trusted(file: Path) -> Iterator[BinaryIO]:
    """Open a file of the cache that no other user can have written.

    What is checked is the file that is then read: it is opened once, after the folders above it. They are checked from
    the root on, so nobody can exchange a folder or a file that has been checked.

    Raises:
        OSError: the file is missing or cannot be read.
        UntrustedError: another user could have written it.
    """
    if reason := _exchangeable(file.parent):
        raise UntrustedError(reason)
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as stream:
        if reason := _writable(file, os.fstat(descriptor)):
            raise UntrustedError(reason)
        yield stream


def written_by_others(folder: Path, content: Iterable[Path] = ()) -> str | None:
    """Return the reason why another user may have written content of a folder of the cache, or None.

    Args:
        folder: the folder, which may be missing.
        content: files in it; those that are missing do not count.
    """
    if reason := _exchangeable(folder):
        return reason
    for file in content:
        with suppress(OSError):
            if reason := _writable(file, file.lstat()):
                return reason
    return None


def _exchangeable(folder: Path) -> str | None:
    """Return the reason why another user may exchange a folder or one above it, or None; links are followed.

    Nobody else may write to the folder itself. Folders above it may be shared, as /tmp is, if only the owners of their
    entries can rename them. All have to belong to this user or to root, as has each link on the way.
    """
    if os.name != "posix":
        return None
    waiting, at, links = list(reversed(folder.absolute().parts)), Path("/"), 0
    while waiting:
        part = waiting.pop()
        at = at.parent if part == ".." else at / part
        try:
            status = at.lstat()
        except OSError:  # it is missing, or cannot be read
            return None
        if stat.S_ISLNK(status.st_mode):
            if reason := _foreign(at, status):
                return reason
            links += 1
            if links > MOST_LINKS:
                return f"{folder} has too many links"
            waiting += reversed(at.readlink().parts)
            at = at.parent
        elif reason := _foreign(at, status) or (
            None if waiting and status.st_mode & stat.S_ISVTX else _writable(at, status)
        ):
            return reason
    return None


def _foreign(path: Path, status: os.stat_result) -> str | None:
    """Return the reason why another user owns a path, or None; whoever owns / owns everything anyway."""
    if status.st_uid in (0, os.geteuid()) or (path.is_dir() and status.st_uid == Path("/").stat().st_uid):
        return None
    return f"{path} belongs to another user (uid {status.st_uid})"


def _writable(path: Path, status: os.stat_result) -> str | None:
    """Return the reason why another user may write to a path, or None."""
    if os.name != "posix":
        return None
    by_others = stat.S_IWOTH if status.st_mode & stat.S_IWGRP and _is_private(path, status) else SHARED
    return _foreign(path, status) or (f"other users can write to {path}" if status.st_mode & by_others else None)


def _is_private(path: Path, status: os.stat_result) -> bool:
    """Return whether the group of a path is the private group that many systems give each user, without more members.

    A list of further users (POSIX ACL) shows in the permissions of the group, and makes it count as others.
    """
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(os.geteuid())
        has_list = hasattr(os, "listxattr") and "system.posix_acl_access" in os.listxattr(path)
    except (KeyError, OSError):
        return False
    is_own = group.gr_name == user.pw_name and group.gr_gid == user.pw_gid and set(group.gr_mem) <= {user.pw_name}
    return is_own and not has_list
