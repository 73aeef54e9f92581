"""Folders of the user's cache are private."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orthobench.system.cache import private_folder


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_no_other_user_can_enter_a_new_folder_under_any_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}
    private_folder(tmp_path / "a" / "b" / "c")
