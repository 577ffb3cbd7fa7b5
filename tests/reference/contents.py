"""The window join by contents: for each time T, the windows' rows at T, joined; only results whose newest row is of T.

A second definition beside the one of the reference, which asks of each combination of rows whether all of them count.
It shares with it only how expressions are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cmp_to_key
from itertools import groupby, product

from penstock.model import Query, Ref, Role, Rows, Stream, Tumbling, Window
from penstock.reference import Row, compare, holds, project
from penstock.reference.evaluate import value_of


def results_by_contents(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> list[tuple[object, ...]]:
    """The bag of a query's answer over the accepted rows of its streams."""
    used = [streams[role.stream] for role in query.roles]
    history = [[row for row in rows.get(s.name, ()) if row[s.event_time] is not None] for s in used]
    found = []
    for now in sorted({row[s.event_time] for s, each in zip(used, history, strict=True) for row in each}):
        held = [contents(role, s, each, now) for role, s, each in zip(query.roles, used, history, strict=True)]
        for combination in product(*held):
            times = [row[s.event_time] for row, s in zip(combination, used, strict=True)]
            if max(times) == now and joins(query, combination, times):
                found.append(project(query, streams, combination))
    return found


def contents(role: Role, stream: Stream, rows: Sequence[Row], now: int) -> list[Row]:
    """What a role's window holds at a time."""
    past = [row for row in rows if row[stream.event_time] <= now]
    match role.window:
        case Window(int() as length):
            return [row for row in past if row[stream.event_time] > now - length]
        case Tumbling(length, origin):
            return [row for row in past if row[stream.event_time] >= now - (now - origin) % length]
        case Rows(count, partition):
            names = [stream.event_time, *filter(None, [stream.sequence]), *(c.name for c in stream.columns)]
            # The last `count` of each partition: sorted by partition first, then by the order of the stream.
            ordered = sorted(past, key=lambda row: [_key(row[c]) for c in (*partition, *names)])
            parts = groupby(ordered, key=lambda row: [_key(row[c]) for c in partition])
            return [row for _, part in parts for row in list(part)[-count:]]
        case _:
            return past


def joins(query: Query, combination: Sequence[Row], times: Sequence[int]) -> bool:
    """Whether all conditions but the windows hold."""

    def lookup(ref: Ref) -> object:
        return combination[ref.role][ref.column]

    return (
        all(times[band.later] - times[band.earlier] <= band.upper for band in query.bands)
        and all(_all_equal([value_of(end, lookup) for end in key if end is not None]) for key in query.keys)
        and all(holds(condition, lookup) for condition in (*query.predicates, *query.residuals))
    )


def _all_equal(values: Sequence[object]) -> bool:
    return None not in values and all(compare(values[0], value) == 0 for value in values)


# NULL first.
_key = cmp_to_key(lambda x, y: (x is not None) - (y is not None) if x is None or y is None else compare(x, y))
