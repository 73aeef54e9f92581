"""A repository of Hugging Face is written in one commit, and no error shows a token."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub.errors import RepositoryNotFoundError
from support.pages import add_run

from orthobench.store import open_store

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}
CLIENT = huggingface_hub.HfApi
TOKEN = "hf_abcdefghijklmnop"


class Api:
    """The calls of the client, checked against its signatures; a commit writes to a folder."""

    commits: list[str] = []

    def _bind(self, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return inspect.signature(getattr(CLIENT, name)).bind(self, *args, **kwargs).arguments

    def repo_info(self, *args: Any, **kwargs: Any) -> None:
        given = self._bind("repo_info", *args, **kwargs)
        if not Path("hub", given["repo_id"]).is_dir():
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

    def create_repo(self, *args: Any, **kwargs: Any) -> None:
        given = self._bind("create_repo", *args, **kwargs)
        assert (given["repo_type"], given["exist_ok"]) == ("dataset", True)
        Path("hub", given["repo_id"]).mkdir(parents=True, exist_ok=True)

    def create_commit(self, *args: Any, **kwargs: Any) -> None:
        given = self._bind("create_commit", *args, **kwargs)
        assert given["repo_type"] == "dataset"
        self.commits.append(given["commit_message"])
        for operation in given["operations"]:
            file = Path("hub", given["repo_id"], operation.path_in_repo)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(operation.path_or_fileobj)


@pytest.fixture
def repository(orthobench, monkeypatch) -> None:
    """A hub whose repositories are folders below `hub`, in place of the network."""
    monkeypatch.setattr(Api, "commits", [])
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)

    def url_to_fs(url: str) -> tuple[Any, str]:
        assert url.startswith("hf://datasets/")
        root = DirFileSystem(str(Path("hub").absolute()), fs=LocalFileSystem())
        return root, url.removeprefix("hf://datasets/")

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    with open_store("a.db", create=True) as store:
        for seed in range(3):
            add_run(store, "lstm", seed, SETTINGS)


def test_each_publication_is_one_commit(orthobench, repository):
    for words, added in ((("--where", "seed=0"), "1 run added, 0 known"), ((), "2 runs added, 1 known")):
        done = orthobench("publish", "--hub", "org/runs", "a.db", *words)
        assert done.code == 0, done.err
        assert added in done.out
    assert Api.commits == ["Add 1 run", "Add 2 runs"]
    assert "0 runs added, 3 known" in orthobench("publish", "--hub", "hf://datasets/org/runs", "a.db").out
    assert len(Api.commits) == 2
    merged = orthobench("merge", "hf://org/runs", "--db", "b.db")
    assert merged.code == 0, merged.err
    assert merged.out.startswith("hf://org/runs: 3 runs added to b.db")


def test_a_repository_that_does_not_exist_is_one_line(orthobench, repository):
    done = orthobench("merge", "hf://org/none", "--db", "b.db")
    assert done.code == 2
    assert "hf://org/none does not exist, or your token may not read it" in done.err
    assert not Path("b.db").exists()


def test_no_error_shows_a_token(orthobench, repository, monkeypatch):
    secret = "secret-of-another-form"
    monkeypatch.setenv("HF_TOKEN", f"{secret}\r")  # as from a file of Windows; the client leaves the end out

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError(f"no answer to Bearer {secret} nor {TOKEN}")

    monkeypatch.setattr(Api, "create_commit", fail)
    for words in (("publish",), ("-v", "publish")):
        done = orthobench(*words, "--hub", "org/runs", "a.db")
        assert done.code == 2
        assert "hf://org/runs cannot be written: ConnectionError: no answer to Bearer ***" in done.err
        assert secret not in done.err + done.out
        assert TOKEN not in done.err + done.out


def test_the_extra_is_named_where_the_client_is_missing(orthobench, repository, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = orthobench("publish", "--hub", "org/runs", "a.db")
    assert done.code == 2
    assert "hf:// needs huggingface_hub: pip install -e '.[hub]'" in done.err
