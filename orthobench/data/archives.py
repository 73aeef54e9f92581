"""Read the files in ZIP and TAR archives."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

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
ENDS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


def is_archive(file: Path) -> bool:
    """Return whether a file has the name of a ZIP or TAR archive."""
    return file.name.lower().endswith(ENDS)


def members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path and the open stream of each file in an archive; the caller closes it before the next one.

    Raises:
        UsageError: the archive is cut off, or is not an archive.
    """
    is_zip = archive.suffix.lower() == ".zip"
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as packed:
                for entry in packed.infolist():
                    if not entry.is_dir():
                        yield entry.filename, packed.open(entry)
            return
        with tarfile.open(archive) as unpacked:
            for member in unpacked:
                content = unpacked.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield member.name, content
    except UNREADABLE as error:
        kind = "ZIP" if is_zip else "TAR"
        raise UsageError(f"{archive} is not a complete {kind} archive ({error}): download it again") from error


def copy_member(stream: IO[bytes], target: Path, name: str) -> None:
    """Copy an archive member to a file, and close it.

    Raises:
        UsageError: the member is damaged.
    """
    try:
        with stream, target.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
    except UNREADABLE as error:
        raise UsageError(f"{name} cannot be unpacked: {error}; get another copy") from error


@contextmanager
def unpacked_folders(path: Path, is_needed: Callable[[str], bool]) -> Iterator[list[Path]]:
    """Yield the folders in which to search for files: the user's folder, or the folders of an unpacked archive.

    Args:
        is_needed: returns whether to unpack a file of this name.

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
        for name, stream in members(path):
            parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..")]
            if parts and is_needed(parts[-1]):
                target = root.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_member(stream, target, f"{name} in {path}")
        folders = [folder for folder in root.rglob("*") if folder.is_dir()]
        yield [root, *sorted(folders, key=lambda folder: (len(folder.parts), folder))]
