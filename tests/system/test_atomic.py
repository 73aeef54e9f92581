"""Files are replaced whole or not at all, and `orthobench.system.files` needs no database library."""

from __future__ import annotations

import errno
import os

import pytest

from orthobench.system.files import replacing, replacing_folder, storage_error, write_bytes


@pytest.mark.parametrize("locked", [False, True])
def test_raising_block_leaves_the_file_and_no_other(tmp_path, locked):
    file = tmp_path / "file"
    file.write_text("before")

    def fail() -> None:
        with replacing(file, locked=locked) as part:
            part.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_two_writers_of_a_file_do_not_mix(tmp_path):
    file = tmp_path / "file"
    with replacing(file) as first, replacing(file) as second:
        first.write_text("first")
        second.write_text("second")
        assert not file.exists()
    assert file.read_text() == "first"  # the outer block ends last
    assert list(tmp_path.iterdir()) == [file]


def test_leftover_of_a_killed_writer_is_overwritten(tmp_path):
    file = tmp_path / "file"
    (tmp_path / "file.part").write_text("half of a long text")
    write_bytes(file, b"whole", locked=True)
    assert file.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [file]


def test_previous_file_becomes_the_backup(tmp_path):
    file, backup = tmp_path / "file", tmp_path / "backup"
    write_bytes(file, b"1", backup=backup)
    assert not backup.exists()
    write_bytes(file, b"2", backup=backup)
    assert (file.read_bytes(), backup.read_bytes()) == (b"2", b"1")


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_bytes(tmp_path / "a", b"1")
    assert (tmp_path / "a").is_symlink()


def test_folder_that_is_a_link_stays_one(tmp_path):
    """As data on another disk do, to which the data folder has a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old").touch()
    (tmp_path / "data").symlink_to("disk")
    with replacing_folder(tmp_path / "data") as new:
        (new / "new").touch()
    assert (tmp_path / "data").is_symlink()
    assert [file.name for file in (tmp_path / "disk").iterdir()] == ["new"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX")
def test_permissions_come_from_the_file_or_the_umask(tmp_path):
    file = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_bytes(file, b"1")
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o640
    file.chmod(0o604)
    write_bytes(file, b"2")
    assert file.stat().st_mode & 0o777 == 0o604


def test_one_of_two_writers_of_a_new_file_succeeds(tmp_path):
    file = tmp_path / "file"

    def write_twice() -> None:
        with replacing(file, new=True) as first:
            write_bytes_new(b"second")
            first.write_text("first")

    def write_bytes_new(content: bytes) -> None:
        with replacing(file, new=True) as second:
            second.write_bytes(content)

    with pytest.raises(FileExistsError):
        write_twice()
    assert file.read_text() == "second"
    assert list(tmp_path.iterdir()) == [file]


def test_disk_without_inodes_is_distinguished_from_a_full_one(tmp_path, monkeypatch):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "new" / "file"))
    assert "No space left on device: make room there" in str(storage_error("file", error))
    real = os.statvfs(tmp_path)
    fields = list(real)
    fields[5:8] = 1000, 0, 0  # files, free and available ones
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert str(storage_error("file", error)) == (
        "file cannot be written: the disk has no inodes left for another file: delete files there, "
        "and run the same command again"
    )
