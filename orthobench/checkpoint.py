"""Checkpoints: where a run can go on from, and who is working on it.

A run's folder holds its newest checkpoint, the one before, and a lock that the system frees when its holder dies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from orthobench.errors import UsageError

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"


class Busy(UsageError):
    """Another process is at this run."""


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
            Busy: somebody else holds it.
            UsageError: the folder cannot be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f"{self.key}.lock", timeout=0):
                self.folder.mkdir(exist_ok=True)
                yield
        except Timeout:
            raise Busy(f"run {self.key} is being trained by another process: wait for it, or stop it") from None
        except PermissionError as error:
            raise UsageError(f"checkpoints cannot be written in {self.root}: {error.strerror}") from error

    def is_locked(self) -> bool:
        """Whether somebody is working on the run now."""
        if not self.root.is_dir():
            return False
        try:
            with FileLock(self.root / f"{self.key}.lock", timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def save(self, state: dict[str, Any]) -> None:
        """Replace the newest checkpoint, whole or not at all; it becomes the one before."""
        import torch

        newest, temporary = self.folder / NEWEST, self.folder / f"{NEWEST}.part"
        with temporary.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        if newest.exists():
            newest.replace(self.folder / BEFORE)
        temporary.replace(newest)

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that can be read, or None. Nothing in it is executed."""
        import torch

        for name in (NEWEST, BEFORE):
            try:
                state: dict[str, Any] = torch.load(self.folder / name, map_location="cpu", weights_only=True)
            except Exception:  # a damaged file raises nearly anything, and means only: try the one before
                continue
            return state
        return None

    def exists(self) -> bool:
        """Whether there is one; it may be damaged."""
        return any((self.folder / name).exists() for name in (NEWEST, BEFORE))

    def clear(self) -> None:
        """Remove the run's checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)
