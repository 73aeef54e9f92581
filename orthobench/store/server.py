"""A PostgreSQL server, with its advisory locks and with retries while it is unreachable.

If the server is lost during a transaction, the whole transaction is retried. Its first attempt may have been committed,
so writes are idempotent (see `Store`).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from orthobench.errors import RunLockedError, StorageError, one_line

PATIENCE = 600.0
"""Seconds to wait for a server that was reachable before."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between attempts, which double each time."""
DRIVER_ARGUMENTS = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""With these settings, a dead network connection is noticed after a minute instead of hours."""
ENGINE_ARGUMENTS: dict[str, Any] = {"pool_pre_ping": True, "connect_args": DRIVER_ARGUMENTS}
"""With `pool_pre_ping`, a connection that died in the pool is replaced before it is used."""

TRANSIENT = "starting up", "shutting down", "in recovery mode", "not yet accepting connections"
"""Messages of a server that will soon accept connections; libpq has no code for such an error."""

T = TypeVar("T")
_logger = logging.getLogger("orthobench")


class DatabaseServer:
    """A PostgreSQL server's engine, with retries and locks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.patience = PATIENCE
        self.stop_waiting: Callable[[], bool] = lambda: False
        self._lock_connections: dict[str, Connection] = {}
        self._gave_up = False  # one timeout ends all later waits

    def with_retries(self, work: Callable[[], T]) -> T:
        """Call `work`; if the server is lost, wait for it and call `work` again.

        Raises:
            StorageError: the server was unreachable for `patience` seconds, or `stop_waiting` ended the wait.
            RunLockedError: another process took a lock while the server was away.
        """
        start_time, pause, warned = time.monotonic(), FIRST_PAUSE, False
        while True:
            try:
                self._reacquire_locks()
                result = work()
            except DBAPIError as error:
                if not (isinstance(error, OperationalError) or error.connection_invalidated):
                    raise
                reason = one_line(error.orig or error)
                left = 0 if self._gave_up else self.patience - (time.monotonic() - start_time)
                if left <= 0 or self.stop_waiting():
                    self._gave_up = True
                    raise StorageError(
                        f"the database server is lost ({reason}): start the same command again when it is back"
                    ) from error
                if not warned:
                    _logger.warning("waiting for the database server, at most %.0f s: %s", left, reason)
                warned = True
                time.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._gave_up = False
                if warned:
                    _logger.warning("the database server is back")
                return result

    def connect(self) -> None:
        """Connect once; a server that is starting or stopping counts as connected, because later calls wait for it.

        Raises:
            DBAPIError: the server refuses the connection, or there is no server.
        """
        try:
            self.engine.connect().close()
        except OperationalError as error:
            if not any(state in str(error.orig) for state in TRANSIENT):
                raise

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock with this name until the block or the process ends.

        Raises:
            RunLockedError: another process holds it.
        """
        self.with_retries(lambda: self._acquire(name))
        try:
            yield
        finally:
            connection = self._lock_connections.pop(name)
            if not connection.closed:
                with suppress(DBAPIError):  # a lost connection no longer has its lock
                    connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _number(name)})
                connection.invalidate()  # no other use should inherit its keep-alive settings
                connection.close()

    def is_locked(self, name: str) -> bool:
        """Return whether any process holds the lock with this name."""
        high, low = divmod(_number(name) % 2**64, 2**32)
        # Read from the list and not tried, because even a short lock would refuse a run that starts at this
        # moment. A lock by one number has objsubid 1.
        query = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid::bigint = :high AND objid::bigint = :low"
        )

        def query_locks() -> bool:
            with self.engine.connect() as connection:
                return bool(connection.execute(query, {"high": high, "low": low}).scalar_one())

        return self.with_retries(query_locks)

    @contextmanager
    def migration_lock(self) -> Iterator[None]:
        """Let one process at a time upgrade the schema; the others wait."""
        number = {"number": _number("migration")}
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SELECT pg_advisory_lock(:number)"), number)
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:number)"), number)

    def _acquire(self, name: str) -> None:
        # Without a transaction, because one that is open for days keeps PostgreSQL from cleaning up old rows.
        connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            for setting, value in (("idle", 30), ("interval", 10), ("count", 3)):
                # The server frees the lock of a machine that has gone down.
                connection.execute(text(f"SET tcp_keepalives_{setting} = {value}"))
            taken = connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _number(name)})
            if not taken.scalar_one():
                raise RunLockedError(f"{name} is being trained by another process: wait for it, or stop it")
        except BaseException:
            connection.close()
            raise
        self._lock_connections[name] = connection

    def _reacquire_locks(self) -> None:
        """Acquire the locks of lost connections again, because the server has released them.

        Raises:
            RunLockedError: another process has acquired one of them.
        """
        for name, connection in self._lock_connections.items():
            if not connection.closed:
                try:
                    connection.execute(text("SELECT 1"))
                except DBAPIError:
                    connection.invalidate()
                    connection.close()
            if connection.closed:
                self._acquire(name)


def _number(name: str) -> int:
    """Return a lock's number in PostgreSQL, a signed 64-bit integer."""
    # Not Python's `hash`, because strings have another one in each process.
    return int.from_bytes(hashlib.sha256(f"orthobench {name}".encode()).digest()[:8], signed=True)
