"""Whether a file lies on a network file system, where SQLite's write-ahead log does not work."""

from __future__ import annotations

import re
from pathlib import Path

from orthobench.errors import UsageError

MOUNTS = Path("/proc/self/mounts")
NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"),
    *("orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"),
    *(f"fuse.{name}" for name in ("beegfs", "ceph", "ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs")),
    *(f"fuse.{name}" for name in ("juicefs", "mfs", "moosefs", "rclone", "s3fs", "sshfs")),
}
"""File systems that several machines see, as Linux names their types."""


def refuse_network(file: Path) -> None:
    """Refuse a SQLite file that other machines may see.

    Raises:
        UsageError: it, or the folder it is to be made in, is on a network file system.
    """
    kind = file_system(file)
    if kind in NETWORK:
        raise UsageError(
            f"database {file} is on a network file system ({kind}), where processes of several machines do not see "
            "each other's writes and SQLite loses data: put it on a local disk, or name a server with "
            "--db postgresql://user@host/name"
        )


def file_system(file: Path) -> str | None:
    """The type of the file system that a path is on; None where the system does not say."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    path, found = file.resolve(), None
    longest = -1
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        mounted = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point))
        # Of two on the same point the later one covers the earlier.
        if path.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = kind, len(mounted.parts)
    return found
