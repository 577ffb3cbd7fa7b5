"""A script to its statements: what to declare, register, change, drop, show or explain.

The SELECT in a statement stays text with its place in the script: it can be parsed only once the streams are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.model import Sink, Stream
from penstock.sql.alter_stream import AdvanceStream, AlterStream, alter_stream
from penstock.sql.cursor import Cursor
from penstock.sql.declaration import options, stream_declaration
from penstock.sql.dialect import tokenize
from penstock.sql.lengths import positive_length
from penstock.sql.position import AtPlace, Position, Text
from penstock.sql.view_statements import VIEW_PARSERS, ViewStatement


@dataclass(frozen=True)
class CreateStream(AtPlace):
    """`CREATE STREAM ..`. Here and below `at` is where the statement starts, not part of its meaning.

    `altered`: a later ALTER STREAM of the script changed this declaration, so registration takes its delay and path.
    """

    stream: Stream
    altered: bool = False


@dataclass(frozen=True)
class CreateQuery(AtPlace):
    """`CREATE QUERY ..`. `line` and `column` are where `select` starts in the script; `retain` is in microseconds.

    `start` is "now" (only rows that arrive from now on take part) or "state" (stored rows take part too).
    """

    name: str
    select: str
    line: int = 1
    column: int = 1
    into: Sink | str | None = None
    on_error: str = "skip"
    retain: int | None = None
    replace: bool = False
    start: str = "now"


@dataclass(frozen=True)
class AlterQuery(AtPlace):
    """`ALTER QUERY ..`, with the fields of `CreateQuery`; None in `into`, `on_error` and `retain` means unchanged."""

    name: str
    select: str
    line: int = 1
    column: int = 1
    into: Sink | str | None = None
    on_error: str | None = None
    retain: int | None = None
    start: str = "now"


@dataclass(frozen=True)
class ResumeQuery(AtPlace):
    """`ALTER QUERY name RESUME`: resume a suspended query."""

    name: str


@dataclass(frozen=True)
class DropQuery(AtPlace):
    name: str
    purge: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class DropStream(AtPlace):
    name: str


@dataclass(frozen=True)
class ShowQueries(AtPlace):
    pass


@dataclass(frozen=True)
class ShowStreams(AtPlace):
    pass


@dataclass(frozen=True)
class Explain(AtPlace):
    """EXPLAIN of a registered query, of an unregistered SELECT, or (neither) of the whole network."""

    name: str | None = None
    select: str | None = None
    line: int = 1
    column: int = 1


Statement = (
    CreateStream
    | CreateQuery
    | AlterQuery
    | ResumeQuery
    | DropQuery
    | DropStream
    | AdvanceStream
    | AlterStream
    | ShowQueries
    | ShowStreams
    | Explain
    | ViewStatement
)

_STATEMENTS = (
    "CREATE STREAM, CREATE [OR REPLACE] QUERY, ALTER QUERY, ALTER STREAM, DROP QUERY, DROP STREAM, "
    "SHOW QUERIES, SHOW STREAMS, EXPLAIN, "
    "CREATE SOURCE, CREATE MATERIALIZED VIEW, REFRESH VIEW, DROP SOURCE, DROP VIEW, SHOW SOURCES, SHOW VIEWS"
)


@dataclass(frozen=True)
class Refused:
    """A statement that could not be read; `name` is what it declares, if that is clear."""

    error: SqlError
    name: str | None
    at: Position


def parse_script(text: str) -> list[Statement]:
    """The statements of a script, in order. Statements are separated by semicolons."""
    return list(_statements(text))


def read_script(text: str) -> list[Statement | Refused]:
    """As `parse_script`, with the error in place of each unreadable statement; an open quote ends the script."""
    return list(_statements(text, keep=True))


def _statements(text: str, *, keep: bool = False) -> Iterator[Any]:
    source = Text(text)
    pieces = groupby(tokenize(source), key=lambda t: t.token_type == TokenType.SEMICOLON)
    for tokens in (list(piece) for separator, piece in pieces if not separator):
        try:
            yield _statement(source, tokens)
        except SqlError as error:
            if not keep:
                raise
            yield Refused(error, _declared(tokens), source.position(tokens[0].start))


def _declared(tokens: list[Token]) -> str | None:
    """The name after CREATE STREAM and the like."""
    words = [token.text.upper() for token in tokens[:5]]
    kind = next((n for n, word in enumerate(words) if word in ("STREAM", "QUERY", "SOURCE", "VIEW")), None)
    creates = words[:1] in (["CREATE"], ["ALTER"]) and kind is not None and kind + 1 < len(tokens)
    return tokens[kind + 1].text if creates and kind is not None else None


def _statement(source: Text, tokens: list[Token]) -> Statement:
    cursor = Cursor(source, tokens)
    for words, parse in _PARSERS.items():
        if cursor.accept(*words.split()):
            return parse(cursor, source.position(tokens[0].start))
    first = tokens[0].text.upper()
    if first in ("SELECT", "WITH"):
        raise source.error(tokens[0].start, "A query in a script needs a name", "write CREATE QUERY name AS SELECT ..")
    if first in ("CREATE", "ALTER", "DROP", "SHOW", "REFRESH"):
        words = f"{first} {cursor.peek(1)}".strip()
        raise source.unsupported(tokens[0].start, f"{words} is not supported", f"known: {_STATEMENTS}")
    raise source.error(tokens[0].start, f"Unknown statement {tokens[0].text}", f"known: {_STATEMENTS}")


def _create_stream(cursor: Cursor, at: Position) -> CreateStream:
    return CreateStream(stream_declaration(cursor), at=at)


def _create_query(cursor: Cursor, at: Position) -> CreateQuery:
    return _query(cursor, at, replace=False)


def _replace_query(cursor: Cursor, at: Position) -> CreateQuery:
    return _query(cursor, at, replace=True)


def _query(cursor: Cursor, at: Position, *, replace: bool) -> CreateQuery:
    """The clauses of an ALTER QUERY too; here missing ones have defaults."""
    new = _alter_query(cursor, at)
    on_error = new.on_error or "skip"
    return CreateQuery(
        new.name, new.select, new.line, new.column, new.into, on_error, new.retain, replace, new.start, at=at
    )


def _alter_or_resume(cursor: Cursor, at: Position) -> AlterQuery | ResumeQuery:
    start = cursor.index
    name = _query_name(cursor)
    if cursor.accept("RESUME"):
        cursor.end()
        return ResumeQuery(name, at=at)
    cursor.index = start
    return _alter_query(cursor, at)


def _alter_query(cursor: Cursor, at: Position) -> AlterQuery:
    name = _query_name(cursor)
    on_error, retain, start = _clauses(cursor)
    select, line, column = _select(cursor)
    into = _sink(cursor) if cursor.accept("INTO") else None
    cursor.end()
    return AlterQuery(name, select, line, column, into, on_error, retain, start, at=at)


def _clauses(cursor: Cursor) -> tuple[str | None, int | None, str]:
    """The clauses between the name of a query and AS: ON ERROR and RETAIN if given, and FROM."""
    on_error, retain, start = None, None, "now"
    seen: set[str] = set()
    while not cursor.accept("AS"):
        clause, place = cursor.peek(), cursor.offset
        if clause in seen:
            raise cursor.source.error(place, f"{clause} is given twice")
        seen.add(clause)
        if cursor.accept("ON", "ERROR"):
            on_error = cursor.choice("SKIP", "STOP").lower()
        elif cursor.accept("RETAIN"):
            length = cursor.until("AS", "ON", "RETAIN", "FROM", "INTO")
            if not length:
                raise cursor.source.error(cursor.offset, "Expected a length of time, for example 7 DAYS")
            retain = positive_length(cursor.source, length)
        elif cursor.accept("FROM"):
            start = cursor.choice("NOW", "STATE").lower()
        elif clause == "INTO":
            raise cursor.source.error(place, "INTO comes after the SELECT")
        else:
            raise cursor.source.error(place, "Expected ON ERROR, RETAIN, FROM or AS SELECT ..")
    return on_error, retain, start


def _query_name(cursor: Cursor) -> str:
    cursor.refuse_nameless("query", "CREATE QUERY name AS SELECT ..")
    token = cursor.name("query")
    if token.text.startswith("_"):
        raise cursor.source.error(token.start, "Names that begin with _ are reserved")
    return token.text


def _select(cursor: Cursor) -> tuple[str, int, int]:
    """The text up to INTO or the end, and its place; it must at least look like a query."""
    source, start = cursor.source, cursor.offset
    if cursor.peek() not in ("SELECT", "WITH", "("):
        raise source.error(start, "Expected SELECT")
    tokens = cursor.until("INTO")
    at = source.position(start)
    return source.text[start : tokens[-1].end + 1], at.line, at.column


def _sink(cursor: Cursor) -> Sink | str:
    if not cursor.done and cursor.tokens[cursor.index].token_type == TokenType.STRING:
        return cursor.take().text
    name = cursor.name("sink format").text
    found = dict(options(cursor)) if cursor.accept("OPTIONS") else {}
    return Sink(name, **found)


def _drop_query(cursor: Cursor, at: Position) -> DropQuery:
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("query").text
    purge = cursor.accept("PURGE")
    cursor.end()
    return DropQuery(name, purge, if_exists, at=at)


def _drop_stream(cursor: Cursor, at: Position) -> DropStream:
    name = cursor.name("stream").text
    cursor.end()
    return DropStream(name, at=at)


def _show_queries(cursor: Cursor, at: Position) -> ShowQueries:
    cursor.end()
    return ShowQueries(at=at)


def _show_streams(cursor: Cursor, at: Position) -> ShowStreams:
    cursor.end()
    return ShowStreams(at=at)


def _explain(cursor: Cursor, at: Position) -> Explain:
    if cursor.done:
        return Explain(at=at)
    if cursor.peek() in ("SELECT", "WITH", "("):
        select, line, column = _select(cursor)
        cursor.end()
        return Explain(None, select, line, column, at=at)
    cursor.accept("QUERY")
    name = cursor.name("query").text
    cursor.end()
    return Explain(name, at=at)


_PARSERS: dict[str, Callable[[Cursor, Position], Statement]] = {
    **VIEW_PARSERS,
    "CREATE STREAM": _create_stream,
    "CREATE QUERY": _create_query,
    "CREATE OR REPLACE QUERY": _replace_query,
    "ALTER QUERY": _alter_or_resume,
    "ALTER STREAM": alter_stream,
    "DROP QUERY": _drop_query,
    "DROP STREAM": _drop_stream,
    "SHOW QUERIES": _show_queries,
    "SHOW STREAMS": _show_streams,
    "EXPLAIN": _explain,
}
