"""Statements about sources and views: CREATE, DROP, REFRESH, SHOW, EXPLAIN.

A SELECT stays text with its place in the script.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model import Column
from penstock.model.view import CAPTURES, SYSTEMS, Source
from penstock.sql.cursor import Cursor
from penstock.sql.declaration import column_declaration, free_name, options
from penstock.sql.lengths import positive_length
from penstock.sql.position import AtPlace, Position


@dataclass(frozen=True)
class CreateSource(AtPlace):
    """`CREATE SOURCE ..`; by default with the columns of the table or file. `at` is where the statement starts."""

    source: Source


@dataclass(frozen=True)
class CreateView(AtPlace):
    """`CREATE MATERIALIZED VIEW ..`; `every` is the refresh interval in microseconds, None for refresh on demand."""

    name: str
    select: str
    line: int = 1
    column: int = 1
    every: int | None = None
    strategy: str | None = None


@dataclass(frozen=True)
class DropSource(AtPlace):
    name: str


@dataclass(frozen=True)
class DropView(AtPlace):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RefreshView(AtPlace):
    """`REFRESH [MATERIALIZED] VIEW v [FULL]`: incrementally, or from the whole sources."""

    name: str
    full: bool = False


@dataclass(frozen=True)
class ShowSources(AtPlace):
    pass


@dataclass(frozen=True)
class ShowViews(AtPlace):
    pass


@dataclass(frozen=True)
class ExplainView(AtPlace):
    name: str


ViewStatement = CreateSource | CreateView | DropSource | DropView | RefreshView | ShowSources | ShowViews | ExplainView


def _create_source(cursor: Cursor, at: Position) -> CreateSource:
    name = free_name(cursor, "source")
    columns: list[Column] = []
    if cursor.accept("("):
        while True:
            columns.append(column_declaration(cursor, columns))
            if not cursor.accept(","):
                break
        cursor.expect(")")
    place = cursor.offset
    cursor.expect("USING", "for example USING postgres OPTIONS (url '..', table 'orders')")
    system = cursor.choice(*(s.upper() for s in SYSTEMS)).lower()
    given = options(cursor, reserved=()) if cursor.accept("OPTIONS") else ()
    key = _key(cursor) if cursor.accept("KEY") else ()
    changes, table = CAPTURES[system][0], None
    if cursor.accept("CHANGES", "BY"):
        place = cursor.offset
        every = dict.fromkeys(c.upper() for known in CAPTURES.values() for c in known)
        changes = cursor.choice(*every).lower()
        if changes == "table":
            table = cursor.name("change table").text
            while cursor.accept("."):
                table += "." + cursor.name("change table").text
    if changes not in CAPTURES[system]:
        raise cursor.source.unsupported(
            place,
            f"A {system} source cannot tell its changes by {changes}",
            f"write CHANGES BY {' or '.join(c.upper() for c in CAPTURES[system])}",
        )
    cursor.end()
    return CreateSource(Source(name, tuple(columns), system, given, key, changes, table), at=at)


def _key(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    names = [cursor.name("column").text]
    while cursor.accept(","):
        names.append(cursor.name("column").text)
    cursor.expect(")")
    return tuple(names)


def _create_view(cursor: Cursor, at: Position) -> CreateView:
    cursor.refuse_nameless("view", "CREATE MATERIALIZED VIEW name AS SELECT ..")
    name = free_name(cursor, "view")
    every: int | None = None
    strategy: str | None = None
    while not cursor.accept("AS"):
        if cursor.accept("REFRESH", "EVERY"):
            length = cursor.until("AS", "MAINTAIN")
            if not length:
                raise cursor.source.error(cursor.offset, "Expected a length of time, for example 10 SECONDS")
            every = positive_length(cursor.source, length)
        elif cursor.accept("MAINTAIN", "BY"):
            strategy = cursor.name("strategy").text.lower()
        else:
            raise cursor.source.error(cursor.offset, "Expected REFRESH EVERY .., MAINTAIN BY .. or AS SELECT ..")
    start = cursor.offset
    if cursor.peek() not in ("SELECT", "WITH", "("):
        raise cursor.source.error(start, "Expected SELECT")
    tokens = cursor.until()
    place = cursor.source.position(start)
    text = cursor.source.text[start : tokens[-1].end + 1]
    return CreateView(name, text, place.line, place.column, every, strategy, at=at)


def _drop_source(cursor: Cursor, at: Position) -> DropSource:
    name = cursor.name("source").text
    cursor.end()
    return DropSource(name, at=at)


def _drop_view(cursor: Cursor, at: Position) -> DropView:
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("view").text
    cursor.end()
    return DropView(name, if_exists, at=at)


def _refresh(cursor: Cursor, at: Position) -> RefreshView:
    name = cursor.name("view").text
    full = cursor.accept("FULL")
    cursor.end()
    return RefreshView(name, full, at=at)


def _show_sources(cursor: Cursor, at: Position) -> ShowSources:
    cursor.end()
    return ShowSources(at=at)


def _show_views(cursor: Cursor, at: Position) -> ShowViews:
    cursor.end()
    return ShowViews(at=at)


def _explain_view(cursor: Cursor, at: Position) -> ExplainView:
    name = cursor.name("view").text
    cursor.end()
    return ExplainView(name, at=at)


VIEW_PARSERS: dict[str, Callable[[Cursor, Position], ViewStatement]] = {
    "CREATE SOURCE": _create_source,
    "CREATE MATERIALIZED VIEW": _create_view,
    "DROP SOURCE": _drop_source,
    "DROP MATERIALIZED VIEW": _drop_view,
    "DROP VIEW": _drop_view,
    "REFRESH MATERIALIZED VIEW": _refresh,
    "REFRESH VIEW": _refresh,
    "SHOW SOURCES": _show_sources,
    "SHOW VIEWS": _show_views,
    "EXPLAIN VIEW": _explain_view,
}
