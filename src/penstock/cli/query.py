"""`penstock query`: ask the engine that runs on a state directory, from another process, or read its registry.

Spark is not imported.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from penstock.catalog.requests import Answer, RequestLog
from penstock.errors import PenstockError, SqlError
from penstock.state.manifest import ManifestLog
from penstock.state.registry import RegistryLog
from penstock.storage.faults import file_fault
from penstock.storage.open_store import open_store
from penstock.storage.store import Store


class UnansweredError(PenstockError):
    """A waiting request: no engine runs, or it has not answered in time."""


def add_statement(name: str, select: str, *, into: Path | str | None, from_state: bool, replace: bool) -> str:
    """The SQL that adds a query. A path is made absolute: the engine may run in another folder."""
    head = "CREATE OR REPLACE QUERY" if replace else "CREATE QUERY"
    start = " FROM STATE" if from_state else ""
    place = into.absolute() if isinstance(into, Path) else into
    sink = f"\nINTO {_literal(str(place))}" if place else ""
    query = select.strip().rstrip("; \t\r\n")
    return f"{head} {_name(name)}{start} AS {query}{sink}"


def drop_statement(name: str, *, purge: bool) -> str:
    return f"DROP QUERY {_name(name)}{' PURGE' if purge else ''}"


def resume_statement(name: str) -> str:
    return f"ALTER QUERY {_name(name)} RESUME"


def ask(state: Path | str, statement: str, seconds: float) -> Answer:
    """Write a request to a state directory and wait for its answer."""
    with _in_plain_words():
        store = _opened(state)
        log, running = RequestLog(store), store.owner() is not None
        if not running and ManifestLog(store).load().final:
            msg = "its streams have ended (final), and no engine can run on it again; use a new state directory"
            raise PenstockError(msg)
        request = log.ask(statement)
        answer = log.wait(request, seconds) if running else None
        if answer is not None:
            return answer
        if store.owner() is not None:
            msg = f"no answer within {seconds:g} seconds; the request waits, and is taken after the running step"
        else:
            msg = "no engine runs; the request waits, and is taken at the next start"
        raise UnansweredError(msg)


def queries(state: Path | str) -> list[dict[str, Any]]:
    """The registered queries."""
    with _in_plain_words():
        return [
            {
                "name": q.name,
                "since": q.since,
                "start": q.start,
                "into": str(q.into) if q.into else None,
                "sql": q.text,
            }
            for q in RegistryLog(_opened(state)).load().shown()
        ]


def queries_table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("query", overflow="fold")
    table.add_column("since step", justify="right", no_wrap=True)
    table.add_column("start", no_wrap=True)
    table.add_column("sink", overflow="fold")
    table.add_column("SQL", overflow="fold")
    for q in found:
        cells = (q["name"], str(q["since"]), q["start"], q["into"] or "-", " ".join(q["sql"].split()))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _opened(state: Path | str) -> Store:
    """A state directory in which an engine has run; other folders are not written to."""
    store = open_store(state)
    if not store.names("registry"):
        raise PenstockError("there is no state of Penstock; give the directory in which 'penstock run' keeps its state")
    return store


@contextlib.contextmanager
def _in_plain_words() -> Iterator[None]:
    """Errors inside are about the state directory or the statement; a place in the statement is part of the message."""
    try:
        yield
    except SqlError as error:
        raise PenstockError(str(error)) from None
    except OSError as error:
        raise PenstockError(file_fault(error)) from None


def _name(name: str) -> str:
    """A name in SQL."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
