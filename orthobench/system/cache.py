"""The user's cache folder, which holds what can be computed again, such as compiled CUDA kernels."""

from __future__ import annotations

import os
from pathlib import Path

from orthobench.system.location import from_home, variable


def cache_folder() -> Path:
    """Return $ORTHOBENCH_CACHE, or the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.
    """
    folder = variable("ORTHOBENCH_CACHE")
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


def is_private(folder: Path) -> bool:
    """Return whether no other user can put programs into a folder."""
    status = folder.stat()
    return os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
