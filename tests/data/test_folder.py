"""Where the data sets are, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthobench.data.dataset import DataSet
from orthobench.data.registry import dataset, datasets
from orthobench.errors import StorageError, UsageError
from orthobench.options.data_folder import data_folder, use_data_folder
from orthobench.system.files import replacing_folder


def test_option_precedes_environment_and_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("ORTHOBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "orthobench" / "data"
    monkeypatch.setenv("ORTHOBENCH_DATA", "/of/the/environment")
    assert data_folder() == Path("/of/the/environment")
    with use_data_folder(Path("/of/the/option")):
        assert data_folder() == Path("/of/the/option")
        with use_data_folder(None):
            assert data_folder() == Path("/of/the/option")
    assert data_folder() == Path("/of/the/environment")


def test_missing_data_set_names_its_command(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    message = (
        r"^mnist is not installed: orthobench data get mnist \(files you have: orthobench data import mnist PATH\)"
    )
    with pytest.raises(UsageError, match=message):
        dataset("mnist").require()
    with pytest.raises(UsageError, match="unknown data set 'minst': did you mean mnist"):
        dataset("minst")


class Licensed(DataSet):
    name = "licensed"
    title = "a set that has to be bought"
    licence = "licence of its makers"
    home = "https://example.org/licensed"
    files = {"one": None}
    size = 1

    def gather(self, path, into):
        (into / "one").write_bytes((path / "one").read_bytes())

    def faults(self, folder):
        return []


def test_licensed_data_set_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    with pytest.raises(UsageError, match=r"needs a licence \(https://example.org/licensed\); then orthobench data"):
        Licensed().require()
    with pytest.raises(UsageError, match="licensed cannot be downloaded: licence of its makers"):
        Licensed().get(lambda *_: None)
    (tmp_path / "one").write_text("here")
    Licensed().import_files(tmp_path)
    assert (Licensed().require() / "one").read_text() == "here"
    assert Licensed().verify() == []  # without a checksum there is no deviation


def test_every_data_set_has_a_description():
    for name, data_set in datasets().items():
        assert data_set.name == name
        assert data_set.title
        assert data_set.licence
        assert data_set.home.startswith("http")
        assert data_set.size > 0
        assert bool(data_set.files) != name.startswith("timit")  # whose files are counted by speakers


def test_folder_is_replaced_completely_or_not_at_all(tmp_path):
    folder = tmp_path / "kept"
    with replacing_folder(folder) as new:
        (new / "a").write_text("first")

    def fail():
        with replacing_folder(folder) as new:
            (new / "a").write_text("second")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (folder / "a").read_text() == "first"
    with replacing_folder(folder) as new:
        (new / "b").write_text("third")
    assert [path.name for path in folder.iterdir()] == ["b"]
    assert {path.name for path in tmp_path.iterdir()} <= {"kept", ".kept.lock"}


def test_data_folder_below_a_file_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written or read"), replacing_folder(tmp_path / "file" / "folder"):
        pass
