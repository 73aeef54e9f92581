"""Move checkpoints out of the folders of earlier versions, so that interrupted runs resume.

Earlier versions named the folder after the database without its suffix, as the user wrote it. So `exp.1` and `exp.2`
had one folder, and a link had another folder than its file.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from orthobench.store import Store
from orthobench.store.keys import is_key
from orthobench.store.location import sqlite_file
from orthobench.training.checkpoint import GUARD, CheckpointFolder, checkpoint_root, real_file, take_turn

SQLITE_HEADER = b"SQLite format 3\0"
SUFFIX = ".checkpoints"


def adopt_checkpoints(database: str, store: Store) -> None:
    """Move the checkpoints of the database's runs from the folders of earlier versions to the present one.

    Where several databases had one folder, the checkpoints are copied, and only while the database has no folder of
    its own. A resumed run compares a checkpoint with its rows, so another database's checkpoint is not used.

    Args:
        store: the open database.
    """
    file = sqlite_file(database)
    if file is None:
        return
    root = checkpoint_root(database)
    assert isinstance(root, Path)
    is_new = not root.exists()
    for name in dict.fromkeys((file.absolute(), real_file(file))):
        folder = name.with_name(f"{name.stem}{SUFFIX}")
        if folder.is_dir() and real_file(folder) != root:
            with suppress(OSError):  # a checkpoint that cannot be moved stays, and the run starts over
                _adopt(folder, root, store, is_new)


def _adopt(folder: Path, root: Path, store: Store, is_new: bool) -> None:
    is_shared = _is_shared(folder)
    if is_shared and not is_new:
        return
    root.mkdir(exist_ok=True)
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    with take_turn(root):
        for key in [run.key for run in store.runs(keys=names)]:
            target, part = root / key, root / f".{key}.part"
            if target.exists() or CheckpointFolder(folder, key).is_locked():
                continue
            shutil.rmtree(part, ignore_errors=True)  # of a process that was killed here
            shutil.copytree(folder / key, part)
            part.rename(target)
            if not is_shared:
                shutil.rmtree(folder / key)
        if not is_shared:
            _remove_if_unused(folder)


def _is_shared(folder: Path) -> bool:
    """Return whether several databases beside the folder may have checkpoints in it."""
    name = folder.name.removesuffix(SUFFIX)
    return sum(name in (file.stem, file.name) and _is_database(file) for file in folder.parent.iterdir()) > 1


def _is_database(file: Path) -> bool:
    if not file.is_file():
        return False
    try:
        with file.open("rb") as stream:
            return stream.read(len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return True  # it cannot be read; leave its checkpoints


def _remove_if_unused(folder: Path) -> None:
    """Remove the locks that no process holds, and the folder if nothing else is in it."""
    locks = [CheckpointFolder(folder, file.stem) for file in folder.glob("*.lock") if is_key(file.stem)]
    if not any(lock.is_locked() for lock in locks):
        for lock in locks:
            lock.lock_file.unlink(missing_ok=True)
        (folder / GUARD).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
