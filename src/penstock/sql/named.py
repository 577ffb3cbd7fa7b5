"""The results of a registered query as a stream that an aggregate can read.

Only columns whose progress is known may be its time: result time, the end of a window, and the event times of the query's own
streams. Windows of rows have no such end: the last of them, which the end of input cuts short, end where earlier ones did.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import did_you_mean
from penstock.model import Column, Query, Ref, SlidingRows, Stream
from penstock.model.expression import GROUP_ROLE, PSEUDO_ROLE, RESULT_TIME, WINDOW_END
from penstock.sql.position import Text


def query_stream(
    source: Text, start: int, name: str, query: Query, streams: Mapping[str, Stream], on: str | None
) -> Stream:
    """The results of `query` with column `on` as their event time; without one, what it selects as its result time."""
    columns = {i.name: _type(query, i.expression.parts, streams) for i in query.items if i.name is not None}
    times = {
        i.name: i.expression.parts
        for i in query.items
        if i.name is not None and _is_time(query, i.expression.parts, streams)
    }
    if on is None:
        results = [(Ref(PSEUDO_ROLE, RESULT_TIME),), (Ref(PSEUDO_ROLE, WINDOW_END),)]
        chosen = next((column for column, parts in times.items() if parts in results), None)
    else:
        chosen = next((column for column in times if column.lower() == on.lower()), None)
    if chosen is None:
        what = "selects no result_time" if on is None else f"gives no time {on}"
        hint = (
            did_you_mean(on, times)
            if on is not None and times
            else f"times whose progress is known: {', '.join(times) or 'none'}"
        )
        raise source.error(
            start,
            f"Query {name} {what}, so no window can follow it",
            hint or "select result_time in it, or name a column: ON <column>",
        )
    return Stream(name, tuple(Column(c, t) for c, t in columns.items()), chosen, delay=0)


def _is_time(query: Query, parts: tuple[str | Ref, ...], streams: Mapping[str, Stream]) -> bool:
    """Whether an item is a time that progress is known for."""
    match _origin(query, parts):
        case (Ref(role, column),) if role == PSEUDO_ROLE:
            by_rows = query.aggregation is not None and isinstance(query.aggregation.window, SlidingRows)
            return column in (RESULT_TIME, WINDOW_END) and not by_rows
        case (Ref(role, column),) if role >= 0 and query.aggregation is None:
            stream = streams.get(query.roles[role].stream)
            return stream is not None and column == stream.event_time
    return False


def _type(query: Query, parts: tuple[str | Ref, ...], streams: Mapping[str, Stream]) -> str:
    """The type of a bare column; empty where it is not plain."""
    match _origin(query, parts):
        case (Ref(role, _),) if role == PSEUDO_ROLE:
            stream = streams.get(query.roles[0].stream)
            declared = None if stream is None else stream.column(stream.event_time)
        case (Ref(role, column),) if role >= 0:
            stream = streams.get(query.roles[role].stream)
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
