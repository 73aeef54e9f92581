"""The files of a database's kept weights, and their place: a folder next to the database file, another one, or a URL.

A file is safetensors, with the facts of its run as JSON in its metadata. Reading it executes no code, because it
contains only numbers and text. A layer's name among the facts is such a text: see `orthobench.plugins.catalog`.

The database records a file in the folder next to it by name only, so the weights are still found after the database and
this folder have been moved or renamed. It records other files by their absolute path or URL.

A record may come from another machine or a stranger. Commands therefore only open URLs that the user gives, and only
remove files in the folder next to the database or at a place that the user gives.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from orthobench.errors import UsageError
from orthobench.store import Weights
from orthobench.system.files import storage_error, write_bytes
from orthobench.system.kinds import refuse_file
from orthobench.system.location import SERVER_FILES, Location, Place
from orthobench.system.remote_folder import RemoteFolder
from orthobench.version import __version__

if TYPE_CHECKING:
    from torch import Tensor


WeightsKind = Literal["best", "last", "state"]
"""The weights at the best test, the weights after the last iteration, and the state for continuing a run."""
WEIGHTS_KINDS: tuple[WeightsKind, ...] = get_args(WeightsKind)
"""All kinds of kept files: weights to use again, and the state from which a run continues."""
SUFFIX = ".safetensors"
FACTS = "orthobench"
"""The metadata entry that holds the facts."""
FORMAT = 1
"""Version of the facts."""
ALIGNMENT = 8
"""Bytes by whose multiples the numbers of a file start; spaces fill the header."""
BROKEN = "restore the file, or train the run again with `force=True`"


@dataclass(frozen=True)
class Content:
    """The tensors of a file by name, and the facts of their run.

    The facts are the run's key and `spec`, the file's `kind`, the `iteration`, and the model's `signature`. A training
    state's facts also include its structure.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def encode(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file; the tensors may be on any device and may share memory.

    Equal arguments give equal bytes, so that equal weights have equal hashes.
    """
    from safetensors.torch import save

    # Clones, because safetensors refuses tensors that share memory, such as tied weights.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    record = {"format": FORMAT, "version": __version__, **facts}
    content = save(own, {"format": "pt", FACTS: json.dumps(record, sort_keys=True)})
    start, header = _header(content)  # with the metadata in a random order, because safetensors keeps it in a hash map
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text + content[start:]


def decode(content: bytes, name: str) -> Content:
    """Return the tensors and the facts of a file.

    Args:
        name: the file, as errors name it.

    Raises:
        UsageError: the file is cut off or damaged, or another program wrote it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    facts = _facts(content, name)
    try:
        return Content(load(content), facts)
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{name} is cut off or damaged ({error}): {BROKEN}") from error


def _header(content: bytes) -> tuple[int, dict[str, Any]]:
    """Return where the numbers start, and the header before them: 8 bytes with its length, then JSON.

    Raises:
        ValueError, RecursionError, struct.error: there is no whole header.
    """
    (length,) = struct.unpack_from("<Q", content)
    if length > len(content) - 8:
        raise ValueError("it is shorter than its header")
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    return 8 + length, header


def _facts(content: bytes, name: str) -> dict[str, Any]:
    """Return the facts from the header.

    Raises:
        UsageError: the file is cut off, or another program wrote it.
    """
    try:
        metadata = _header(content)[1].get("__metadata__", {})
    except (ValueError, AttributeError, RecursionError, struct.error) as error:
        raise UsageError(f"{name} is cut off or not a safetensors file: {BROKEN}") from error
    try:
        facts = json.loads(metadata[FACTS])
        if facts["format"] > FORMAT:
            raise UsageError(f"{name} has the newer format {facts['format']}: update orthobench")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} has no facts of a run: give a file that orthobench wrote") from error
    return dict(facts)


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a file's content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def weights_file_name(key: str, kind: str) -> str:
    """Return the name of a run's file of this kind."""
    return f"{key}.{kind}{SUFFIX}"


PROTOCOLS = ("abfs", "abfss", "az", "file", "gcs", "gs", "hdfs", "local", "memory", "s3", "s3a", "sftp", "ssh")
"""The URL protocols for weights. fsspec supports more, but some of them run code from the place that they open."""

_logger = logging.getLogger("orthobench")


