"""The base class of the data sets."""

from __future__ import annotations

import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from orthobench.data.download import Download, fetch, md5
from orthobench.errors import MissingDataError, UsageError
from orthobench.options.data_folder import data_folder
from orthobench.system.files import replacing_folder

Report = Callable[[str, int, int], None]
"""A callback for download progress: the file's name, bytes so far, total bytes."""

_logger = logging.getLogger(__name__)


class DataSet(ABC):
    """Base of the data sets.

    Attributes:
        name: the name of the data set and of its folder.
        title: the name for users.
        licence: the licence in a few words.
        home: the web page.
        files: the required paths below the folder, each with the MD5 of the canonical file or None.
        size: the approximate bytes on the disk.
        downloads: the files that `get` downloads; empty if the data set needs a licence first.
        cites: the key of its paper in `orthobench/papers/references.bib`, if its task does not cite it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    licence: ClassVar[str]
    home: ClassVar[str]
    files: ClassVar[Mapping[str, str | None]]
    size: ClassVar[int]
    downloads: ClassVar[Sequence[Download]] = ()
    cites: ClassVar[str] = ""

    @abstractmethod
    def gather(self, path: Path, into: Path) -> None:
        """Copy or convert the data set's files from a user's file or folder into an empty folder.

        Raises:
            UsageError: a file is missing or cannot be read; the message names it.
        """

    @abstractmethod
    def faults(self, folder: Path) -> list[str]:
        """Return the faults of the data in a folder, one per line: missing or cut off files, values out of range."""

    def check_packages(self) -> None:  # noqa: B027
        """Check that the packages for reading the files are installed.

        Raises:
            UsageError: a package of an extra is missing.
        """

    def fetch_list(self) -> Sequence[Download]:
        """Return the files that `get` downloads, each with all its mirrors."""
        return self.downloads

    def folder(self) -> Path:
        """Return the folder of the data set, which may not exist yet."""
        return data_folder() / self.name

    def present(self) -> bool:
        """Return whether the files exist; use `verify` to check their contents.

        Raises:
            UsageError: the folder cannot be read.
        """
        try:
            return all((self.folder() / file).is_file() for file in self.files)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error

    def require(self) -> Path:
        """Return the data set's folder, which contains the files.

        Raises:
            MissingDataError: a file is missing; the message names the command that fetches the data set.
        """
        self.check_packages()
        if self.present():
            return self.folder()
        command = f"orthobench data import {self.name} PATH"
        fix = f"it needs a licence ({self.home}); then {command}"
        if self.downloads:
            fix = f"orthobench data get {self.name} (files you have: {command})"
        raise MissingDataError(f"{self.name} is not installed: {fix}; looked in {self.folder()}")

    def get(self, report: Report) -> None:
        """Download the data set and check it; an interrupted download resumes.

        Raises:
            UsageError: the licence forbids the download, no mirror answers, or a checksum differs.
        """
        if not self.downloads:
            raise UsageError(
                f"{self.name} cannot be downloaded: {self.licence} ({self.home}); "
                f"import files you have with orthobench data import {self.name} PATH"
            )
        self.check_packages()
        downloaded = data_folder() / ".downloads" / self.name
        for download in self.fetch_list():
            fetch(download, downloaded, report)
        self.import_files(downloaded)
        shutil.rmtree(downloaded)

    def import_files(self, path: Path) -> None:
        """Import all files from `path`, or none of them if there is any fault.

        Files without faults whose checksums differ from the canonical ones are imported with a warning.

        Raises:
            UsageError: files are missing or broken; the previous data remains.
            StorageError: files cannot be written; the previous data remains.
        """
        self.check_packages()
        with replacing_folder(self.folder()) as new:
            if not path.exists():
                raise UsageError(f"{path} does not exist: name the file or folder with {self.title}")
            self.gather(path, new)
            if faults := self.faults(new):
                raise UsageError(f"{path} was not imported: {'; '.join(faults)}".replace(f"{new}{os.sep}", ""))
            for line in self.deviations(new):
                _logger.warning("%s: %s", self.name, line)

    def deviations(self, folder: Path) -> list[str]:
        """Return a line with the files whose checksums differ from the canonical ones; empty if there are none."""
        checksums = {file: md5(folder / file) for file, expected in self.files.items() if expected is not None}
        other = [Path(file).name for file, checksum in checksums.items() if checksum != self.files[file]]
        return [f"not the canonical copy, results may differ a little: {', '.join(other)}"] if other else []

    def verify(self) -> list[str]:
        """Return the faults of the data set or, if it has none, its deviations, one per line.

        Raises:
            UsageError: the data set is missing.
        """
        folder = self.require()
        return self.faults(folder) or self.deviations(folder)
