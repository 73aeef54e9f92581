"""Files of the cache: no other user can have written them, and none can exchange them after the check."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from orthobench.system import cache
from orthobench.system.cache import UntrustedError, open_trusted, private_folder, written_by_others
from orthobench.system.files import write_bytes

OTHER = 4321
"""The number of another user."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the folder `above/cache/folder`, which only this user can write to; its group has other members."""
    monkeypatch.setattr(cache, "_is_private", lambda path, status: False)
    file = tmp_path / "above" / "cache" / "folder" / "file"
    private_folder(file.parent)
    write_bytes(file, b"own", private=True)
    return file


def read(file: Path) -> bytes:
    with open_trusted(file) as stream:
        return stream.read()


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


HARMS: dict[str, Callable[[Path], None]] = {
    "the file is the group's": lambda file: file.chmod(0o660),
    "the folder is the group's": lambda file: file.parent.chmod(0o770),
    "the folder is shared": lambda file: file.parent.chmod(0o1777),
    "the cache is everybody's": lambda file: file.parents[1].chmod(0o707),
    "a folder above is everybody's": lambda file: file.parents[2].chmod(0o777),
    "a folder above is the group's, as a scratch": lambda file: file.parents[2].chmod(0o2770),
    "another user's file": give_away,
    "another user's folder": lambda file: give_away(file.parent),
    "another user's folder above": lambda file: give_away(file.parents[2]),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_what_another_user_could_have_written_is_not_read(own: Path, harm: Callable[[Path], None]) -> None:
    assert read(own) == b"own"
    assert written_by_others(own.parent, [own]) is None
    harm(own)
    with pytest.raises(
        UntrustedError, match=r"other users can write to|belongs to another user \(uid 4321\)"
    ) as caught:
        read(own)
    assert written_by_others(own.parent, [own]) == str(caught.value)


def test_another_users_shared_folder_is_not_trusted(own: Path) -> None:
    """Its owner may rename everything in it."""
    own.parents[2].chmod(0o1777)
    assert read(own) == b"own"  # root's or one's own, as /tmp
    give_away(own.parents[2])
    with pytest.raises(UntrustedError, match="above belongs to another user"):
        read(own)


def test_links_are_followed_and_checked(own: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("above/../above/cache")
    assert read(link / "folder" / "file") == b"own"
    (tmp_path / "loop").symlink_to("loop")
    assert "too many links" in str(written_by_others(tmp_path / "loop" / "folder"))
    (own.parent / "another").symlink_to(own)
    with pytest.raises(OSError, match="symbolic links"):
        read(own.parent / "another")
    own.parents[2].chmod(0o777)
    with pytest.raises(UntrustedError, match=r"above$"):
        read(link / "folder" / "file")
    own.parents[2].chmod(0o700)
    give_away(link)
    with pytest.raises(UntrustedError, match="link belongs to another user"):
        read(link / "folder" / "file")


def test_the_file_that_was_opened_is_the_one_that_is_read(own: Path) -> None:
    with open_trusted(own) as stream:
        write_bytes(own, b"another")
        assert stream.read() == b"own"


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_our_own_files_are_trusted_under_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    monkeypatch.setattr(cache, "_is_private", lambda path, status: False)
    before = os.umask(mask)
    try:
        file = tmp_path / "a" / "b" / "c" / "file"
        private_folder(file.parent)
        for content in (b"first", b"second"):
            write_bytes(file, content, private=True)
            assert read(file) == content
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*") if path.is_dir()} == {0o700}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("name", "members", "number", "is_own"), [
    ("me", [], 7, True),
    ("me", ["me"], 7, True),
    ("me", ["me", "you"], 7, False),
    ("lab", [], 7, False),
    ("me", [], 8, False),
])  # fmt: skip
def test_a_private_group_is_not_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], number: int, is_own: bool
) -> None:
    """Many systems give each user a group of his own, and a umask of 002."""
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_gid=7, gr_mem=members))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_gid=number))
    private_folder(tmp_path / "folder")
    (tmp_path / "folder").chmod(0o770)
    assert (written_by_others(tmp_path / "folder") is None) == is_own
