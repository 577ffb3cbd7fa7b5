"""ALTER STREAM: what may change of a stream with existing state, and the resulting declaration.

State and results depend on columns, types and event time: they cannot change. The delay and the path can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import TokenType

from penstock.errors import RegistrationError
from penstock.model import Reader, Stream
from penstock.model.time import LATEST, instant
from penstock.sql.cursor import Cursor
from penstock.sql.declaration import delay_in_rows, options
from penstock.sql.lengths import duration_length, whole_number
from penstock.sql.position import AtPlace, Position


@dataclass(frozen=True)
class AdvanceStream(AtPlace):
    """`ALTER STREAM .. ADVANCE TO ..`: no later row has a time below `to`, in units of the stream's event time."""

    name: str
    to: int | str


@dataclass(frozen=True)
class AlterStream(AtPlace):
    """`ALTER STREAM .. SET ..`; None: unchanged. `delay` is in `unit`: "time" (microseconds), "number" or "rows"."""

    name: str
    delay: int | None = None
    unit: str = "time"
    path: str | None = None


def alter_stream(cursor: Cursor, at: Position) -> AdvanceStream | AlterStream:
    """The statement after the words ALTER STREAM."""
    name = cursor.name("stream").text
    if cursor.accept("ADVANCE", "TO"):
        return _advance(cursor, name, at)
    if cursor.accept("SET", "DELAY"):
        delay, unit = _delay(cursor)
        return AlterStream(name, delay, unit, at=at)
    if cursor.accept("SET", "OPTIONS"):
        return AlterStream(name, path=_path(cursor), at=at)
    raise cursor.source.error(
        cursor.offset, "Expected ADVANCE TO, SET DELAY or SET OPTIONS", "for example SET DELAY INTERVAL 10 SECONDS"
    )


def altered(stream: Stream, change: AlterStream) -> Stream:
    """The declaration of the stream after the change."""
    if change.delay is not None:
        stream = with_delay(stream, change.delay, change.unit)
    return stream if change.path is None else with_path(stream, change.path)


def with_delay(stream: Stream, delay: int, unit: str) -> Stream:
    if unit == "rows":
        if stream.sequence is None:
            msg = f"stream {stream.name!r} has no SEQUENCE BY to count rows by; give its delay as a length of time"
            raise RegistrationError(msg)
        return replace(stream, delay=None, delay_rows=delay)
    if stream.integer_time != (unit == "number"):
        cause = "is an integer, so that its delay has no unit" if stream.integer_time else "is a time"
        example = "2" if stream.integer_time else "INTERVAL 10 SECONDS"
        msg = f"the event time of stream {stream.name!r} {cause}; write for example SET DELAY {example}"
        raise RegistrationError(msg)
    return replace(stream, delay=delay, delay_rows=None)


def with_path(stream: Stream, path: str) -> Stream:
    if stream.source is None or "path" not in {key.lower() for key, _ in stream.source.options}:
        msg = (
            f"stream {stream.name!r} is not read from a path that it declares; "
            "declare its DataFrame over the new path at the next start"
        )
        raise RegistrationError(msg)
    read = [(key, path if key.lower() == "path" else value) for key, value in stream.source.options]
    return replace(stream, source=Reader(stream.source.format, tuple(read)))


def alike_but_for_changes(one: Stream, other: Stream) -> bool:
    """Whether ALTER STREAM can turn one into the other: they differ at most in delay and path."""
    return _without_changes(one).same(_without_changes(other))


def _without_changes(stream: Stream) -> Stream:
    return replace(stream, delay=None, delay_rows=None, source=_anywhere(stream))


def _anywhere(stream: Stream) -> Reader | None:
    if stream.source is None:
        return None
    given = ((key, "" if key.lower() == "path" else value) for key, value in stream.source.options)
    return Reader(stream.source.format, tuple(given))


def _delay(cursor: Cursor) -> tuple[int, str]:
    place, tokens = cursor.offset, cursor.until()
    if not tokens:
        raise cursor.source.error(place, "Expected a delay", "for example INTERVAL 10 SECONDS, 100 ROWS, or 2")
    rows = delay_in_rows(cursor.source, tokens)
    if rows is not None:
        return rows, "rows"
    units = whole_number(tokens[0].text) if len(tokens) == 1 else None
    if units is not None and tokens[0].token_type == TokenType.NUMBER:
        if units > LATEST:
            raise cursor.source.error(place, "This delay is too long")
        return units, "number"
    delay = duration_length(cursor.source, tokens)
    if delay < 0:
        raise cursor.source.error(place, "The delay must not be negative")
    return delay, "time"


def _path(cursor: Cursor) -> str:
    place = cursor.offset
    given = dict(options(cursor))
    cursor.end()
    other = next((key for key in given if key.lower() != "path"), None)
    if other is not None or not given:
        cause = "No option is given" if other is None else f"Option {other} cannot be changed"
        raise cursor.source.unsupported(
            place, cause, "only the path can: SET OPTIONS (path 'folder'); or declare another stream"
        )
    return next(iter(given.values()))


def _advance(cursor: Cursor, name: str, at: Position) -> AdvanceStream:
    named = cursor.accept("TIMESTAMP")
    sign = -1 if not named and cursor.accept("-") else 1
    place, token = cursor.offset, cursor.take()
    cursor.end()
    number = whole_number(token.text) if token.token_type == TokenType.NUMBER and not named else None
    if number is not None and number > LATEST:
        raise cursor.source.error(place, "This time is too far away")
    if number is not None:
        return AdvanceStream(name, sign * number, at=at)
    if token.token_type != TokenType.STRING or sign < 0:
        raise cursor.source.error(
            place, "Expected a time", "for example TIMESTAMP '2024-05-01 12:30:00', or a whole number"
        )
    try:
        instant(token.text)
    except ValueError as error:
        raise cursor.source.error(place, str(error)) from None
    return AdvanceStream(name, token.text, at=at)
