"""Data sets in MNIST's format whose files stay gzipped, because their authors publish checksums of those files only."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from orthobench.data.mnist import MNISTData, is_gzipped


class PackedIDX(MNISTData):
    """Images in four gzipped IDX files; `files` has their names with .gz and the MD5s of the gzipped files."""

    def _unpack(self, source: Path, target: Path) -> None:
        """Copy a file, and gzip it if the user has unpacked it."""
        if is_gzipped(source):
            shutil.copyfile(source, target)
            return
        with source.open("rb") as stream, target.open("wb") as packed, gzip.GzipFile("", "wb", 6, packed, 0) as copy:
            shutil.copyfileobj(stream, copy)

    def content(self, file: Path) -> bytes:
        with gzip.open(file) as stream:
            return stream.read()
