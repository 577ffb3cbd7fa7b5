"""The windows of aggregates: `[RANGE .. SLIDE ..]` over time or rows, `[TUMBLING ..]`, `[SESSION ..]`, and options.

`windows` reads the windows of joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from penstock.model import AggregateWindow, Landmark, PerRow, Role, Session, Sliding, SlidingRows, Stream
from penstock.model.time import LATEST
from penstock.sql.cursor import Cursor
from penstock.sql.lengths import whole_number
from penstock.sql.position import Text
from penstock.sql.windows import check_ordered, column_of, origin_of, window_length

_Value = TypeVar("_Value")

FORMS = (
    "the window of an aggregate is [RANGE <length> SLIDE <length>], [RANGE ALL SLIDE <length>], "
    "[RANGE <number> ROWS SLIDE"
    " <number> ROWS], [RANGE <length> SLIDE <number> ROWS [BY ARRIVAL]], [TUMBLING <length>] or [SESSION <length>]"
)
_SLIDING_WORDS = frozenset({"SLIDE", "TUMBLING", "SESSION"})
_CLAUSES = ("SLIDE", "PARTITION BY", "ORIGIN", "ON")


@dataclass(frozen=True)
class Slide:
    """A window as written: `partition` and `on` are columns of the stream."""

    window: AggregateWindow
    partition: tuple[str, ...] = ()
    on: str | None = None


def slides(tokens: Sequence[Token] | None) -> bool:
    """Whether the tokens in a stream's brackets are a window for aggregates."""
    words = [t.text.upper() for t in tokens or () if t.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)]
    return not _SLIDING_WORDS.isdisjoint(words)


def aggregate_window(source: Text, tokens: Sequence[Token], start: int, stream: Stream) -> Slide:
    """The window between the brackets that open at offset `start`."""
    cursor = Cursor(source, tokens)
    kind = cursor.peek() if tokens else ""
    if kind not in ("RANGE", "TUMBLING", "SESSION"):
        hint = "write [RANGE <number> ROWS SLIDE <number> ROWS]" if kind == "ROWS" else FORMS
        raise source.unsupported(
            tokens[0].start if tokens else start, "This window is not supported in an aggregate", hint
        )
    word = cursor.take()
    reach = cursor.until(*_CLAUSES)
    slide: list[Token] | None = None
    partition: list[str] | None = None
    origin: int | None = None
    on: str | None = None
    while not cursor.done:
        place = cursor.offset
        if cursor.accept("SLIDE"):
            slide = _once(source, place, slide, cursor.until(*_CLAUSES))
        elif cursor.accept("PARTITION BY"):
            partition = _once(source, place, partition, _columns(cursor, stream))
        elif cursor.accept("ORIGIN"):
            point = Cursor(source, cursor.until(*_CLAUSES))
            if point.done:
                raise source.error(place, "ORIGIN needs a point in time")
            origin = _once(source, place, origin, origin_of(point, stream))
        else:
            cursor.expect("ON")
            on = _once(source, place, on, column_of(cursor, stream).name)
    window = _window(source, word, reach, slide, stream, tuple(partition or ()))
    if origin is not None:
        if not isinstance(window, Sliding | Landmark):
            raise source.unsupported(word.start, "Only windows of time that slide by time have an ORIGIN", FORMS)
        window = replace(window, origin=origin)
    if isinstance(window, SlidingRows | PerRow):
        check_ordered(source, word.start, stream)
    return Slide(window, tuple(partition or ()), on)


def common_window(source: Text, roles: Sequence[Role], places: Sequence[int]) -> AggregateWindow:
    """The window of an aggregate over these roles; `places` are the offsets of their windows.

    The windows of several roles must end at the same times, and the one of the longest range decides where each begins.
    """
    windows = [role.window for role in roles]
    first = windows[0]
    assert isinstance(first, AggregateWindow)
    if len(windows) == 1:
        return first
    longest = first
    for role, window, place in zip(roles, windows, places, strict=True):
        if not isinstance(window, Sliding | Landmark):
            raise source.unsupported(
                place,
                "An aggregate over a join takes windows of time that slide by time",
                "write [RANGE <length> SLIDE <length>] on every stream; for any other window over the "
                "results of a join,"
                " register the join as a query and aggregate over that",
            )
        assert isinstance(first, Sliding | Landmark)
        if (window.slide, window.origin) != (first.slide, first.origin):
            raise source.unsupported(
                place,
                f"The window of {role.alias} slides otherwise than that of {roles[0].alias}",
                "an aggregate over a join has one SLIDE, and one ORIGIN if any, for all streams; ranges may differ",
            )
        if isinstance(longest, Sliding) and (isinstance(window, Landmark) or window.range > longest.range):
            longest = window
    return longest


