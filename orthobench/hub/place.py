"""Where published runs are: a data set repository of Hugging Face, or a folder with the same files.

Both are read through fsspec. A repository gets all new files in one commit, and a folder one file after the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.errors import OrthobenchError, UsageError, needs_extra, one_line
from orthobench.system.location import Location, Place, from_home, variable
from orthobench.system.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

REPOSITORY = re.compile(r"(?:hf://(?:datasets/)?)?((?:[A-Za-z0-9][\w.-]{0,95})/(?:[A-Za-z0-9][\w.-]{0,95}))/?", re.A)
TOKEN = re.compile(r"\bhf_\w{6,}")
MOST_BYTES = 1 << 26
"""The largest file that is read."""


def is_hub(place: Place) -> bool:
    """Return whether a place is a repository or a folder, and so no database."""
    text = Location.of(place).real
    return text.startswith(("hf://", "file://")) or Path(text).is_dir()


@dataclass(frozen=True)
class Hub:
    """A place of published runs.

    Attributes:
        name: the place as messages name it.
        repository: ORG/NAME of a repository; None for a folder.
        folder: the absolute path of a folder; None for a repository.
    """

    name: str
    repository: str | None = None
    folder: str | None = None

    @classmethod
    def of(cls, place: Place) -> Hub:
        """Return the place that a user names: ORG/NAME, hf://ORG/NAME, file:///FOLDER, or a path.

        A path of the form ORG/NAME needs a ./ at its beginning.

        Raises:
            UsageError: the name has another form.
        """
        text = str(place) if isinstance(place, Location) else os.fspath(place)
        if (found := REPOSITORY.fullmatch(text)) and ".." not in text:
            return cls(f"hf://{found[1]}", repository=found[1])
        path = text.removeprefix("file://") if text.startswith("file:///") else text
        if not path.strip() or "://" in path or "\0" in path:
            raise UsageError(f"{str(place)[:200]!r} is no place of runs: write ORG/NAME, hf://ORG/NAME or ./FOLDER")
        return cls(text, folder=str(Path(from_home(path)).absolute()))

    def names(self, folder: str) -> dict[str, int]:
        """Return the size of each file in a subfolder by its name; without the subfolder, nothing.

        Raises:
            UsageError: the place does not exist or does not answer.
        """
        with self._answering("read"):
            place = self._place(folder)
            try:
                entries = place.files.ls(place.folder, detail=True)
            except FileNotFoundError:
                return {}
            return {
                entry["name"].rpartition("/")[2]: int(entry["size"] or 0)
                for entry in entries
                if entry["type"] != "directory"
            }

    def read(self, folder: str, name: str) -> bytes:
        """Return the content of a file in a subfolder.

        Raises:
            UsageError: the file is missing or too large, or the place does not answer.
        """
        path = f"{folder}/{name}"
        with self._answering("read"):
            place = self._place(folder)
            try:
                size = int(place.files.info(f"{place.folder}/{name}")["size"])
            except FileNotFoundError:
                raise UsageError(f"{self.name} is damaged: it has no file {path}") from None
            if size > MOST_BYTES:
                raise UsageError(f"{self.name} is damaged: {path} has {size} bytes, more than {MOST_BYTES}")
            return bytes(place.get(name) or b"")

    def add(self, files: Mapping[str, bytes], message: str) -> None:
        """Add files by their path, in this order; a repository that does not exist is created.

        Raises:
            UsageError: the place cannot be written.
        """
        with self._answering("written"):
            if self.repository is None:
                for path, content in files.items():
                    folder, _, name = path.rpartition("/")
                    self._place(folder).put(name, content)
                return
            from huggingface_hub import CommitOperationAdd

            api = _api()
            api.create_repo(self.repository, repo_type="dataset", exist_ok=True)
            operations = [CommitOperationAdd(path, content) for path, content in files.items()]
            api.create_commit(self.repository, operations, commit_message=message, repo_type="dataset")

    @property
    def exists(self) -> bool:
        """Whether the folder or the repository exists."""
        if self.folder is not None:
            return Path(self.folder).is_dir()
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._answering("read"):
            try:
                _api().repo_info(str(self.repository), repo_type="dataset")
            except RepositoryNotFoundError:
                return False
        return True

    def _place(self, folder: str) -> RemoteFolder:
        root = self.folder if self.repository is None else f"hf://datasets/{self.repository}"
        return RemoteFolder(Location(str(root)), folder, what="runs")

    @contextmanager
    def _answering(self, done: str) -> Iterator[None]:
        """Turn an error of the place into one line that shows no token.

        Raises:
            UsageError: the block failed.
        """
        if self.repository is not None:
            _api()
        try:
            yield
        except OrthobenchError:
            raise
        except Exception as error:  # the client passes on errors of its libraries for HTTP, which have no common base
            raise UsageError(f"{self.name} cannot be {done}: {_reason(error)}") from None


def _api() -> HfApi:
    """Return the client, which reads the token from $HF_TOKEN or from the folder of `hf auth login`.

    Raises:
        UsageError: the client is not installed.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise needs_extra("hf://", "huggingface_hub", "hub") from error
    return HfApi()


def _reason(error: Exception) -> str:
    """Return why a place does not answer, without a token."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status in (401, 403, 404):
        return "it does not exist, or your token does not allow this: check the name, and $HF_TOKEN or `hf auth login`"
    text = one_line(error)
    token = variable("HF_TOKEN")
    return TOKEN.sub("***", text.replace(token, "***") if token else text)[:300]