@dataclass(frozen=True)
class WeightsFolder:
    """A folder or a URL for files of weights.

    Attributes:
        root: the absolute path of the folder, or the URL.
        is_adjacent: whether it is the folder next to the database file.
    """

    root: Location
    is_adjacent: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether it is a URL."""
        return self.root.is_url

    @property
    def _folder(self) -> Path:
        return Path(self.root.real)

    def check(self) -> None:
        """Refuse a URL that no file system supports, or a folder that cannot be written or recorded.

        Raises:
            UsageError: with the fix.
        """
        if not self.is_adjacent and self.root.real != self.root.real.encode(errors="replace").decode():
            raise UsageError(
                f"weights cannot be kept in {self.root}: the database records the path, which is not UTF-8; name "
                "another folder with `weights`, or leave it out"
            )
        if self.is_remote:
            self._remote()
        elif self._folder.is_file():
            raise UsageError(f"weights cannot be kept in {self.root}, which is a file: name a folder with `weights`")
        elif not self.is_adjacent:  # whether the database's folder is writable is checked with the checkpoints
            refuse_file(self._folder)
            folder = next(path for path in (self._folder, *self._folder.parents) if path.exists())
            if not os.access(folder, os.W_OK | os.X_OK):
                raise UsageError(
                    f"weights cannot be kept in {self.root}: {folder} is not writable; make it writable, name another "
                    "folder with `weights`, or give `keep_weights='none'`"
                )

    def recorded(self, name: str) -> Location:
        """Return the path of a file as the database records it."""
        return Location(name) if self.is_adjacent else self.root / name

    def put(self, name: str, content: bytes) -> Location:
        """Write or replace a file atomically, and return the path to record.

        Raises:
            StorageError: the file cannot be written; an existing file does not change.
        """
        try:
            if self.is_remote:
                self._remote().put(name, content)
            else:
                self._folder.mkdir(parents=True, exist_ok=True)
                # The run is locked, so only this process writes into the folder of its database.
                write_bytes(self._folder / name, content, locked=self.is_adjacent)
        except OSError as error:
            raise storage_error(f"weights {self.root / name}", error) from error
        return self.recorded(name)

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file.

        Raises:
            UsageError: the file cannot be read.
        """
        try:
            if self.is_remote:
                return self._remote().get(name)
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"weights {self.root / name} cannot be read: {error.strerror or error}") from error

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name; False also if the place cannot be reached."""
        try:
            return self._remote().exists(name) if self.is_remote else (self._folder / name).is_file()
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
                (self._folder / name).unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(f"weights {self.root / name}", error) from error

    def remove_parts(self, key: str) -> None:
        """Remove what processes that were killed while they wrote files of a run have left; this process locks the run.

        Files stay that cannot be removed, or if the place cannot be reached.
        """
        with suppress(OSError, UsageError):
            if self.is_remote:
                self._remote().remove_parts(f"{key}.*{SUFFIX}")
            else:
                for part in (*self._folder.glob(f".{key}.*.part"), *self._folder.glob(f"{key}.*.part")):
                    part.unlink(missing_ok=True)

    def holds(self, other: WeightsFolder) -> bool:
        """Return whether another place is this one or inside it, following links."""
        if self.is_remote or other.is_remote:
            own, others = self.root.real, other.root.real
            is_below = f"{others}/".startswith(f"{own}/") and ".." not in others.split("/")
            return self.is_remote and other.is_remote and is_below
        return Path(os.path.realpath(other.root.real)).is_relative_to(os.path.realpath(self.root.real))

    def check_url(self) -> None:
        """Refuse a URL of any but the listed protocols, or a chain of several URLs.

        Raises:
            UsageError: the message lists the protocols.
        """
        if self.is_remote and (self.root.real.partition("://")[0] not in PROTOCOLS or "::" in self.root.real):
            raise UsageError(
                f"weights cannot be kept at {str(self.root)[:200]}: give a folder, or one URL of {', '.join(PROTOCOLS)}"
            )

    def _remote(self) -> RemoteFolder:
        self.check_url()
        return RemoteFolder(self.root, what="weights")


def weights_folder(
    database: Location, place: Place | None = None, checkpoints: Path | Location | None = None
) -> WeightsFolder:
    """Return the place of the weights of a database's runs.

    Args:
        place: a folder or a URL; None: the folder next to a database file, with its name. A link counts as the
            file to which it points.
        checkpoints: the folder or URL of a server's checkpoints, which by default also contains its weights.
    """
    if place is not None:
        return WeightsFolder(Location(Location.of(place).real.rstrip("/")).absolute())
    file = database.file
    if file is not None:
        return WeightsFolder(Location(f"{os.path.realpath(file)}.weights"), is_adjacent=True)
    return WeightsFolder(Location.of(checkpoints or SERVER_FILES).absolute() / "weights")


def find_weights(database: Location, key: str, record: Weights) -> tuple[WeightsFolder, str]:
    """Return the place and the name of a recorded file; only names that orthobench would write are valid.

    Raises:
        UsageError: the record names another file.
    """
    parent, _, name = record.path.real.rpartition("/")
    is_ours = record.kind in WEIGHTS_KINDS and name == weights_file_name(key, record.kind) and parent.isprintable()
    if not is_ours or not (not parent or "://" in parent or Path(parent).is_absolute()):
        raise UsageError(f"the record of run {key}'s weights names another file, {record.path}: it is damaged")
    return (WeightsFolder(Location(parent)) if parent else weights_folder(database)), name


def exists(database: Location, key: str, record: Weights) -> bool | None:
    """Return whether a recorded file exists; None for a URL, which is not opened."""
    try:
        folder, name = find_weights(database, key, record)
    except UsageError:
        return False
    return None if folder.is_remote else folder.exists(name)


def missing_weights(database: Location, keys: Mapping[int, str], records: Iterable[Weights]) -> list[Weights]:
    """Return the records whose files are missing; records of unreadable runs and files at a URL are not checked.

    Args:
        keys: the keys of the runs by id.
    """
    return [
        record for record in records if record.run_id in keys and exists(database, keys[record.run_id], record) is False
    ]


def read_weights(database: Location, key: str, record: Weights, weights_at: Place | None = None) -> bytes:
    """Return the content of a recorded file after checking its hash.

    Args:
        weights_at: the folder or URL of weights given on the command line, for example that to which the file was
            moved; no other URL is opened.

    Raises:
        UsageError: the file is missing, cut off, changed, unreadable, or at another URL.
    """
    recorded, name = find_weights(database, key, record)
    recorded.check_url()
    given = None if weights_at is None else weights_folder(database, weights_at)
    is_named = given is not None and given.holds(recorded)
    may_open = is_named or not recorded.is_remote
    folder, content = recorded, recorded.get(name) if may_open else None
    if content is None and given is not None and not is_named:
        folder, content = given, given.get(name)
    if content is None and not may_open:
        raise UsageError(
            f"weights {recorded.root / name} of run {key} are at a URL that this command does not name: if you trust "
            f"it, give `weights_at={str(recorded.root)!r}`"
        )
    if content is None:
        raise UsageError(
            f"weights {folder.root / name} of run {key} are missing: move them there, or train the run again with "
            f"`force=True` and `keep_weights={'last' if record.kind == 'state' else record.kind!r}`"
        )
    if sha256(content) != record.sha256:
        cause = f"it has {len(content)} of {record.bytes} bytes" if len(content) < record.bytes else "it was changed"
        raise UsageError(
            f"weights {folder.root / name} have another SHA-256 than the database records ({cause}): restore the file, "
            "or train the run again with `force=True`"
        )
    return content


def remove(database: Location, key: str, records: Iterable[Weights], weights_at: Place | None = None) -> None:
    """Remove recorded files of a run in the folder next to its database, or at the place given on the command line.

    Files elsewhere may belong to the database from which this one was copied, so they stay, and a line names each. The
    same applies if the folder next to the database is a link. Missing files are ignored. Parts of files that killed
    processes have left are removed, too.

    Args:
        weights_at: the folder or URL of weights given on the command line.

    Raises:
        StorageError: a file cannot be removed.
    """
    nearby = weights_folder(database)
    own = [] if Path(nearby.root.real).is_symlink() else [nearby]
    own += [] if weights_at is None else [weights_folder(database, weights_at)]
    for each in own:
        each.remove_parts(key)
    for record in records:
        try:
            folder, name = find_weights(database, key, record)
            folder.check_url()
        except UsageError:
            _logger.warning("stays: %s", record.path)
            continue
        if any(each.holds(folder) for each in own):
            folder.remove(name)
        elif folder.is_remote or folder.exists(name):
            root = str(folder.root)
            _logger.warning(
                "stays: %s (another database may have it, too; `weights_at=%r` removes it)", folder.root / name, root
            )