def _window(
    source: Text,
    word: Token,
    reach: Sequence[Token],
    slide: Sequence[Token] | None,
    stream: Stream,
    partition: tuple[str, ...],
) -> AggregateWindow:
    kind = word.text.upper()
    if kind != "RANGE":
        if slide is not None:
            raise source.error(word.start, f"A {kind} window has no SLIDE", FORMS)
        length = window_length(source, reach, word.start, stream.integer_time)
        return Session(length) if kind == "SESSION" else Sliding(length, length)
    if slide is None:
        raise source.unsupported(word.start, "RANGE without SLIDE in an aggregate", _fix(reach))
    if not slide:
        raise source.error(word.start, "SLIDE needs a length, or a number of rows", FORMS)
    slide, arrival = _by_arrival(source, slide, stream)
    rows, every = _rows(source, reach), _rows(source, slide)
    if arrival is not None and (rows is not None or every is None):
        raise source.unsupported(
            arrival,
            "Only a range of time that slides by rows does so BY ARRIVAL",
            "as in [RANGE 5 MINUTES SLIDE 10 ROWS BY ARRIVAL]",
        )
    if rows is not None:
        if every is None:
            raise source.unsupported(slide[0].start, "A range of rows slides by rows", "as in SLIDE 10 ROWS")
        return SlidingRows(rows, every, partition)
    all_time = len(reach) == 1 and reach[0].text.upper() == "ALL"
    if every is not None:
        if all_time:
            raise source.unsupported(
                slide[0].start, "RANGE ALL slides by time only", "as in [RANGE ALL SLIDE 1 MINUTE]"
            )
        length = window_length(source, reach, word.start, stream.integer_time)
        # Every row has a window, whatever the order of counting; if the sequence is the event time, both are the same.
        return PerRow(length, every, partition, arrival is not None and every > 1 and stream.tiebreak is not None)
    step = window_length(source, slide, slide[0].start, stream.integer_time)
    if all_time:
        return Landmark(step)
    return Sliding(window_length(source, reach, word.start, stream.integer_time), step)


def _fix(reach: Sequence[Token]) -> str:
    length = " ".join(t.text for t in reach) or "<length>"
    return (
        f"say how often there is an answer: [RANGE {length} SLIDE <length>], "
        f"or [TUMBLING {length}] for windows that do not overlap"
    )


def _by_arrival(source: Text, slide: Sequence[Token], stream: Stream) -> tuple[Sequence[Token], int | None]:
    """The slide without BY ARRIVAL, and their offset, if any; only a sequence defines an order of arrival."""
    if [token.text.upper() for token in slide[-2:]] != ["BY", "ARRIVAL"]:
        return slide, None
    place = slide[-2].start
    if stream.sequence is None:
        raise source.unsupported(
            place,
            f"In which order rows of {stream.name} have arrived is not known, since those of one step come "
            "in any order",
            "declare the column that numbers them: SEQUENCE BY col in CREATE STREAM, or sequence= in Python; "
            "or leave out BY ARRIVAL,"
            " and rows are counted by event time",
        )
    return slide[:-2], place


def _rows(source: Text, tokens: Sequence[Token]) -> int | None:
    """The number in `10 ROWS`; None if the tokens are not a number of rows."""
    if len(tokens) != 2 or tokens[1].text.upper() not in ("ROW", "ROWS"):
        return None
    number = tokens[0]
    count = whole_number(number.text)
    if number.token_type != TokenType.NUMBER or count is None or not 1 <= count <= LATEST:
        raise source.error(number.start, "Expected a whole number of rows, at least one", "as in SLIDE 10 ROWS")
    return count


def _columns(cursor: Cursor, stream: Stream) -> list[str]:
    found: list[str] = []
    while True:
        place = cursor.offset
        column = column_of(cursor, stream)
        if column.name in found:
            raise cursor.source.error(place, f"Column {column.name} is given twice")
        found.append(column.name)
        if not cursor.accept(","):
            return found


def _once(source: Text, place: int, before: _Value | None, value: _Value) -> _Value:
    if before is not None:
        raise source.error(place, "This is given twice")
    return value
