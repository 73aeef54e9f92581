"""The place of a database's kept weights: a folder beside the database file, another folder, or a URL.

The database records a file in the folder beside it by its name alone. So the weights are found after the database and
this folder have moved or have new names. It records other files by their absolute path or URL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orthobench.errors import UsageError, without_passwords
from orthobench.store import Weights
from orthobench.store.atomic import storage_error, write_bytes
from orthobench.store.location import sqlite_file
from orthobench.store.remote import RemoteFolder
from orthobench.weights.content import file_name, sha256


@dataclass(frozen=True)
class WeightsFolder:
    """A folder or a URL for files of weights.

    Attributes:
        root: the absolute path of the folder, or the URL.
        is_beside: whether it is the folder beside the database file.
    """

    root: str
    is_beside: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether it is a URL."""
        return "://" in self.root

    def check(self) -> None:
        """Refuse a URL that no file system supports, and a folder that cannot be written.

        Raises:
            UsageError: with the fix.
        """
        if self.is_remote:
            self._remote()
        elif Path(self.root).is_file():
            raise UsageError(f"weights cannot be kept in {self.root}, which is a file: name a folder with --weights-at")
        elif not self.is_beside:  # the folder of checkpoints shows whether the database's folder can be written
            folder = next(path for path in (Path(self.root), *Path(self.root).parents) if path.exists())
            if not os.access(folder, os.W_OK | os.X_OK):
                raise UsageError(
                    f"weights cannot be kept in {self.root}: {folder} is not writable; make it writable, name another "
                    "folder with --weights-at, or give --keep-weights none"
                )

    def recorded(self, name: str) -> str:
        """Return the path of a file as the database records it."""
        return name if self.is_beside else f"{self.root}/{name}"

    def put(self, name: str, content: bytes) -> str:
        """Write or replace a file in one step, and return the path to record.

        Raises:
            StorageError: the file cannot be written; a file that was there stays as it was.
        """
        try:
            if self.is_remote:
                self._remote().put(name, content)
            else:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                write_bytes(Path(self.root, name), content)
        except OSError as error:
            raise storage_error(f"weights {self.shown(name)}", error) from error
        return self.recorded(name)

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file.

        Raises:
            UsageError: the file cannot be read.
        """
        try:
            if self.is_remote:
                return self._remote().get(name)
            return Path(self.root, name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"weights {self.shown(name)} cannot be read: {error.strerror or error}") from error

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name; False also if the place cannot be reached."""
        try:
            return self._remote().exists(name) if self.is_remote else Path(self.root, name).is_file()
        except (OSError, UsageError):
            return False

    def remove(self, name: str) -> None:
        """Remove a file, if there is one.

        Raises:
            StorageError: the file cannot be removed.
        """
        try:
            if self.is_remote:
                self._remote().remove(name)
            else:
                Path(self.root, name).unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(f"weights {self.shown(name)}", error) from error

    def shown(self, name: str) -> str:
        """Return the path or URL of a file for messages."""
        return without_passwords(f"{self.root}/{name}")

    def _remote(self) -> RemoteFolder:
        return RemoteFolder(self.root, what="weights")


def weights_folder(database: str, location: str | None = None, checkpoints: Path | str | None = None) -> WeightsFolder:
    """Return the place of the weights of a database's runs.

    Args:
        location: a folder or a URL; None: the folder beside a database file, which has the file's name. A link counts
            as the file that it names.
        checkpoints: the folder or URL of a server's checkpoints, below which its weights have a folder by default.
    """
    if location is not None:
        return WeightsFolder(_absolute(location.rstrip("/")))
    file = sqlite_file(database)
    if file is not None:
        return WeightsFolder(f"{os.path.realpath(file)}.weights", is_beside=True)
    return WeightsFolder(f"{_absolute(str(checkpoints or 'orthobench.checkpoints'))}/weights")


def find(database: str, key: str, record: Weights) -> tuple[WeightsFolder, str]:
    """Return the place and the name of a recorded file. Only names that orthobench gives count.

    Raises:
        UsageError: the record names another file.
    """
    parent, _, name = record.path.rpartition("/")
    if name != file_name(key, record.kind):
        raise UsageError(f"the record of run {key}'s weights names another file, {record.path}: it is damaged")
    return (WeightsFolder(parent) if parent else weights_folder(database)), name


def exists(database: str, key: str, record: Weights) -> bool:
    """Return whether a recorded file exists; False also if its place cannot be reached."""
    try:
        folder, name = find(database, key, record)
    except UsageError:
        return False
    return folder.exists(name)


def read(database: str, key: str, record: Weights) -> bytes:
    """Return the content of a recorded file, whose hash is checked.

    Raises:
        UsageError: the file is missing, is cut off or was changed, or cannot be read.
    """
    folder, name = find(database, key, record)
    content = folder.get(name)
    if content is None:
        raise UsageError(
            f"weights {folder.shown(name)} of run {key} are missing: move them there, or train the run again with "
            f"--force --keep-weights {'last' if record.kind == 'state' else record.kind}"
        )
    if sha256(content) != record.sha256:
        cause = f"it has {len(content)} of {record.bytes} bytes" if len(content) < record.bytes else "it was changed"
        raise UsageError(
            f"weights {folder.shown(name)} have another SHA-256 than the database records ({cause}): restore the file, "
            "or train the run again with --force"
        )
    return content


def remove(database: str, key: str, records: Iterable[Weights]) -> None:
    """Remove recorded files of a run; a missing file, or a record of another file, is passed over.

    Raises:
        StorageError: a file cannot be removed.
    """
    for record in records:
        with suppress(UsageError):
            folder, name = find(database, key, record)
            folder.remove(name)


def _absolute(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())
