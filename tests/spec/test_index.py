"""The index is known without torch, is that of the present code, and believes no other file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orthobench.plugins import Catalog
from orthobench.settings import describe_settings
from orthobench.spec import index
from orthobench.task import TrainingSettings

ASK = "import json, sys; from orthobench.spec.index import index; print(json.dumps([index(), 'torch' in sys.modules]))"


@pytest.fixture(scope="module")
def expected() -> dict:
    """The index as JSON, computed from the classes."""
    return json.loads(json.dumps(index.compute()))


@pytest.fixture
def without_torch(monkeypatch, tmp_path):
    """This process as one that has not loaded torch, with an empty cache folder."""
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "sys", SimpleNamespace(modules={}, executable=sys.executable))
    return tmp_path / "cache"


def kept_files(cache: Path) -> list[Path]:
    return sorted(cache.glob("index/*/*.json"))


def ask(cache: Path) -> dict:
    """The index as a new process with this cache folder knows it; the process has not loaded torch."""
    environment = {**os.environ, "ORTHOBENCH_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    known, loads_torch = json.loads(done.stdout)
    assert not loads_torch
    return known


def test_process_without_torch_reads_and_caches_the_index(tmp_path, expected):
    assert ask(tmp_path) == expected
    (file,) = kept_files(tmp_path)
    written = file.stat().st_mtime_ns
    assert ask(tmp_path) == expected
    assert file.stat().st_mtime_ns == written


def test_index_describes_every_built_in_plugin(expected):
    assert expected["plugins"].keys() == {f"{plugin.kind}/{plugin.name}" for plugin in Catalog()}
    for plugin in Catalog():
        cls, described = plugin.load(), expected["plugins"][f"{plugin.kind}/{plugin.name}"]
        assert (described["title"], described["problem"]) == (cls.title, None)
        if plugin.kind != "probe":
            assert [setting["name"] for setting in described["settings"]] == list(cls.Settings.model_fields)
    assert [setting["name"] for setting in expected["training"]] == list(TrainingSettings.model_fields)


def test_choices_of_a_setting_are_accepted():
    settings = Catalog().load("model", "scornn").Settings
    choices = {setting.name: setting.choices for setting in describe_settings(settings)}
    assert choices["activation"] == ["modrelu", "relu", "tanh"]
    assert choices["block_norm"] == ["layer", "batch"]
    assert choices["hidden_size"] == []
    assert {s.name: s.choices for s in describe_settings(TrainingSettings)}["shuffle"] == ["true", "false"]


def test_cached_value_is_read_only_intact_and_under_its_name_and_code(without_torch, monkeypatch):
    assert index.read_kept("a") is None
    index.keep("a", {"x": [1, None]})
    assert index.read_kept("a") == {"x": [1, None]}
    (file,) = kept_files(without_torch)
    content = file.read_bytes()
    for damaged in (b"", b"\n", content[:-1], content.replace(b"1", b"2"), b"[]", content.partition(b"\n")[2]):
        file.write_bytes(damaged)
        assert index.read_kept("a") is None
    file.write_bytes(content)
    file.with_name("b.json").write_bytes(content)
    assert (index.read_kept("a"), index.read_kept("b")) == ({"x": [1, None]}, None)
    monkeypatch.setattr(index, "code_hash", lambda: "other code")
    assert index.read_kept("a") is None
    other = without_torch / "index" / "other code" / "a.json"
    other.parent.mkdir()
    other.write_bytes(content)
    assert index.read_kept("a") is None


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("what", ["the file", "its folder", "the index", "the cache"])
def test_file_writable_by_others_is_not_read(without_torch, what):
    index.keep("a", 1)
    (file,) = kept_files(without_torch)
    path = {"the file": file, "its folder": file.parent, "the index": file.parents[1], "the cache": without_torch}[what]
    path.chmod(path.stat().st_mode | 0o002)
    assert index.read_kept("a") is None
    path.chmod(path.stat().st_mode & ~0o002)
    assert index.read_kept("a") == 1


def test_files_of_other_code_are_kept_for_a_month(without_torch):
    old, recent = (without_torch / "index" / name for name in ("old", "recent"))
    for folder in (old, recent):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    index.keep("a", 1)
    assert not old.exists()
    assert recent.exists()


def test_index_is_computed_without_a_cache_folder(without_torch, tmp_path, expected, monkeypatch):
    (tmp_path / "file").write_text("no folder", "utf-8")
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(index, "_computed_elsewhere", lambda: expected)
    assert index.index.__wrapped__() == expected


def test_index_is_computed_in_process_if_none_can_start(monkeypatch, tmp_path, expected):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert json.loads(json.dumps(index._computed_elsewhere())) == expected
