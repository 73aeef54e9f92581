"""Mikolov's three files: taken in whole, read line by line, and refused where they are not what they should be."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from orthobench.data.ptb import ALPHABET, read_split, read_text
from orthobench.data.registry import dataset
from orthobench.errors import UsageError

TEXT = " the <unk> of N years \n mr. vinken is chairman \n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with three small files in the form of the real ones, and an empty data folder."""
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"ptb.{split}.txt").write_text(TEXT)
    return folder


def test_alphabet_has_the_expected_characters():
    characters = set("abcdefghijklmnopqrstuvwxyz") | set("0123456789") | set(r"N #$&'*-./\<>") | {"\n"}
    assert set(ALPHABET) == characters
    assert len(ALPHABET) == 50
    assert list(ALPHABET) == sorted(ALPHABET)


def test_real_files_have_the_published_counts(real_data):
    folder = real_data("ptb")
    assert dataset("ptb").verify() == []
    read = {split: read_split(folder, split) for split in ("train", "valid", "test")}
    assert [len(text) for text in read.values()] == [5_017_482, 393_042, 442_423]
    assert [text.count("\n") for text in read.values()] == [42_068, 3_370, 3_761]
    assert set("".join(read.values())) == set(ALPHABET)
    assert read["train"].startswith("aer banknote berlitz calloway centrust")
    assert sum(file.stat().st_size for file in folder.glob("*.txt")) == dataset("ptb").size


@pytest.mark.parametrize("form", ["zip", "gztar"])
def test_files_are_imported_from_an_archive(form, files, tmp_path):
    (tmp_path / "whole" / "simple-examples").mkdir(parents=True)
    shutil.copytree(files, tmp_path / "whole" / "simple-examples" / "data")
    (tmp_path / "whole" / "simple-examples" / "models").mkdir()
    archive = shutil.make_archive(str(tmp_path / "simple"), form, tmp_path / "whole")
    dataset("ptb").import_files(Path(archive))
    assert read_split(dataset("ptb").require(), "test") == "the <unk> of N years\nmr. vinken is chairman\n"
    (tmp_path / "cut.zip").write_bytes(Path(archive).read_bytes()[:100])
    with pytest.raises(UsageError, match=r"cut.zip is not a complete ZIP archive"):
        dataset("ptb").import_files(tmp_path / "cut.zip")
    with pytest.raises(UsageError, match="is neither a folder nor a ZIP or TAR archive"):
        dataset("ptb").import_files(files / "ptb.test.txt")


def test_lines_lose_surrounding_blanks_and_keep_one_line_end(files):
    assert read_split(files, "test") == "the <unk> of N years\nmr. vinken is chairman\n"
    (files / "ptb.test.txt").write_bytes(TEXT.replace("\n", "\r\n").encode().rstrip())
    assert read_split(files, "test") == "the <unk> of N years\nmr. vinken is chairman\n"


@pytest.mark.parametrize("below", ["", "data"])
def test_files_are_imported_from_their_folder_or_the_archives(below, files, caplog):
    path = files
    if below:
        path = files.with_name("simple-examples")
        path.mkdir()
        files.rename(path / below)
    data = dataset("ptb")
    with pytest.raises(UsageError, match=r"ptb is not installed: orthobench data get ptb"):
        data.require()
    data.import_files(path)
    assert (data.require() / "ptb.valid.txt").read_text() == TEXT
    assert "not the canonical copy" in caplog.text
    assert data.verify() == ["not the canonical copy, results may differ a little: " + ", ".join(data.files)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "ptb.valid.txt does not exist: name the folder with ptb.train.txt"),
        (b"", "ptb.valid.txt is empty"),
        (b" caf\xe9 \n", r"ptb.valid.txt is not UTF-8 text \(byte 5\)"),
        (b" The end \n", "ptb.valid.txt is not Mikolov's text: 'T' is not among its 50 characters"),
    ],
)
def test_broken_files_are_refused_and_nothing_is_imported(content, message, files):
    broken = files / "ptb.valid.txt"
    broken.unlink() if content is None else broken.write_bytes(content)
    with pytest.raises(UsageError, match=message) as error:
        dataset("ptb").import_files(files)
    assert "\n" not in str(error.value)
    assert not dataset("ptb").present()
    assert not dataset("ptb").folder().exists()


def test_file_broken_after_import_is_found(files):
    data = dataset("ptb")
    data.import_files(files)
    (data.folder() / "ptb.train.txt").write_bytes(b"\xff")
    (fault,) = data.verify()
    assert "ptb.train.txt is not UTF-8 text" in fault


def test_folder_is_refused_as_text(tmp_path):
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read"):
        read_text(tmp_path)


def test_every_download_has_a_checksum_and_mirrors():
    data = dataset("ptb")
    assert {download.name: download.md5 for download in data.downloads} == data.files
    assert Counter(len(download.urls) for download in data.downloads) == {2: 3}
    assert all(url.endswith(f"/{download.name}") for download in data.downloads for url in download.urls)
