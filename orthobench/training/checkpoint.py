"""Checkpoints of a run, in a folder or at a URL, and the lock next to them.

A run's folder holds the newest checkpoint and the previous one. The operating system frees the lock when its holder
dies, and releasing the lock removes its file. Only one process at a time opens, locks or removes such files, because a
process that locked a removed file would not exclude the next one.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from orthobench.errors import RunLockedError, StorageError, UsageError
from orthobench.options.run_options import RunOptions
from orthobench.store import Status, Store
from orthobench.store.result import as_name
from orthobench.system.files import storage_error, write_bytes
from orthobench.system.location import SERVER_FILES, Location, Place
from orthobench.system.remote_folder import RemoteFolder
from orthobench.training.locks import GUARD, GUARD_TIMEOUT, QUESTION_TIMEOUT, hold_shared, take_turn
from orthobench.weights.weights_files import WeightsFolder, weights_folder

_logger = logging.getLogger(__name__)

NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.before.pt"


class Checkpoints(ABC):
    """The checkpoints of one run, independent of their location."""

    key: str

    def save(self, state: dict[str, Any]) -> None:
        """Write the newest checkpoint atomically; the one that it replaces becomes the previous one.

        Args:
            state: `state["logged"]` is the iteration of the newest row in the database.

        Raises:
            StorageError: the disk is full, or the folder cannot be written; the checkpoints are unchanged.
        """
        import torch

        content = io.BytesIO()  # because torch's own writer reports a full disk as a different error
        torch.save(state, content)
        self._put(content.getbuffer())

    def candidates(self, logged: int) -> Iterator[dict[str, Any]]:
        """Yield the usable checkpoints, newest first. Loading executes no code from the file.

        Unusable checkpoints are removed, so that they never replace a usable previous one. A checkpoint is unusable if
        it is damaged, newer than the newest row in the database, or rejected by the caller, who asks for the next one.

        Args:
            logged: iteration of the newest row in the database.

        Raises:
            UsageError: a checkpoint is not readable.
        """
        for name in (NEWEST, PREVIOUS):
            content = self._get(name)
            if content is None:
                continue
            state = _read(content)
            if state is None:
                _logger.warning(
                    "run %s: its checkpoint %s is damaged and removed: it resumes from the one before or starts over",
                    self.key,
                    name,
                )
            elif state["logged"] <= logged:
                yield state
            self._remove(name)

    @abstractmethod
    def lock(self) -> AbstractContextManager[None]:
        """Lock the run until the context ends.

        Raises:
            RunLockedError: another process has locked the run.
            StorageError: the folder cannot be written.
        """

    @abstractmethod
    def is_locked(self) -> bool:
        """Return whether a process is training the run, without writing or removing anything."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether a checkpoint exists, possibly a damaged one."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the run's checkpoints."""

    @abstractmethod
    def _put(self, content: memoryview) -> None:
        """Write the newest checkpoint atomically, and keep the one that it replaces as the previous one."""

    @abstractmethod
    def _get(self, name: str) -> bytes | None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...


class CheckpointFolder(Checkpoints):
    """Checkpoints under `root / key`.

    Raises:
        DamagedError: the key is not a valid file name.
    """

    def __init__(self, root: Path, key: str) -> None:
        self.root = root
        self.key = as_name(key)
        self.folder = root / self.key
        self.lock_file = root / f"{self.key}.lock"

    @contextmanager
    def lock(self) -> Iterator[None]:
        lock = FileLock(self.lock_file, timeout=QUESTION_TIMEOUT)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with take_turn(self.root):
                lock.acquire(poll_interval=0.002)
        except Timeout:
            raise RunLockedError(
                f"run {self.key} is being trained by another process: wait for it, or stop it"
            ) from None
        except OSError as error:
            raise storage_error(f"checkpoint folder {self.root}", error) from error
        try:
            yield
        finally:
            with suppress(OSError), take_turn(self.root):  # if the folder cannot be written, the file stays
                lock.release()
                self.lock_file.unlink(missing_ok=True)
            # Once more, because the first release is skipped if the turn cannot be taken.
            lock.release()

    def is_locked(self) -> bool:
        with ExitStack() as turn:
            with suppress(OSError):  # some versions of filelock remove the file after each turn
                turn.enter_context(hold_shared(self.root / GUARD, GUARD_TIMEOUT))
            try:
                with hold_shared(self.lock_file):
                    return False
            except BlockingIOError:
                return True
            except OSError:
                return False

    def exists(self) -> bool:
        return any((self.folder / name).exists() for name in (NEWEST, PREVIOUS))

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, content: memoryview) -> None:
        newest = self.folder / NEWEST
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_bytes(newest, content, locked=True, backup=self.folder / PREVIOUS)
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
    """Checkpoints under a URL that fsspec supports, such as s3://bucket/folder, for runs on several machines.

    The database server locks the runs.
    """

    def __init__(self, url: Location, key: str) -> None:
        """Open the location.

        Args:
            url: URL of all runs' checkpoints.

        Raises:
            UsageError: no installed file system supports the URL.
            DamagedError: the key is not a valid file name.
        """
        self.key = as_name(key)
        self.files = RemoteFolder(url, key, "checkpoints")

    def lock(self) -> AbstractContextManager[None]:
        raise UsageError("checkpoints at a URL need a database server, which locks the runs: `db='postgresql://...'`")

    def is_locked(self) -> bool:
        return False

    def exists(self) -> bool:
        return self.files.exists(NEWEST, PREVIOUS)

    def clear(self) -> None:
        self.files.clear()

    def _put(self, content: memoryview) -> None:
        try:
            self.files.put(NEWEST, bytes(content), backup=PREVIOUS)
        except OSError as error:
            raise storage_error(f"checkpoint {self.files.url / NEWEST}", error) from error

    def _get(self, name: str) -> bytes | None:
        try:
            return self.files.get(name)
        except OSError as error:
            raise UsageError(f"checkpoint {self.files.url / name} cannot be read: {error}") from error

    def _remove(self, name: str) -> None:
        self.files.remove(name)


