"""A user who writes to the private PostgreSQL server of a test, or lets it crash or restart."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
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


def crash(url: str) -> None:
    """Kill one process of the server, which then ends all others and recovers; wait for it."""
    killed, other = Session(url), Session(url)
    os.kill(killed.rows("SELECT pg_backend_pid()")[0][0], signal.SIGKILL)
    with suppress(killed.connection.Error):
        while other.rows("SELECT 1"):
            time.sleep(0.01)
    killed.close()
    other.close()
    for _ in range(500):
        with suppress(killed.connection.Error):
            Session(url).close()
            return
        time.sleep(0.02)
    raise AssertionError("the server does not come up again")


def control(url: str, action: str) -> None:
    """Shut the server down cleanly (`stop`), and start it again (`restart`)."""
    session = Session(url)
    folder = Path(session.rows("SELECT setting FROM pg_settings WHERE name = 'data_directory'")[0][0])
    session.close()
    program = shlex.split((folder / "postmaster.opts").read_text())[0]
    owner = folder.stat().st_uid if os.getuid() == 0 else None
    options = ["-w", "-m", "fast", "-D", folder, "-l", folder / "log"]
    command = [Path(program).with_name("pg_ctl"), action, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=owner)
