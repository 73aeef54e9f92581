"""Write `schema_<revision>.db`, a small database of the present schema, for the day when it has become a past one.

Run it before the revision changes: `python tests/store/keep_schema.py`. It holds a finished run, one that was cut off,
and a benchmark.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from orthobench.store import open_store
from orthobench.store.open import HEAD

TINY = "sequence_length=6 train_size=20 test_size=10 batch_size=10 epochs=2 hidden_size=4"
SETTINGS = [option for setting in TINY.split() for option in ("-s", setting)]


def main() -> None:
    schema_file = Path(__file__).with_name(f"schema_{HEAD}.db")
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "r.db"
        for seed in ("0", "1"):
            command = [sys.executable, "-m", "orthobench", "run", "adding", "rnn", "--seed", seed, *SETTINGS]
            subprocess.run([*command, "--db", str(database)], check=True)
        with open_store(str(database)) as store:
            run = store.runs()[1]
            store.rewind(run.id, 2, "t")
            store.update(run.id, {"status": "running", "iterations": 2, "final_value": None})
            store.add_benchmark("recurrence", {"shapes": []}, run.environment.digest, {})
        schema_file.unlink(missing_ok=True)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA page_size = 512")
            connection.execute("VACUUM INTO ?", (str(schema_file),))


if __name__ == "__main__":
    main()
