"""The results of a registered query as a stream that another query reads.

Only columns with known progress can be its event time: result time, the end of a window, and event times of the query's
own streams. Ends of row windows are excluded: the last window of each partition, which the end of the streams closes
early, may end with a row that progress has long passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import did_you_mean
from penstock.model import Branch, Column, Query, Ref, Role, SlidingRows, Stream
from penstock.model.expression import GROUP_ROLE, PSEUDO_ROLE, RESULT_TIME, WINDOW_END
from penstock.sql.position import Text


@dataclass(frozen=True)
class Results:
    """What a query offers its readers: its columns, those with known progress, and its result time."""

    columns: tuple[Column, ...]
    times: tuple[str, ...]
    usual: str | None = None


Streams = Mapping[str, Stream]


def results_of(query: Query, streams: Streams, queries: Mapping[str, Results] | None = None) -> Results:
    """The results of a query over streams and already registered queries.

    A column that is not a plain column of a stream has no type here; only Spark knows it.
    """
    known = {i: _stream(role, streams, queries or {}) for i, role in enumerate(query.roles)}
    named = [(item.name, item.expression.parts) for item in query.items if item.name is not None]
    times = {name: parts for name, parts in named if _is_time(query, parts, known)}
    results = [(Ref(PSEUDO_ROLE, RESULT_TIME),), (Ref(PSEUDO_ROLE, WINDOW_END),)]
    # The time of a single role is the result time, whatever its name.
    alone = len(query.roles) == 1 and query.aggregation is None
    usual = next((name for name, parts in times.items() if parts in results or alone), None)
    columns = tuple(Column(name, _type(query, parts, known)) for name, parts in named)
    return Results(columns, tuple(times), usual)


def query_stream(source: Text, start: int, name: str, results: Results, on: str | None) -> Stream:
    """The results of a query with column `on` as event time; by default the column that it selects as result time."""
    chosen = results.usual if on is None else next((c for c in results.times if c.lower() == on.lower()), None)
    if chosen is None:
        what = "selects no result_time" if on is None else f"gives no time {on}"
        hint = (
            did_you_mean(on, results.times)
            if on is not None and results.times
            else f"times whose progress is known: {', '.join(results.times) or 'none'}"
        )
        raise source.error(
            start,
            f"Query {name} {what}, so no window can follow it",
            hint or "select result_time in it, or name a column: ON <column>",
        )
    names = [column.name.lower() for column in results.columns]
    twice = next((c.name for c in results.columns if names.count(c.name.lower()) > 1), None)
    if twice is not None:
        raise source.error(
            start, f"Query {name} has two columns named {twice}, and who reads it must tell them apart", "use AS in it"
        )
    return Stream(name, results.columns, chosen, delay=0)


def _stream(role: Role, streams: Streams, queries: Mapping[str, Results]) -> Stream | None:
    """What a role reads; of a query only the time column is needed."""
    found = queries.get(role.stream)
    stream = streams.get(role.stream)
    if stream is None and found is not None:
        stream = Stream(role.stream, found.columns, role.on or found.usual or "", delay=0)
    return _selected(role.branches[0], stream) if role.branches and stream is not None else stream


def _selected(branch: Branch, stream: Stream) -> Stream:
    """A union of SELECTs, by its first one: its columns, with types only for plain columns of the stream."""
    times, columns = [], []
    for item in branch.columns:
        bare = item.expression.parts[0] if len(item.expression.parts) == 1 else None
        declared = stream.column(bare.column) if isinstance(bare, Ref) else None
        columns.append(Column(str(item.name), "" if declared is None else declared.type))
        if declared is not None and declared.name == stream.event_time:
            times.append(columns[-1].name)
    return Stream(stream.name, tuple(columns), times[0] if times else "", stream.delay)


def _is_time(query: Query, parts: tuple[str | Ref, ...], known: Mapping[int, Stream | None]) -> bool:
    """Whether an item is a time with known progress."""
    match _origin(query, parts):
        case (Ref(role, column),) if role == PSEUDO_ROLE:
            by_rows = query.aggregation is not None and isinstance(query.aggregation.window, SlidingRows)
            return column in (RESULT_TIME, WINDOW_END) and not by_rows
        case (Ref(role, column),) if role >= 0 and query.aggregation is None:
            stream = known[role]
            return stream is not None and column == stream.event_time
    return False


def _type(query: Query, parts: tuple[str | Ref, ...], known: Mapping[int, Stream | None]) -> str:
    """The type of a plain column; empty for other expressions."""
    match _origin(query, parts):
        case (Ref(role, _),) if role == PSEUDO_ROLE:
            stream = known[0]
            declared = None if stream is None else stream.column(stream.event_time)
        case (Ref(role, column),) if role >= 0:
            stream = known[role]
            declared = None if stream is None else stream.column(column)
        case _:
            declared = None
    return "" if declared is None else declared.type


def _origin(query: Query, parts: tuple[str | Ref, ...]) -> tuple[str | Ref, ...]:
    """A group is its grouping expression."""
    match parts:
        case (Ref(role, column),) if role == GROUP_ROLE and query.aggregation is not None:
            return query.aggregation.groups[int(column[1:])].expression.parts
    return parts
