"""A folder at a URL."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from orthobench.errors import UsageError
from orthobench.system.location import Location


class RemoteFolder:
    """Files below a URL.

    Args:
        url: the URL.
        below: the path below it.
        what: the word for the files in the error.

    Raises:
        UsageError: no installed file system supports the URL, or it is a reference.
    """

    def __init__(self, url: Location, below: str = "", what: str = "files") -> None:
        from fsspec.core import url_to_fs

        self.url = Location("/".join(filter(None, (url.real.rstrip("/"), below))))
        protocols = {part.partition("://")[0] for part in self.url.real.split("::")}
        if "reference" in protocols:  # older versions of fsspec run code that the file of references contains
            raise UsageError(f"{what} cannot be kept at {url}: nothing can be written below a reference")
        try:
            self.files, self.folder = url_to_fs(self.url.real)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{what} cannot be kept at {url}: {error}") from error

    def put(self, name: str, content: bytes, backup: str | None = None) -> None:
        """Write or replace a file in one step.

        Args:
            backup: the new name of the previous file.

        Raises:
            OSError: the file cannot be written.
        """
        part = f"{self.folder}/{name}.{uuid4().hex}"
        self.files.makedirs(self.folder, exist_ok=True)
        self.files.pipe_file(part, content)
        self.files.invalidate_cache()
        if backup is not None and self.files.exists(f"{self.folder}/{name}"):
            self._move(f"{self.folder}/{name}", f"{self.folder}/{backup}")
        self._move(part, f"{self.folder}/{name}")

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file.

        Raises:
            OSError: the file cannot be read.
        """
        self.files.invalidate_cache()  # another machine may have written
        try:
            content: bytes = self.files.cat_file(f"{self.folder}/{name}")
        except FileNotFoundError:
            return None
        return content

    def exists(self, *names: str) -> bool:
        """Return whether at least one of these files exists."""
        self.files.invalidate_cache()
        return any(self.files.exists(f"{self.folder}/{name}") for name in names)

    def remove(self, name: str) -> None:
        """Remove a file.

        Raises:
            OSError: the file cannot be removed, or does not exist.
        """
        self.files.rm_file(f"{self.folder}/{name}")

    def remove_parts(self, names: str) -> None:
        """Remove what processes that were killed in `put` have left of files whose names match a pattern.

        Raises:
            OSError: a file cannot be removed.
        """
        self.files.invalidate_cache()
        for path in self.files.glob(f"{self.folder}/{names}.{'[0-9a-f]' * 32}"):
            self.files.rm_file(path)

    def clear(self) -> None:
        """Remove the folder with all its files."""
        with suppress(OSError):
            self.files.rm(self.folder, recursive=True)

    def _move(self, file: str, to: str) -> None:
        if self.files.exists(to):  # some file systems do not replace files
            self.files.rm_file(to)
        self.files.mv(file, to)
