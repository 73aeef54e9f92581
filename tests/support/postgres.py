"""A PostgreSQL server for the tests: on a Unix socket in a temporary folder, as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path


def binaries() -> Path | None:
    """Return the folder of initdb and pg_ctl, which Debian keeps off the search path."""
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


class Server:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orthobench-pg-"))  # short: a socket's path has 107 characters
        self.user = "postgres" if os.geteuid() == 0 else None  # the server refuses root
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._call("initdb", "-D", "data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={self.folder}"

    def empty(self) -> None:
        """Cut all connections and remove all tables."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c fsync=off"
        self._call("pg_ctl", "-D", "data", "-o", options, "-l", "log", "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: `immediate` like a crash, `fast` after a message to the clients."""
        self._call("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _call(self, program: str, *arguments: str) -> None:
        directory = binaries()
        assert directory is not None
        done = subprocess.run(
            [directory / program, *arguments],
            cwd=self.folder,
            user=self.user,
            extra_groups=[] if self.user else None,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,  # the server would keep a pipe open
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}"
