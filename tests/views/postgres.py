"""A user who writes to the private PostgreSQL server of a test."""

from __future__ import annotations

from typing import Any


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
