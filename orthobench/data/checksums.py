"""Checksums of the files and folders that settings name; they identify a run's data wherever it is stored."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from orthobench.data.download import md5
from orthobench.errors import UsageError
from orthobench.options.arguments import is_none
from orthobench.options.data_folder import data_folder
from orthobench.settings import CHECKSUM, whole_path
from orthobench.system.files import make_folder, write_bytes

SETTLED_SECONDS = 2.0
"""Cache a checksum only if the file's last change is older than this, so that a later change has another time."""


def with_checksum(values: Mapping[str, Any], name: str, checksum_of: Callable[[Path], str]) -> dict[str, Any]:
    """Return settings with the absolute path of the file or folder that one of them names, and its checksum.

    For validators that run before field validation. The class declares the setting `NAME_md5` for the checksum.

    Raises:
        ValueError: the file or folder cannot be read, or its checksum differs from the one in the settings.
    """
    location, expected = values.get(name), values.get(name + CHECKSUM)
    if is_none(location):
        return dict(values)
    path = Path(whole_path(str(location)))
    try:
        checksum = checksum_of(path)
    except OSError as error:
        raise ValueError(f"{name}={location} cannot be read: {error.strerror}") from error
    if not is_none(expected) and expected != checksum:
        raise ValueError(f"{name}={location} has changed: its checksum is {checksum}, not {expected}")
    return {**values, name: str(path), name + CHECKSUM: checksum}


def files_md5(folder: Path, files: Sequence[Path]) -> str:
    """Return the MD5 of files below a folder: of their relative paths and their contents, in any order.

    The checksum of each file is cached in the data folder with its size, times and inode, so that unchanged files are
    not read again.

    Raises:
        UsageError: a file cannot be read.
    """
    kept_in = data_folder() / ".checksums" / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.json"
    known = _read(kept_in)
    entries: dict[str, tuple[list[int], str]] = {}
    settled: dict[str, tuple[list[int], str]] = {}
    try:
        for file in files:
            name, now, facts = file.relative_to(folder).as_posix(), time.time_ns(), _facts(file)
            before, checksum = known.get(name, ([], ""))
            entries[name] = (facts, checksum if before == facts else md5(file))
            if max(facts[1:3]) < now - SETTLED_SECONDS * 1e9:
                settled[name] = entries[name]
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    if settled != known:
        with suppress(OSError):  # without a cache, the files are read again next time
            make_folder(kept_in.parent)
            write_bytes(kept_in, json.dumps(settled).encode())
    # Declared as harmless, because systems with FIPS rules refuse MD5 otherwise.
    total = hashlib.md5(usedforsecurity=False)
    for name in sorted(entries):
        total.update(os.fsencode(name) + b"\0" + entries[name][1].encode() + b"\n")
    return total.hexdigest()


def _facts(file: Path) -> list[int]:
    """Return the facts that change with a file's content; among them ctime, which no program can set back."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(file: Path) -> dict[str, tuple[list[int], str]]:
    """Return the cached checksums; empty if the file is missing or damaged."""
    try:
        return {name: (facts, checksum) for name, (facts, checksum) in json.loads(file.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
