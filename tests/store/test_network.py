"""A SQLite file that several machines could see is refused, by the system's own table of what is mounted."""

from __future__ import annotations

import pytest

from orthobench.errors import UsageError
from orthobench.store import open_store
from orthobench.store.sqlite import file_system


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """Pretend that the table says this."""

    def write(text: str) -> None:
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "mounts").write_text(text)
        (tmp_path / "proc" / "filesystems").write_text("")
        monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "proc"))

    return write


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "ceph"])
def test_file_on_a_network_is_refused_with_reason_and_fix(tmp_path, mounts, kind):
    mounts(f"/dev/sda1 / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw,vers=3 0 0\n")
    with pytest.raises(UsageError, match=rf"network file system \({kind}\).* local disk.*db='postgresql://"):
        open_store(str(tmp_path / "r.db"), create=True)
    assert not (tmp_path / "r.db").exists()


def test_innermost_and_latest_mount_decides(tmp_path, mounts):
    inner = tmp_path / "with space"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    mounts(f"s:/ / nfs rw 0 0\n/dev/sdb {escaped} nfs4 rw 0 0\n/dev/sdc {escaped} xfs rw 0 0\n")
    assert file_system(inner / "r.db") == "xfs"
    assert file_system(tmp_path / "r.db") == "nfs"
    assert file_system(tmp_path / "with spacer" / "r.db") == "nfs"
    open_store(str(inner / "r.db"), create=True).close()


def test_link_is_followed(tmp_path, mounts):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to("far")
    mounts(f"/dev/sda1 / ext4 rw 0 0\ns:/far {tmp_path}/far nfs4 rw 0 0\n")
    assert file_system(tmp_path / "near" / "r.db") == "nfs4"


def test_system_without_a_mount_table_refuses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "none"))
    open_store(str(tmp_path / "r.db"), create=True).close()
