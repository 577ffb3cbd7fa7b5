"""The results of a registered query as a stream that another query reads.

Only columns whose progress is known may be its time: result time, the end of a window, and the event times of the query's own
streams. Windows of rows have no such end: the last of each partition, which the end of input cuts short, may end with a row that progress has long passed.
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
    """What a query gives to those that read it: its columns, those of them whose progress is known, and which of these is its result time."""

    columns: tuple[Column, ...]
    times: tuple[str, ...]
    usual: str | None = None


Streams = Mapping[str, Stream]


def results_of(query: Query, streams: Streams, queries: Mapping[str, Results] | None = None) -> Results:
    """The results of a query over streams, and over queries that are registered already.

    A column that is not one of a stream's as it stands has no type here; only Spark knows it.
    """
    known = {i: _stream(role, streams, queries or {}) for i, role in enumerate(query.roles)}
    named = [(item.name, item.expression.parts) for item in query.items if item.name is not None]
    times = {name: parts for name, parts in named if _is_time(query, parts, known)}
    results = [(Ref(PSEUDO_ROLE, RESULT_TIME),), (Ref(PSEUDO_ROLE, WINDOW_END),)]
    # The time of a single role is that of the result, whatever it is called.
    alone = len(query.roles) == 1 and query.aggregation is None
    usual = next((name for name, parts in times.items() if parts in results or alone), None)
    columns = tuple(Column(name, _type(query, parts, known)) for name, parts in named)
    return Results(columns, tuple(times), usual)


def query_stream(source: Text, start: int, name: str, results: Results, on: str | None) -> Stream:
    """The results of a query with column `on` as their event time; without one, what it selects as its result time."""
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
    """What a role reads; of a query only that matters here which column is its time."""
    found = queries.get(role.stream)
    stream = streams.get(role.stream)
    if stream is None and found is not None:
        stream = Stream(role.stream, found.columns, role.on or found.usual or "", delay=0)
    return _selected(role.branches[0], stream) if role.branches and stream is not None else stream


def _selected(branch: Branch, stream: Stream) -> Stream:
    """What a union of SELECTs is, by its first: its columns, of which only those that stand in the stream have a type here."""
    times, columns = [], []
    for item in branch.columns:
        bare = item.expression.parts[0] if len(item.expression.parts) == 1 else None
        declared = stream.column(bare.column) if isinstance(bare, Ref) else None
        columns.append(Column(str(item.name), "" if declared is None else declared.type))
        if declared is not None and declared.name == stream.event_time:
            times.append(columns[-1].name)
    return Stream(stream.name, tuple(columns), times[0] if times else "", stream.delay)


def _is_time(query: Query, parts: tuple[str | Ref, ...], known: Mapping[int, Stream | None]) -> bool:
    """Whether an item is a time that progress is known for."""
    match _origin(query, parts):
        case (Ref(role, column),) if role == PSEUDO_ROLE:
            by_rows = query.aggregation is not None and isinstance(query.aggregation.window, SlidingRows)
            return column in (RESULT_TIME, WINDOW_END) and not by_rows
        case (Ref(role, column),) if role >= 0 and query.aggregation is None:
            stream = known[role]
            return stream is not None and column == stream.event_time
    return False


def _type(query: Query, parts: tuple[str | Ref, ...], known: Mapping[int, Stream | None]) -> str:
    """The type of a bare column; empty where it is not plain."""
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
    """A group is what it groups by."""
    match parts:
        case (Ref(role, column),) if role == GROUP_ROLE and query.aggregation is not None:
            return query.aggregation.groups[int(column[1:])].expression.parts
    return parts
