"""The user's cache folder, and files that no other user could have written.

The cache holds what can be computed again, such as the index of the plugins.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from orthobench.system.location import from_home

SHARED = stat.S_IWGRP | stat.S_IWOTH
"""The permissions of others than the owner to write."""
MOST_LINKS = 40
"""Links that a path may follow, as in Linux."""


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
