"""An open database of runs, which `Results` and the functions that only read share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Self

from orthobench.options.arguments import Database, Give
from orthobench.store import open_store
from orthobench.system.location import Location, Place


class OpenedRuns:
    """An open database of runs; as a context manager it closes the database at the end."""

    def __init__(self, db: Place) -> None:
        self.db = Location.of(db)
        self.store = open_store(db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.store.__exit__(kind, error, traceback)

    def close(self) -> None:
        """Close the database."""
        self.store.close()


SomeResults = Annotated[OpenedRuns | Database, Give("open results, or a database")]


@contextmanager
def opened(results: OpenedRuns | Place) -> Iterator[OpenedRuns]:
    """Open a database if only its name is given."""
    if isinstance(results, OpenedRuns):
        yield results
    else:
        with OpenedRuns(results) as own:
            yield own
