"""The user's cache folder: what can be computed again, such as compiled kernels and the index of the plugins."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """Return $ORTHOBENCH_CACHE, or the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.
    """
    if folder := os.environ.get("ORTHOBENCH_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orthobench"


def written_by_others(cache: Path, content: Iterable[Path]) -> str | None:
    """Return the reason why another user may have written content of a cache folder, or None.

    The content must belong to this user or to root, and nobody else may write to it. The cache folder that contains it
    may be shared, as /tmp is, if only owners can rename its entries.

    Args:
        content: files and folders in the cache folder; those that are missing do not count.
    """
    if os.name != "posix":
        return None
    for path in (cache, *content):
        try:
            status = path.stat()
        except OSError:  # the file is missing, or cannot be read
            continue
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user (uid {status.st_uid})"
        is_shared = path == cache and (status.st_mode & stat.S_ISVTX or not status.st_mode & stat.S_IWOTH)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_shared:
            return f"other users can write to {path}"
    return None
