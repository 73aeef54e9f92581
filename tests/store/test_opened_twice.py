"""A database loses nothing if a process opens it twice while another process opens and closes it.

POSIX locks are a process's: whoever closes the file anywhere in the process frees them. SQLite knows, and keeps its own
descriptors open; a look into the file that goes around SQLite does not.
"""

from __future__ import annotations

import subprocess
import sys

from orthobench.store import open_store
from orthobench.store.open import check_writable
from orthobench.system.location import Location

COUNT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM benchmark").fetchone()[0])
connection.close()
"""


def test_rows_written_after_another_process_closed_the_database_are_kept(tmp_path):
    path = str(tmp_path / "r.db")

    def counted_elsewhere() -> int:
        return int(subprocess.run([sys.executable, "-c", COUNT, path], capture_output=True, check=True).stdout)

    with open_store(path, create=True) as store:
        store.add_benchmark("first", {}, {})
        check_writable(Location.of(path))
        with open_store(path) as again:
            assert len(again.benchmarks()) == 1
            assert counted_elsewhere() == 1
            store.add_benchmark("second", {}, {})
            assert counted_elsewhere() == 2
    assert counted_elsewhere() == 2