def checkpoints_at(root: Path | Location, key: str) -> Checkpoints:
    """Return the checkpoints of a run below the folder or URL of all runs' checkpoints.

    Raises:
        UsageError: no installed file system supports the URL.
    """
    return RemoteCheckpoints(root, key) if isinstance(root, Location) else CheckpointFolder(root, key)


def checkpoint_root(database: Place, place: Place | None = None) -> Path | Location:
    """Return the folder or URL of the checkpoints of a database's runs.

    For a database file they are next to it, in a folder with its full name; a link counts as the file to which it
    points. For a server they are at `place`, by default in the current folder.

    Raises:
        UsageError: a place is given for a database file, or the URL's file system is unknown.
    """
    file = Location.of(database).file
    if file is not None:
        if place is not None:  # a process with another location would not see the run's lock
            raise UsageError(
                "`checkpoints` is for a database server: a file has its checkpoints next to it, so leave it out"
            )
        file = real_file(file)
        return file.parent / f"{file.name}.checkpoints"
    location = Location.of(place or SERVER_FILES)
    if not location.is_url:
        return Path(location.real)
    RemoteFolder(location, what="checkpoints")
    return location


def checkpoint_bytes(root: Path) -> dict[str, int]:
    """Return the bytes of each run's checkpoints below a folder, by key; runs without a checkpoint are left out."""
    sizes: dict[str, int] = {}
    for name in (NEWEST, PREVIOUS):
        for file in root.glob(f"*/{name}"):
            with suppress(OSError):  # a process that trains may remove it meanwhile
                sizes[file.parent.name] = sizes.get(file.parent.name, 0) + file.stat().st_size
    return sizes


def places(database: Location, options: RunOptions, key: str) -> tuple[Checkpoints, WeightsFolder]:
    """Return the checkpoints of a run, and the place of its kept weights.

    Raises:
        UsageError: a place cannot be used.
    """
    root = checkpoint_root(database, options.checkpoints)
    return checkpoints_at(root, key), weights_folder(database, options.weights, root)


def remove_checkpoints(database: Location, root: Path | Location, key: str) -> None:
    """Remove the checkpoints of a run that is being deleted.

    If the folder next to the database file is a link, it may belong to another database. The checkpoints then stay, and
    a message names them.

    Args:
        root: the result of `checkpoint_root`.
    """
    checkpoints = checkpoints_at(root, key)
    if database.file is None or isinstance(root, Location) or not root.is_symlink():
        checkpoints.clear()
    elif checkpoints.exists():
        folder = Path(root, key)
        _logger.warning("stays: %s (%s is a link, and another database may have it, too)", folder, root)


def real_file(file: Path) -> Path:
    """Return the absolute path of a file, with links followed; the file may be missing."""
    return Path(os.path.realpath(file))


def _read(content: bytes) -> dict[str, Any] | None:
    """Return the content of a checkpoint, or None if it is damaged."""
    import torch

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Torch compresses nothing. A compressed member is not its own, and may unpack to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                return None
            if archive.testzip() is not None:  # torch does not check the checksums
                return None
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged file raises nearly any error; the previous checkpoint may be usable
        return None
    # The type is checked here, because `candidates` compares the number, and a damaged file may hold anything.
    return state if isinstance(state, dict) and type(state.get("logged")) is int else None


@contextmanager
def lock(store: Store, checkpoints: Checkpoints) -> Iterator[None]:
    """Lock the run of these checkpoints until the context ends.

    Raises:
        RunLockedError: another process has locked the run.
        StorageError: the folder cannot be written.
    """
    if store.server is None:
        with checkpoints.lock():
            yield
    else:
        with store.server.lock(f"run {checkpoints.key}"):
            yield


def is_locked(store: Store, checkpoints: Checkpoints) -> bool:
    """Return whether a process is training the run."""
    return checkpoints.is_locked() if store.server is None else store.server.is_locked(f"run {checkpoints.key}")


def remove_leftovers(store: Store, checkpoints: Checkpoints) -> None:
    """Remove the checkpoints of a finished run, which stay if its process dies after its last commit.

    Nothing happens if another process has locked the run, or if the folder cannot be written.
    """
    if not checkpoints.exists():
        return
    with suppress(RunLockedError, StorageError, UsageError), lock(store, checkpoints):
        run = store.find(checkpoints.key)
        if run is not None and run.status == Status.FINISHED:
            checkpoints.clear()
