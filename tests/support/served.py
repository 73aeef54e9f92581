"""A served page of a database with one run, on a free port of the loopback device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.pages import add_run

import orthobench as ob
from orthobench.reporting.web.serve import PageServer
from orthobench.store import open_store

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}


def write_database(folder: Path, **record: Any) -> str:
    """Return a database in this folder with one run of the LSTM; `record` changes columns of the run."""
    file = folder / "r.db"
    with open_store(str(file), create=True) as store:
        add_run(store, "lstm", 0, SETTINGS, **record)
    return str(file)


@contextmanager
def served(database: str) -> Iterator[PageServer]:
    """Serve the page until the block ends."""
    with ob.serve(database, port=0) as opened:
        thread = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()
