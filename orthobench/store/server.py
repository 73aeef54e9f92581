"""What a database server needs that a file does not: patience while it is away, and locks that it keeps.

A lost server is waited for at the level of whole transactions. One whose end is unknown is carried out again, so each
has to be such that twice is once (`Store` sees to it).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from orthobench.errors import RunLockedError, StorageError

PATIENCE = 600.0
"""For how many seconds a server that was there is waited for."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between attempts: twice as long each time."""
DRIVER_ARGUMENTS = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A connection over a network that is no more is noticed after a minute, not after hours."""

T = TypeVar("T")
log = logging.getLogger("orthobench")


class Server:
    """A PostgreSQL server's engine, with waiting and with locks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.patience = PATIENCE
        self.stop_waiting: Callable[[], bool] = lambda: False
        self._held: dict[str, Connection] = {}
        self._given_up = False  # it is not waited for twice

    def patiently(self, work: Callable[[], T]) -> T:
        """Carry out `work`; where the server is lost, wait for it and carry it out again.

        Raises:
            StorageError: it did not come back in time, or the wait was to stop.
            RunLockedError: while it was away, another process took a run that was held here.
        """
        begun, pause, told = time.monotonic(), FIRST_PAUSE, False
        while True:
            try:
                self._hold_on()
                done = work()
            except DBAPIError as error:
                if not (isinstance(error, OperationalError) or error.connection_invalidated):
                    raise
                reason = " ".join(str(error.orig).split())
                left = 0 if self._given_up else self.patience - (time.monotonic() - begun)
                if left <= 0 or self.stop_waiting():
                    self._given_up = True
                    raise StorageError(
                        f"the database server is lost ({reason}): the same command goes on when it is back"
                    ) from error
                if not told:
                    log.warning("waiting for the database server, at most %.0f s: %s", left, reason)
                told = True
                time.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._given_up = False
                if told:
                    log.warning("the database server is back")
                return done

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock of this name for as long as this process and this context live.

        Raises:
            RunLockedError: somebody else holds it.
        """
        self.patiently(lambda: self._hold(name))
        try:
            yield
        finally:
            connection = self._held.pop(name)
            if not connection.closed:
                with suppress(DBAPIError):  # which is lost, and the lock with it
                    connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _number(name)})
                connection.invalidate()  # what it was set to is no other's business
                connection.close()

    def is_locked(self, name: str) -> bool:
        """Whether anybody holds the lock of this name."""
        high, low = divmod(_number(name) % 2**64, 2**32)
        query = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid::bigint = :high AND objid::bigint = :low"
        )

        def look() -> bool:
            with self.engine.connect() as connection:
                return bool(connection.execute(query, {"high": high, "low": low}).scalar_one())

        return self.patiently(look)

    @contextmanager
    def migration_lock(self) -> Iterator[None]:
        """Let one process at a time bring the schema up to date; the others wait."""
        number = {"number": _number("migration")}
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SELECT pg_advisory_lock(:number)"), number)
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:number)"), number)

    def _hold(self, name: str) -> None:
        connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            for setting, value in (("idle", 30), ("interval", 10), ("count", 3)):
                # The server notices as well when a machine that holds a run is no more, and frees the lock.
                connection.execute(text(f"SET tcp_keepalives_{setting} = {value}"))
            taken = connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _number(name)})
            if not taken.scalar_one():
                raise RunLockedError(f"{name} is being trained by another process: wait for it, or stop it")
        except BaseException:
            connection.close()
            raise
        self._held[name] = connection

    def _hold_on(self) -> None:
        """Take the locks again whose connections were lost: the server has forgotten them.

        Raises:
            RunLockedError: another process was quicker.
        """
        for name, connection in self._held.items():
            if not connection.closed:
                try:
                    connection.execute(text("SELECT 1"))
                except DBAPIError:
                    connection.invalidate()
                    connection.close()
            if connection.closed:
                self._hold(name)


def _number(name: str) -> int:
    """A lock's name as PostgreSQL has it: 64 bits with a sign."""
    return int.from_bytes(hashlib.sha256(f"orthobench {name}".encode()).digest()[:8], signed=True)
