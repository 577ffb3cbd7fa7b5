"""CREATE STREAM: columns, watermark, sequence, order, punctuation, policies, source.

Checks all that needs no Spark: names, types of the event time, and that a rule for progress is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import Column, Reader, Stream
from penstock.model.stream import INTEGER_TYPES, POLICIES, SIDE_RETAIN, TIME_TYPES
from penstock.model.time import LATEST
from penstock.sql.cursor import Cursor
from penstock.sql.lengths import duration_length, positive_length, whole_number
from penstock.sql.position import Text
from penstock.sql.types import parse_type

_RESERVED_OPTIONS = ("self", "format")
_CLAUSES = ("LATE", "BAD", "IDLE", "HEARTBEAT", "ORDERED", "PUNCTUATION", "SIDE", "USING", "OPTIONS")
_BY_CLOCK = ("IDLE", "HEARTBEAT")
_WATERMARK = "add for example: WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS"


@dataclass(frozen=True)
class _Watermark:
    column: Token
    delay: list[Token] | None  # None: only the event time is named


@dataclass(frozen=True)
class _Clauses:
    """The clauses after the columns."""

    late: str
    bad: str
    idle: int | None
    heartbeat: int | None
    ordered: bool
    punctuation: Token | None
    patterns: list[Token]
    punctuated_by: str | None
    source: Reader
    side_retain: int | None


def stream_declaration(cursor: Cursor) -> Stream:
    """The stream declared after the words CREATE STREAM."""
    source = cursor.source
    name = free_name(cursor, "stream")
    body = cursor.offset
    cursor.expect("(", "a stream is declared as: name (column TYPE, .., WATERMARK FOR ..)")
    columns: list[Column] = []
    watermark: _Watermark | None = None
    sequence: Token | None = None
    while True:
        place = cursor.offset
        if cursor.peek() == "WATERMARK" and cursor.peek(1) == "FOR":
            if watermark is not None:
                raise source.error(place, "WATERMARK is given twice")
            watermark = _watermark(cursor)
        elif cursor.peek() == "SEQUENCE" and cursor.peek(1) == "BY":
            if sequence is not None:
                raise source.error(place, "SEQUENCE BY is given twice")
            cursor.accept("SEQUENCE", "BY")
            sequence = cursor.name("column")
        else:
            columns.append(column_declaration(cursor, columns))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if watermark is None:
        raise source.error(body, f"Stream {name} has no WATERMARK, so its progress is unknown", _WATERMARK)
    event_time = _declared(cursor, columns, watermark.column)
    if event_time.type not in INTEGER_TYPES | TIME_TYPES:
        raise source.error(
            watermark.column.start,
            f"Event time cannot be of type {event_time.type}",
            "use TIMESTAMP, TIMESTAMP_NTZ, DATE or an integer type",
        )
    integer = event_time.type in INTEGER_TYPES
    delay, rows = _delay(cursor, watermark, integer=integer)
    if rows is not None and sequence is None:
        assert watermark.delay is not None
        raise source.error(
            watermark.delay[0].start, "A delay in rows needs an order of the rows",
            "add SEQUENCE BY with the column that has it"
        )  # fmt: skip
    clauses = _clauses(cursor, integer=integer)
    if clauses.ordered:
        if delay or rows is not None:
            raise source.error(watermark.column.start, "An ORDERED stream has no delay", "leave out one of them")
        delay = 0
    punctuation = None if clauses.punctuation is None else _declared(cursor, columns, clauses.punctuation).name
    patterns = dict.fromkeys(_declared(cursor, columns, token) for token in clauses.patterns)
    told = clauses.punctuation is not None or clauses.punctuated_by is not None or clauses.heartbeat is not None
    if delay is None and rows is None and not told:
        raise source.error(body, f"Stream {name} has no WATERMARK with a delay, so its progress is unknown", _WATERMARK)
    return Stream(
        name=name,
        columns=tuple(columns),
        event_time=event_time.name,
        delay=delay,
        late=clauses.late,
        bad=clauses.bad,
        idle=clauses.idle,
        sequence=_declared(cursor, columns, sequence).name if sequence is not None else None,
        source=clauses.source,
        delay_rows=rows,
        punctuation=punctuation,
        punctuated_by=clauses.punctuated_by,
        patterns=tuple(patterns),
        heartbeat=clauses.heartbeat,
        side_retain=clauses.side_retain,
    )


def options(cursor: Cursor, reserved: tuple[str, ...] = _RESERVED_OPTIONS) -> tuple[tuple[str, str], ...]:
    """`(key 'value', dotted.key = 'value', ..)`, sorted by key: their order does not matter."""
    source = cursor.source
    found: dict[str, str] = {}
    cursor.expect("(")
    while not cursor.accept(")"):
        place = cursor.offset
        key = _option_key(cursor)
        cursor.accept("=")
        if key.lower() in {k.lower() for k in found} or key in reserved:
            raise source.error(place, f"Option {key} cannot be given {'twice' if key not in reserved else 'here'}")
        found[key] = _option_value(cursor)
        if not cursor.accept(",") and cursor.peek() != ")":
            raise source.error(cursor.offset, "Expected , or )")
    return tuple(sorted(found.items()))


def _option_key(cursor: Cursor) -> str:
    if not cursor.done and cursor.tokens[cursor.index].token_type == TokenType.STRING:
        return cursor.take().text
    key = cursor.name("option").text
    while cursor.accept("."):
        key += "." + cursor.name("option").text
    return key


def _option_value(cursor: Cursor) -> str:
    place = cursor.offset
    sign = "-" if cursor.accept("-") else ""
    token = cursor.take()
    if token.token_type == TokenType.NUMBER or (not sign and token.token_type == TokenType.STRING):
        return sign + token.text
    if not sign and token.text.upper() in ("TRUE", "FALSE"):
        return token.text.lower()
    raise cursor.source.error(place, "Expected a value in quotes")


def free_name(cursor: Cursor, what: str) -> str:
    """A name that users may choose."""
    token = cursor.name(what)
    if token.text.startswith("_"):
        raise cursor.source.error(token.start, "Names that begin with _ are reserved")
    return token.text


def column_declaration(cursor: Cursor, before: list[Column]) -> Column:
    """`name TYPE`, after the columns in `before`."""
    place = cursor.offset
    name = free_name(cursor, "column")
    if any(c.name.lower() == name.lower() for c in before):
        raise cursor.source.error(place, f"Column {name} is declared twice")
    tokens = cursor.until(",", ")", angles=True)
    if not tokens:
        raise cursor.source.error(cursor.offset, f"Column {name} needs a type")
    return Column(name, parse_type(cursor.source, tokens))


def _watermark(cursor: Cursor) -> _Watermark:
    cursor.accept("WATERMARK", "FOR")
    column = cursor.name("column")
    if cursor.peek() in (",", ")"):
        return _Watermark(column, None)
    cursor.expect("AS", _WATERMARK)
    place = cursor.offset
    again = cursor.name("column")
    if again.text.lower() != column.text.lower():
        raise cursor.source.unsupported(
            place, f"The watermark of {column.text} must be {column.text} itself, less a length of time", _WATERMARK
        )
    if not cursor.accept("-"):
        return _Watermark(column, [])
    delay = cursor.until(",", ")")
    if not delay:
        raise cursor.source.error(cursor.offset, "Expected a length of time, for example INTERVAL 5 SECONDS")
    return _Watermark(column, delay)


def _delay(cursor: Cursor, watermark: _Watermark, *, integer: bool) -> tuple[int | None, int | None]:
    """(delay in time, delay in rows)."""
    tokens, source = watermark.delay, cursor.source
    if tokens is None:
        return None, None
    if not tokens:
        return 0, None
    rows = delay_in_rows(source, tokens)
    if rows is not None:
        return None, rows
    if integer:
        units = whole_number(tokens[0].text)
        if len(tokens) != 1 or units is None or units > LATEST:
            raise source.error(tokens[0].start, "The delay of an integer event time is a whole number", "as in ts - 5")
        return units, None
    delay = duration_length(source, tokens)
    if delay < 0:
        raise source.error(tokens[0].start, "The delay must not be negative")
    return delay, None


def delay_in_rows(source: Text, tokens: Sequence[Token]) -> int | None:
    """The number of `100 ROWS`; None for other tokens."""
    if len(tokens) != 2 or tokens[1].text.upper() not in ("ROW", "ROWS"):
        return None
    rows = whole_number(tokens[0].text)
    if rows is None or not 1 <= rows <= LATEST:
        raise source.error(tokens[0].start, "A delay in rows is a whole number above zero", "as in ts - 100 ROWS")
    return rows


def _clauses(cursor: Cursor, *, integer: bool) -> _Clauses:
    policies = {"LATE": "side", "BAD": "side"}
    by_clock: dict[str, int] = {}
    form: str | None = None
    given: tuple[tuple[str, str], ...] = ()
    punctuation: Token | None = None
    patterns: list[Token] = []
    punctuated_by: str | None = None
    side_retain: int | None = SIDE_RETAIN
    seen: set[str] = set()
    last = cursor.offset
    while not cursor.done:
        place, clause = cursor.offset, cursor.peek()
        last = place
        if clause not in _CLAUSES:
            raise cursor.source.error(place, f"Expected one of {', '.join(_CLAUSES)}")
        if clause in seen:
            raise cursor.source.error(place, f"{clause} is given twice")
        seen.add(clause)
        cursor.take()
        if clause in policies:
            policies[clause] = cursor.choice(*(p.upper() for p in POLICIES)).lower()
        elif clause in _BY_CLOCK:
            by_clock[clause] = _by_clock(cursor, clause, place, integer=integer)
            if len(by_clock) > 1:
                raise cursor.source.error(
                    place, "A stream with a HEARTBEAT follows the clock when it is silent too", "leave IDLE out"
                )
        elif clause == "PUNCTUATION":
            if cursor.accept("FROM"):
                punctuated_by = cursor.name("stream").text
            else:
                punctuation = cursor.name("column")
                patterns = _narrowed_by(cursor)
        elif clause == "SIDE":
            side_retain = _side_retain(cursor)
        elif clause == "USING":
            form = cursor.name("source format").text
        elif clause == "OPTIONS":
            given = options(cursor)
    if form is None:
        if given or "OPTIONS" in seen:
            raise cursor.source.error(last, "OPTIONS needs USING with the format of the source")
        raise cursor.source.error(
            cursor.offset, "Expected USING with the format of the source", "for example USING kafka"
        )
    reader = Reader(form, given)
    idle, heartbeat = (by_clock.get(clause) for clause in _BY_CLOCK)
    return _Clauses(
        policies["LATE"],
        policies["BAD"],
        idle,
        heartbeat,
        "ORDERED" in seen,
        punctuation,
        patterns,
        punctuated_by,
        reader,
        side_retain,
    )


def _side_retain(cursor: Cursor) -> int | None:
    """How long late and invalid rows are kept: the clause after the word SIDE; None is for ever."""
    cursor.expect("RETAIN", "write for example SIDE RETAIN 7 DAYS, or SIDE RETAIN ALL")
    if cursor.accept("ALL"):
        return None
    length = cursor.until(*_CLAUSES)
    if not length:
        raise cursor.source.error(cursor.offset, "Expected a length of time, for example 7 DAYS, or ALL")
    return positive_length(cursor.source, length)


def _narrowed_by(cursor: Cursor) -> list[Token]:
    """The columns of `BY (k, ..)`, which restrict a punctuation to the rows with its values."""
    if not cursor.accept("BY"):
        return []
    cursor.expect("(")
    found = [cursor.name("column")]
    while cursor.accept(","):
        found.append(cursor.name("column"))
    cursor.expect(")")
    return found


def _by_clock(cursor: Cursor, clause: str, place: int, *, integer: bool) -> int:
    if integer:
        raise cursor.source.error(
            place, f"{clause} needs an event time that follows the clock; an integer does not", f"leave {clause} out"
        )
    length = cursor.until(*_CLAUSES)
    if not length:
        raise cursor.source.error(cursor.offset, "Expected a length of time, for example '30 seconds'")
    return positive_length(cursor.source, length)


def _declared(cursor: Cursor, columns: list[Column], token: Token) -> Column:
    found = next((c for c in columns if c.name.lower() == token.text.lower()), None)
    if found is None:
        hint = did_you_mean(token.text, (c.name for c in columns))
        raise cursor.source.error(token.start, f"Unknown column {token.text}", hint)
    return found
