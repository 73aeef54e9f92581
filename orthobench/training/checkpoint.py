"""Checkpoints: where a run can go on from, and who is working on it.

A run's folder holds its newest checkpoint, the one before, and a lock that the system frees when its holder dies.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from orthobench.errors import RunLockedError, UsageError
from orthobench.store.atomic import storage_error, write_bytes

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"
PATIENCE = 0.5  # seconds for which a run's lock is waited for: whoever asks `is_locked` holds it for a moment


class Checkpoints(ABC):
    """The checkpoints of one run, wherever they are kept."""

    key: str

    def save(self, state: dict[str, Any]) -> None:
        """Replace the newest checkpoint, whole or not at all; it becomes the one before.

        `state["logged"]` is the iteration of the last row written before it.

        Raises:
            StorageError: the disk is full, or the folder cannot be written; the checkpoints are what they were.
        """
        import torch

        written = io.BytesIO()  # torch's own writer would turn a full disk into an error that does not say so
        torch.save(state, written)
        self._put(written.getbuffer())

    def load(self, logged: int) -> dict[str, Any] | None:
        """The newest checkpoint that can serve, or None. Nothing in it is executed.

        One that cannot serve is removed, so that it never becomes the one before in place of a good one: it is damaged,
        or was written after rows that are not in the database any more.

        Args:
            logged: the iteration of the last row in the database.

        Raises:
            UsageError: one may not be read.
        """
        for name in (NEWEST, BEFORE):
            content = self._get(name)
            if content is not None:
                state = _read(content)
                if state is not None and state["logged"] <= logged:
                    return state
                self._remove(name)
        return None

    @abstractmethod
    def lock(self) -> AbstractContextManager[None]:
        """Hold the run; others are refused until this ends, however it ends.

        Raises:
            RunLockedError: somebody else holds it.
            StorageError: the folder cannot be written.
        """

    @abstractmethod
    def is_locked(self) -> bool:
        """Whether somebody is working on the run now."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is one; it may be damaged."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the run's checkpoints."""

    @abstractmethod
    def _put(self, content: memoryview) -> None:
        """Make this the newest checkpoint, whole or not at all, and the newest the one before."""

    @abstractmethod
    def _get(self, name: str) -> bytes | None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...


class CheckpointFolder(Checkpoints):
    """Checkpoints under `root / key`."""

    def __init__(self, root: Path, key: str) -> None:
        self.root = root
        self.key = key
        self.folder = root / key

    @contextmanager
    def lock(self) -> Iterator[None]:
        lock = FileLock(self.root / f"{self.key}.lock", timeout=PATIENCE)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise RunLockedError(
                f"run {self.key} is being trained by another process: wait for it, or stop it"
            ) from None
        except OSError as error:
            raise storage_error(f"checkpoint folder {self.root}", error) from error
        try:
            yield
        finally:
            lock.release()

    def is_locked(self) -> bool:
        if not self.root.is_dir():
            return False
        try:
            with FileLock(self.root / f"{self.key}.lock", timeout=0.05, poll_interval=0.01):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def exists(self) -> bool:
        return any((self.folder / name).exists() for name in (NEWEST, BEFORE))

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, content: memoryview) -> None:
        newest = self.folder / NEWEST
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_bytes(newest, content, locked=True, backup=self.folder / BEFORE)
        except OSError as error:
            raise storage_error(f"checkpoint {newest}", error) from error

    def _get(self, name: str) -> bytes | None:
        path = self.folder / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise UsageError(f"checkpoint {path} cannot be read: {error.strerror}; make it readable") from error

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink()


class RemoteCheckpoints(Checkpoints):
    """Checkpoints under a URL that fsspec knows, such as s3://bucket/folder: for runs on several machines.

    They are locked by the database server alone.
    """

    def __init__(self, url: str, key: str) -> None:
        """Args: url: of all runs' checkpoints.

        Raises:
            UsageError: nothing here knows such a URL.
        """
        from fsspec.core import url_to_fs

        self.key = key
        self.url = f"{url.rstrip('/')}/{key}"
        try:
            self.files, self.folder = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"checkpoints cannot be kept at {url}: {error}") from error

    def lock(self) -> AbstractContextManager[None]:
        raise UsageError("checkpoints at a URL need a database server, which locks the runs: --db postgresql://...")

    def is_locked(self) -> bool:
        return False

    def exists(self) -> bool:
        self.files.invalidate_cache()
        return any(self.files.exists(f"{self.folder}/{name}") for name in (NEWEST, BEFORE))

    def clear(self) -> None:
        with suppress(OSError):
            self.files.rm(self.folder, recursive=True)

    def _put(self, content: memoryview) -> None:
        newest, before, part = (f"{self.folder}/{name}" for name in (NEWEST, BEFORE, f"{NEWEST}.{uuid4().hex}"))
        try:
            self.files.makedirs(self.folder, exist_ok=True)
            self.files.pipe_file(part, bytes(content))
            self.files.invalidate_cache()
            if self.files.exists(newest):
                self._move(newest, before)
            self._move(part, newest)
        except OSError as error:
            raise storage_error(f"checkpoint {self.url}/{NEWEST}", error) from error

    def _move(self, file: str, to: str) -> None:
        if self.files.exists(to):  # not every file system replaces
            self.files.rm_file(to)
        self.files.mv(file, to)

    def _get(self, name: str) -> bytes | None:
        self.files.invalidate_cache()  # another machine may have written
        try:
            content: bytes = self.files.cat_file(f"{self.folder}/{name}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"checkpoint {self.url}/{name} cannot be read: {error}") from error
        return content

    def _remove(self, name: str) -> None:
        self.files.rm_file(f"{self.folder}/{name}")


def checkpoints_at(place: Path | str, key: str) -> Checkpoints:
    """The checkpoints of a run, where those of all runs are in a folder or at a URL.

    Raises:
        UsageError: nothing here knows such a URL.
    """
    if isinstance(place, str) and "://" in place:
        return RemoteCheckpoints(place, key)
    return CheckpointFolder(Path(place), key)


def _read(content: bytes) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is damaged."""
    import torch

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:  # whose checksums torch does not look at
            if archive.testzip() is not None:
                return None
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged file raises nearly anything, and means only: try the one before
        return None
    return state if isinstance(state, dict) and "logged" in state else None
