"""Warm connections to one PostgreSQL server, each used by one request at a time.

Every request reads one snapshot and never has a transaction id: it is a single statement, or a read-only transaction.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import pyarrow as pa

from penstock.errors import RegistrationError, StepError
from penstock.views.postgres.capture import HERE

CONNECTIONS = 6
_SESSION = (
    "SET standard_conforming_strings = on",
    "SET jit = off",  # it costs more than any lookup
    "SET timezone = 'UTC'",
)


T = TypeVar("T")


class ConnectionLostError(StepError):
    """The server has closed a connection, as it does at a restart."""


class Pool:
    """Connections to one server, opened on first use and then kept."""

    def __init__(self, url: str, connections: int = CONNECTIONS) -> None:
        if connections < 1:
            raise RegistrationError(f"connections must be at least 1, not {connections}")
        self.url, self.connections = url, connections
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        self._slots = threading.Semaphore(connections)
        self._identity: str | None = None
        self.warm(1)

    @property
    def identity(self) -> str:
        """Which database this is, however it is reached: positions have no meaning in another."""
        if self._identity is None:
            found = self.fetch("SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()")
            self._identity = str(found.column(0)[0].as_py())
        return self._identity

    def warm(self, count: int | None = None) -> None:
        """Open connections now, by default all of them, so that no request waits for it."""
        opened = [self._open() for _ in range((count or self.connections) - self._free.qsize())]
        for connection in opened:
            self._free.put(connection)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection for exclusive use; after a failure it is not used again.

        If the server has closed it, it has probably closed all others: the free ones are dropped too.
        """
        with self._slots:
            try:
                connection = self._free.get_nowait()
            except queue.Empty:
                connection = self._open()
            try:
                yield connection
            except BaseException as error:
                lost = isinstance(error, StepError) and not _answers(connection)
                connection.close()
                if lost:
                    self.close()
                    raise ConnectionLostError(str(error)) from error
                raise
            self._free.put(connection)

    def read(self, request: Callable[[Any], T]) -> T:
        """The result of a read-only request, given a connection's cursor; repeated once if the connection was lost."""
        try:
            return self._ask(request)
        except ConnectionLostError:
            return self._ask(request)

    def fetch(self, sql: str, parameters: pa.RecordBatch | None = None, locked: Sequence[str] = ()) -> pa.Table:
        """The rows of one statement; of the tables `locked`, as of its snapshot (see `reading`)."""

        def request(cursor: Any) -> pa.Table:
            with reading(cursor, locked) if locked else nullcontext():
                cursor.execute(sql, parameters=parameters)
                return cursor.fetch_arrow_table()

        return self.read(request)

    def fetch_at(self, sql: str, locked: Sequence[str] = ()) -> tuple[str, pa.Table]:
        """(the snapshot that a statement reads, its rows).

        A first row with the snapshot, as in lookups, would add a cost to every row of a long answer.
        """

        def request(cursor: Any) -> tuple[str, pa.Table]:
            with reading(cursor, locked):
                cursor.execute(f"SELECT {HERE}")
                snapshot = cursor.fetch_arrow_table().column(0)[0].as_py()
                cursor.execute(sql)
                return snapshot, cursor.fetch_arrow_table()

        return self.read(request)

    def run(self, statements: Sequence[str]) -> None:
        """Statements without rows, in one transaction."""
        with self.connection() as connection, wrapped(), connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("COMMIT")

    def close(self) -> None:
        """Close the connections that are free."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close()

    def _ask(self, request: Callable[[Any], T]) -> T:
        with self.connection() as connection, wrapped(), connection.cursor() as cursor:
            return request(cursor)

    def _open(self) -> Any:
        try:
            from adbc_driver_postgresql import dbapi  # noqa: PLC0415  (an extra: only those who use it need it)
        except ImportError:
            msg = "PostgreSQL sources need the package adbc-driver-postgresql; install penstock[views]"
            raise RegistrationError(msg) from None
        try:
            connection = dbapi.connect(self.url, autocommit=True)
        except dbapi.Error as error:
            raise RegistrationError(f"cannot connect to PostgreSQL: {_brief(error)}") from None
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        return connection


@contextmanager
def reading(cursor: Any, locked: Sequence[str]) -> Iterator[None]:
    """A read-only transaction: it has no id, and all its statements see what the first one saw.

    Before that first one it waits for transactions that truncate or rewrite a table of `locked`: an older snapshot
    would find such a table empty, or as it is afterwards, and report that as its earlier content.
    """
    lock = f"; LOCK TABLE {', '.join(locked)} IN ACCESS SHARE MODE" if locked else ""
    cursor.executescript(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{lock}")
    yield
    cursor.executescript("COMMIT")


@contextmanager
def wrapped() -> Iterator[None]:
    """Turn errors of the server into one line."""
    from adbc_driver_manager import dbapi  # noqa: PLC0415

    try:
        yield
    except dbapi.Error as error:
        raise StepError(f"PostgreSQL refused a request: {_brief(error)}") from error


def _answers(connection: Any) -> bool:
    """Whether there is a server at the other end, whatever state a failed request has left the connection in."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
    except Exception:  # noqa: BLE001  (the first error is the one to report)
        return False
    return True


def _brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])
