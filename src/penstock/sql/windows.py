"""The windows on streams: `[RANGE ..]`, `[ROWS ..]`, `[TUMBLING ..]`, and `WINDOW ..` at the end of a query.

Any other kind of window, and unsupported options of these kinds, are refused here, at the word. `aggregate_windows`
reads the windows of aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import Column, Role, Rows, Stream, Tumbling, Window
from penstock.model.time import EARLIEST, LATEST
from penstock.sql.cursor import Cursor
from penstock.sql.lengths import positive_length, whole_length, whole_number
from penstock.sql.position import Text

SUPPORTED = (
    "a window on a stream is [RANGE <length>], for example [RANGE 5 MINUTES], or [RANGE ALL], [ROWS <number>],"
    " [ROWS <number> PARTITION BY <columns>], [TUMBLING <length>]"
)

# Words of other window notations, refused by name.
_OTHER_KINDS = {
    "ROWS": "Windows that count rows in this form",
    "ROW": "Windows that count rows in this form",
    "SLIDE": "Windows with SLIDE, other than in an aggregate",
    "TUMBLING": "Tumbling windows in this form",
    "SESSION": "Session windows, other than in an aggregate",
    "PARTITION": "Windows with PARTITION BY, other than [ROWS <number> PARTITION BY <columns>]",
    "ORIGIN": "Windows with ORIGIN, other than [TUMBLING <length> ORIGIN <time>]",
    "ON": "Windows over another column than the stream's event time",
    "WA": "The window attribute WA (the window follows the stream's event time)",
    "WATTR": "The window attribute WATTR (the window follows the stream's event time)",
    "RATTR": "The window attribute RATTR (the window follows the stream's event time)",
    "SATTR": "The slide attribute SATTR",
    "PA": "The partition attribute PA",
    "UNBOUNDED": "UNBOUNDED windows (write [RANGE ALL])",
    "NOW": "NOW windows",
}
_NO_AGGREGATE = (
    "a join has an answer whenever rows meet, so write [RANGE <length>] alone; "
    "or select an aggregate such as count(*), with GROUP BY"
)
_TIME_WORDS = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stream_window(source: Text, tokens: Sequence[Token], start: int, stream: Stream) -> Window | Rows | Tumbling:
    """The window between the brackets that open at offset `start`."""
    cursor = Cursor(source, tokens)
    kind = cursor.peek() if tokens else ""
    # Options after the length belong to the kind of window; names of columns are not keywords.
    own = {"ROWS": "PARTITION BY", "TUMBLING": "ORIGIN"}.get(kind)
    after_kind = tokens[1:] if own else tokens
    for token in after_kind:
        word = "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()
        if word and word == own:
            break
        refused = _OTHER_KINDS.get(word.split()[0]) if word else None
        if refused:
            hint = _NO_AGGREGATE if word in ("SLIDE", "SESSION") else SUPPORTED
            raise source.unsupported(token.start, f"{refused}: not supported here", hint)
    if cursor.accept("ROWS"):
        return _rows(cursor, stream)
    if cursor.accept("TUMBLING"):
        return _tumbling(cursor, stream)
    if kind == "RANGE":
        return range_window(source, tokens[1:], tokens[0].start, stream.integer_time)
    raise source.unsupported(tokens[0].start if tokens else start, "This window is not supported", SUPPORTED)


def range_window(source: Text, tokens: Sequence[Token], start: int, integer_time: bool) -> Window:
    """The window of a length (or ALL); `start` is the offset of the word before it."""
    if len(tokens) == 1 and tokens[0].text.upper() == "ALL":
        return Window(None)
    return Window(window_length(source, tokens, start, integer_time))


def check_alike(source: Text, roles: Sequence[Role], places: Sequence[int]) -> None:
    """Refuse tumbling windows that differ between roles; `places` are the offsets of their windows."""
    if not any(isinstance(role.window, Tumbling) for role in roles):
        return
    for role, place in zip(roles, places, strict=True):
        if role.window != roles[0].window:
            raise source.unsupported(
                place,
                f"The window of {role.alias} differs from that of {roles[0].alias}, and a tumbling join has "
                "one for all streams",
                "give every stream of the query the same [TUMBLING <length>], with the same ORIGIN if any",
            )


def window_length(source: Text, tokens: Sequence[Token], start: int, integer_time: bool) -> int:
    """A length of event time; `start` is the offset of the word before it."""
    if not tokens:
        raise source.error(start, "A window needs a length", SUPPORTED)
    return whole_length(source, tokens) if integer_time else positive_length(source, tokens)


def _rows(cursor: Cursor, stream: Stream) -> Rows:
    """The window after the word ROWS."""
    source, word = cursor.source, cursor.tokens[0]
    place, number = cursor.offset, cursor.until("PARTITION BY")
    count = whole_number(number[0].text) if len(number) == 1 else None
    if count is None or number[0].token_type != TokenType.NUMBER:
        raise source.error(place if number else word.start, "ROWS needs a whole number of rows", "as in [ROWS 1000]")
    if not 1 <= count <= LATEST:
        raise source.error(place, "A window of rows holds at least one row" if count < 1 else "These are too many rows")
    partition: list[str] = []
    if cursor.accept("PARTITION BY"):
        partition.append(_partition_column(cursor, stream, partition))
        while cursor.accept(","):
            partition.append(_partition_column(cursor, stream, partition))
        cursor.end()
    check_ordered(source, word.start, stream)
    return Rows(count, tuple(partition))


def _partition_column(cursor: Cursor, stream: Stream, before: Sequence[str]) -> str:
    place = cursor.offset
    column = column_of(cursor, stream)
    if column.name in before:
        raise cursor.source.error(place, f"Column {column.name} is given twice")
    return column.name


def column_of(cursor: Cursor, stream: Stream) -> Column:
    """The next named column; it must have an order."""
    token = cursor.name("column")
    column = stream.column(token.text)
    if column is None:
        hint = did_you_mean(token.text, (c.name for c in stream.columns))
        raise cursor.source.error(token.start, f"Stream {stream.name} has no column {token.text}", hint)
    if not column.orderable:
        raise cursor.source.unsupported(
            token.start, f"Rows cannot be partitioned by {column.name} of type {column.type}", "use a plain type"
        )
    return column


def check_ordered(source: Text, start: int, stream: Stream, what: str = "Windows that count rows") -> None:
    """The last rows of a stream are defined only if different rows of equal time always have an order."""
    ordering = [c for c in stream.columns if stream.tiebreak in (None, c.name)]
    loose = next((c for c in ordering if not c.orderable), None)
    if loose is not None:
        raise source.unsupported(
            start,
            f"{what} need a total order of rows, and {loose.name} of {stream.name} has none ({loose.type})",
            "declare a column that orders rows of equal time: SEQUENCE BY col in CREATE STREAM, or sequence= in Python",
        )


def _tumbling(cursor: Cursor, stream: Stream) -> Tumbling:
    """The window after the word TUMBLING."""
    start = cursor.tokens[0].start
    length = window_length(cursor.source, cursor.until("ORIGIN"), start, stream.integer_time)
    return Tumbling(length, origin_of(cursor, stream) if cursor.accept("ORIGIN") else 0)


def origin_of(cursor: Cursor, stream: Stream) -> int:
    """A point in time; without a zone in UTC, as event times are."""
    source, place = cursor.source, cursor.offset
    if stream.integer_time:
        sign = -1 if cursor.accept("-") else 1
        number = cursor.until()
        distance = whole_number(number[0].text) if len(number) == 1 else None
        if distance is None or number[0].token_type != TokenType.NUMBER:
            raise source.error(place, "Expected a whole number", "event time is an integer here, as in ORIGIN 500")
        origin = sign * distance
        if not EARLIEST <= origin <= LATEST:
            raise source.error(place, "This origin is too far away")
        return origin
    if any(cursor.accept(word) for word in _TIME_WORDS) and not cursor.done:
        token = cursor.take()
        moment = _moment(token.text) if token.token_type == TokenType.STRING else None
        cursor.end()
        if moment is not None:
            return moment
    raise source.error(
        place,
        "Expected a point in time",
        "as in ORIGIN TIMESTAMP '2020-01-01 00:00:00'; in UTC unless it says otherwise",
    )


def _moment(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)
