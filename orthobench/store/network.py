"""The refusal of network file systems, where SQLite's write-ahead log does not work."""

from __future__ import annotations

from pathlib import Path

from orthobench.errors import UsageError

NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"),
    *("orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"),
    *(f"fuse.{name}" for name in ("beegfs", "ceph", "ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs")),
    *(f"fuse.{name}" for name in ("juicefs", "mfs", "moosefs", "rclone", "s3fs", "sshfs")),
}
"""Types of file systems that several machines share, as Linux names them."""


def refuse_network(file: Path) -> None:
    """Refuse a SQLite file that other machines may open.

    Raises:
        UsageError: the file or its folder is on a network file system.
    """
    kind = file_system(file)
    if kind in NETWORK:
        raise UsageError(
            f"database {file} is on a network file system ({kind}), where processes of several machines do not see "
            "each other's writes and SQLite loses data: put it on a local disk, or name a server with "
            "`db='postgresql://user@host/name'`"
        )


def file_system(file: Path) -> str | None:
    """Return the type of a path's file system, or None if the operating system does not list its mounts."""
    import psutil

    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return None
    path = file.resolve()
    covering = [mount for mount in mounts if path.is_relative_to(mount.mountpoint)]
    # The innermost mount counts; if two have the same mount point, the later one hides the earlier one.
    innermost = max(reversed(covering), key=lambda mount: len(Path(mount.mountpoint).parts), default=None)
    return None if innermost is None else innermost.fstype
