"""Checkpoints: where a run can go on from, and who is working on it.

A run's folder holds its newest checkpoint, the one before, and a lock that the system frees when its holder dies.
"""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from orthobench.disk import rename, storage_error
from orthobench.errors import UsageError

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"
PATIENCE = 0.5  # seconds for which a run's lock is waited for: whoever asks `is_locked` holds it for a moment


class CheckpointFolder:
    """The checkpoints of one run, under `root / key`."""

    def __init__(self, root: Path, key: str) -> None:
        self.root = root
        self.key = key
        self.folder = root / key

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run; others are refused until this ends, however it ends.

        Raises:
            UsageError: somebody else holds it.
            StorageError: the folder cannot be written.
        """
        lock = FileLock(self.root / f"{self.key}.lock", timeout=PATIENCE)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise UsageError(f"run {self.key} is being trained by another process: wait for it, or stop it") from None
        except OSError as error:
            raise storage_error(f"checkpoint folder {self.root}", error) from error
        try:
            yield
        finally:
            lock.release()

    def is_locked(self) -> bool:
        """Whether somebody is working on the run now."""
        if not self.root.is_dir():
            return False
        try:
            with FileLock(self.root / f"{self.key}.lock", timeout=0.05, poll_interval=0.01):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def save(self, state: dict[str, Any]) -> None:
        """Replace the newest checkpoint, whole or not at all; it becomes the one before.

        `state["logged"]` is the iteration of the last row written before it.

        Raises:
            StorageError: the disk is full, or the folder cannot be written; the checkpoints are what they were.
        """
        import torch

        written = io.BytesIO()  # torch's own writer would turn a full disk into an error that does not say so
        torch.save(state, written)
        newest, temporary = self.folder / NEWEST, self.folder / f"{NEWEST}.part"
        try:
            self.folder.mkdir(exist_ok=True)
            with temporary.open("wb") as stream:
                stream.write(written.getbuffer())
                stream.flush()
                os.fsync(stream.fileno())
            if newest.exists():
                rename(newest, self.folder / BEFORE)
            rename(temporary, newest)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise storage_error(f"checkpoint {newest}", error) from error

    def load(self, logged: int) -> dict[str, Any] | None:
        """The newest checkpoint that can serve, or None. Nothing in it is executed.

        One that cannot serve is removed, so that it never becomes the one before in place of a good one: it is damaged,
        or was written after rows that are not in the database any more.

        Args:
            logged: the iteration of the last row in the database.
        """
        for path in (self.folder / NEWEST, self.folder / BEFORE):
            if path.exists():
                state = _read(path)
                if state is not None and state["logged"] <= logged:
                    return state
                path.unlink()
        return None

    def clear(self) -> None:
        """Remove the run's checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is damaged.

    Raises:
        UsageError: it may not be read.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:  # torch's files are archives, whose checksums it does not look at
            if archive.testzip() is not None:
                return None
        state = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        raise UsageError(f"checkpoint {path} cannot be read: {error.strerror}; make it readable") from error
    except Exception:  # a damaged file raises nearly anything, and means only: try the one before
        return None
    return state if isinstance(state, dict) and "logged" in state else None
