"""What a data set is, and the folder that holds them all."""

from __future__ import annotations

import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

import platformdirs

from orthobench.data.download import Download, fetch, md5
from orthobench.errors import UsageError
from orthobench.store.atomic import replacing_folder

Report = Callable[[str, int, int], None]
"""A callback for the progress of a download: the file's name, bytes so far, total bytes."""

log = logging.getLogger(__name__)
_chosen: ContextVar[Path | None] = ContextVar("data_folder", default=None)


def data_folder() -> Path:
    """The folder of all data sets: the one in use, or $ORTHOBENCH_DATA, or the user's cache folder."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    variable = os.environ.get("ORTHOBENCH_DATA")
    return Path(variable) if variable else platformdirs.user_cache_path("orthobench") / "data"


@contextmanager
def use_data_folder(folder: Path | None) -> Iterator[None]:
    """Set the data folder inside the block; None leaves it as it is."""
    token = _chosen.set(folder or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


class DataSet(ABC):
    """Base of the data sets.

    Class attributes: `name`, which is also its folder's; `title`, `licence` and `home`, its web page; `files`, the
    paths below its folder that have to be there, with the MD5 of the canonical ones; `size`, roughly the bytes they
    take on the disk; `downloads`, what `get` brings, empty where a licence has to be had first.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    licence: ClassVar[str]
    home: ClassVar[str]
    files: ClassVar[Mapping[str, str | None]]
    size: ClassVar[int]
    downloads: ClassVar[Sequence[Download]] = ()

    @abstractmethod
    def gather(self, path: Path, into: Path) -> None:
        """Copy or convert the files found at a path of the user's (a file or folder) into an empty folder.

        Raises:
            UsageError: they are not there or cannot be read; one line that names the file.
        """

    @abstractmethod
    def faults(self, folder: Path) -> list[str]:
        """What makes the data in a folder unusable, a line each: files missing or cut off, values out of range."""

    def check_packages(self) -> None:  # noqa: B027
        """Check that the packages that read the files are installed.

        Raises:
            UsageError: a package of an extra is missing.
        """

    def folder(self) -> Path:
        return data_folder() / self.name

    def present(self) -> bool:
        """Whether the files are there; `verify` looks into them.

        Raises:
            UsageError: the folder may not be looked into.
        """
        try:
            return all((self.folder() / file).is_file() for file in self.files)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error

    def require(self) -> Path:
        """The data set's folder.

        Raises:
            UsageError: it is not there; says which command brings it.
        """
        self.check_packages()
        if self.present():
            return self.folder()
        bring = f"orthobench data import {self.name} PATH"
        if self.downloads:
            raise UsageError(f"{self.name} is not here: orthobench data get {self.name} (files you have: {bring})")
        raise UsageError(f"{self.name} is not here: it needs a licence ({self.home}); then {bring}")

    def get(self, report: Report) -> None:
        """Download the data set and check it; an interrupted download resumes.

        Raises:
            UsageError: the licence forbids it, no mirror answers, or a checksum differs.
        """
        if not self.downloads:
            raise UsageError(
                f"{self.name} cannot be downloaded: {self.licence} ({self.home}); "
                f"bring files you have by orthobench data import {self.name} PATH"
            )
        self.check_packages()
        waiting = data_folder() / ".downloads" / self.name
        for download in self.downloads:
            fetch(download, waiting, report)
        self.bring_in(waiting)
        shutil.rmtree(waiting)

    def bring_in(self, path: Path) -> None:
        """Take in files one already has, at `path`; all of them, or none if anything is wrong.

        A copy whose bytes are not the canonical ones but whose contents are in order is taken with a warning.

        Raises:
            UsageError: files are missing, broken, or cannot be written; what was there before stays.
        """
        self.check_packages()
        with replacing_folder(self.folder()) as new:
            if not path.exists():
                raise UsageError(f"{path} does not exist: name the file or folder with {self.title}")
            self.gather(path, new)
            if faults := self.faults(new):
                raise UsageError(f"{path} is not taken in: {'; '.join(faults)}".replace(f"{new}{os.sep}", ""))
            for line in self.deviations(new):
                log.warning("%s: %s", self.name, line)

    def deviations(self, folder: Path) -> list[str]:
        """Which files are not the canonical ones, by checksum."""
        checksums = {file: md5(folder / file) for file, expected in self.files.items() if expected is not None}
        other = [Path(file).name for file, checksum in checksums.items() if checksum != self.files[file]]
        return [f"not the canonical copy, results may differ a little: {', '.join(other)}"] if other else []

    def verify(self) -> list[str]:
        """What is wrong with the data set that is there, a line each; empty if all is well.

        Raises:
            UsageError: it is not there.
        """
        folder = self.require()
        return self.faults(folder) or self.deviations(folder)
