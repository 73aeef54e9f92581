"""MNIST: 70 000 handwritten digits of 28 x 28 pixels, in four IDX files (LeCun, Cortes, Burges 1998)."""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from orthobench.data.archives import unpacked_folders
from orthobench.data.download import Download
from orthobench.data.images import ImageDataSet, Part, read_file
from orthobench.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


GZIP = b"\x1f\x8b"
"""The first bytes of a gzipped file."""


def packed(mirrors: tuple[str, ...], files: dict[str, tuple[str, int]]) -> tuple[Download, ...]:
    """Return the downloads of the gzipped files, given by name with MD5 and size, from all mirrors."""
    return tuple(
        Download(f"{name}.gz", tuple(f"{mirror}{name}.gz" for mirror in mirrors), checksum, size)
        for name, (checksum, size) in files.items()
    )


def is_gzipped(file: Path) -> bool:
    """Return whether a file is gzipped, whatever its name: browsers unpack files and keep the name, or the reverse."""
    with file.open("rb") as stream:
        return stream.read(2) == GZIP


def _names(file: str) -> list[str]:
    """Return the names that a file may have, its own first; some unpacking programs put a dot before `idx`."""
    plain = file.removesuffix(".gz")
    ends = ("", ".gz") if file == plain else (".gz", "")
    return [name + end for name in (plain, plain.replace("-idx", ".idx")) for end in ends]


def read_idx(content: bytes, dimensions: int) -> Tensor:
    """Return the unsigned bytes in the content of an IDX file.

    Such a file has a magic number (0, 0, 8 for unsigned bytes, the number of dimensions), the sizes, and the values.
    Magic number and sizes have four bytes each, the most significant first.

    Raises:
        ValueError: the file is cut off, is longer than its sizes say, or has other values or dimensions.
    """
    import torch

    sizes = np.frombuffer(content[: 4 + 4 * dimensions], ">u4")
    if len(sizes) != 1 + dimensions or sizes[0] != 0x800 + dimensions:
        raise ValueError
    values = np.frombuffer(content, np.uint8, offset=sizes.nbytes)
    return torch.from_numpy(values.reshape(sizes[1:].tolist()).copy())


class MNISTData(ImageDataSet):
    name = "mnist"
    title = "MNIST"
    licence = "CC BY-SA 3.0"
    home = "http://yann.lecun.com/exdb/mnist/"
    files = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    size = 54_950_048
    downloads = packed(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
    )
    torchvision_folder: ClassVar[str] = "MNIST/raw"
    begins: ClassVar[dict[Part, str]] = {"train": "train", "test": "t10k"}
    """The first words of the names of a part's files."""
    counts = {"train": 60_000, "test": 10_000}
    shape = (28, 28)

    def gather(self, path: Path, into: Path) -> None:
        """Copy the files, plain or gzipped, from a folder, torchvision's folder inside it, or an archive of either."""
        names = {name for file in self.files for name in _names(file)}
        with unpacked_folders(path, names.__contains__) as folders:
            for file in self.files:
                source = next((each for folder in folders for each in self._sources(folder, file)), None)
                if source is None:
                    raise UsageError(
                        f"{path} has no {' or '.join(_names(file)[:2])}: name the folder with the four files"
                    )
                self._unpack(source, into / file)

    def _sources(self, folder: Path, file: str) -> Iterator[Path]:
        """Yield existing copies of this file, also from a folder with the file's name, as on Kaggle."""
        for parent in (folder, folder / self.torchvision_folder):
            for name in _names(file):
                yield from (path for path in (parent / name, parent / name / name) if path.is_file())

    def read(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        files = [file for file in self.files if Path(file).name.startswith(self.begins[part])]
        images, labels = (folder / next(file for file in files if kind in file) for kind in ("images", "labels"))
        return (
            read_file(images, "an IDX file of images", lambda: read_idx(self.content(images), 3)),
            read_file(labels, "an IDX file of labels", lambda: read_idx(self.content(labels), 1).long()),
        )

    def content(self, file: Path) -> bytes:
        """Return the content of an IDX file of the data folder."""
        return file.read_bytes()

    def _unpack(self, source: Path, target: Path) -> None:
        """Copy a file, gzipped or plain, whatever its name.

        Raises:
            UsageError: the file is cut off.
        """
        if not is_gzipped(source):
            shutil.copyfile(source, target)
            return
        try:
            with gzip.open(source) as packed, target.open("wb") as copy:
                shutil.copyfileobj(packed, copy)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UsageError(f"{source} is cut off or is not a gzip file: {error}") from error
