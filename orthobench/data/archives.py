"""Read files in ZIP and TAR archives with limits, because a small archive can unpack to more than a disk holds."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, cast

from orthobench.data.limits import LimitedReader, copy_limited
from orthobench.errors import UsageError

UNREADABLE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    gzip.BadGzipFile,
)
"""Errors of `zipfile` and `tarfile` for members that are damaged, encrypted, or packed in an unknown way."""
MARKS = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ": lzma}
"""The module that unpacks a compressed file, by the file's first bytes."""
ENDS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


LIMIT = 1_000_000_000
"""Limit in bytes for unpacking an archive of small files; some also contain programs or pictures."""


def is_archive(file: Path) -> bool:
    """Return whether a file has the name of a ZIP or TAR archive."""
    return file.name.lower().endswith(ENDS)


def members(archive: Path, limit: int) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path and the open stream of each file in an archive; the caller closes it before the next one.

    Args:
        limit: the most bytes to which a TAR archive may unpack.

    Raises:
        UsageError: the archive is cut off, is not an archive, or unpacks to more.
    """
    try:
        if archive.suffix.lower() == ".zip":
            with zipfile.ZipFile(archive) as packed:
                for entry in packed.infolist():
                    if not entry.is_dir():
                        yield entry.filename, packed.open(entry)
            return
        with _unpacking(archive) as packed_stream:
            limited = cast("IO[bytes]", LimitedReader(packed_stream, limit, archive))
            # As a stream, because the limit counts the bytes as they pass.
            with tarfile.open(fileobj=limited, mode="r|") as unpacked:
                for member in unpacked:
                    content = unpacked.extractfile(member) if member.isfile() else None
                    if content is not None:
                        yield member.name, content
    except UNREADABLE as error:
        kind = "ZIP" if archive.suffix.lower() == ".zip" else "TAR"
        raise UsageError(f"{archive} is not a complete {kind} archive ({error}): download it again") from error


def copy_member(stream: IO[bytes], target: Path, limit: int, name: str) -> int:
    """Copy an archive member of at most `limit` bytes to a file, close it, and return the number of bytes.

    Raises:
        UsageError: the member is damaged, or has more bytes.
    """
    try:
        with stream:
            return copy_limited(stream, target, limit, name)
    except UNREADABLE as error:
        raise UsageError(f"{name} cannot be unpacked: {error}; get another copy") from error


def _unpacking(archive: Path) -> IO[bytes]:
    """Open a TAR archive, plain or compressed; reading decompresses it."""
    with archive.open("rb") as stream:
        begin = stream.read(6)
    for mark, module in MARKS.items():
        if begin.startswith(mark):
            return cast("IO[bytes]", module.open(archive))
    return archive.open("rb")


@contextmanager
def unpacked_folders(path: Path, is_needed: Callable[[str], bool], largest: int) -> Iterator[list[Path]]:
    """Yield the folders in which to search for files: the user's folder, or the folders of an unpacked archive.

    Args:
        is_needed: returns whether to unpack a file of this name.
        largest: the most bytes that such a file may have.

    Raises:
        UsageError: the path is neither a folder nor an archive, or the archive cannot be unpacked.
    """
    if path.is_dir():
        yield [path]
        return
    if not is_archive(path):
        raise UsageError(f"{path} is neither a folder nor a ZIP or TAR archive: name one of these")
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        for name, stream in members(path, LIMIT):
            parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..")]
            if parts and is_needed(parts[-1]):
                target = root.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_member(stream, target, largest, f"{name} in {path}")
        folders = [folder for folder in root.rglob("*") if folder.is_dir()]
        yield [root, *sorted(folders, key=lambda folder: (len(folder.parts), folder))]
