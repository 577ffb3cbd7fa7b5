"""A second opinion: the same answers by DuckDB, as one plain join with every time condition written out pairwise.

A row leaves a window that counts rows at the time of the n-th row behind it, which a window function over the whole
stream finds.

It shares no code with the reference: expressions go to DuckDB as SQL text, which for the subset that both
understand means the same as in Spark (NaN equals itself and is largest, -0.0 equals 0.0, strings by bytes).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise

import duckdb
import pyarrow as pa

from penstock.columns.types import arrow_type
from penstock.model import Branch, Query, Ref, Role, Rows, Stream, Tumbling, Window
from penstock.model.expression import PSEUDO_ROLE

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (DuckDB's TIMESTAMP has no zone)


def naive_type(name: str) -> pa.DataType:
    """The Arrow type of values as they are given here: all times are without a zone."""
    return pa.timestamp("us") if name == "timestamp" else arrow_type(name)


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One database for the whole test run: a new one takes longer than a query.

    DuckDB would rewrite `x + 1 > 0` to `x > -1`, which cannot overflow any more; Spark does not.
    """
    return duckdb.connect(config={"threads": 1, "disabled_optimizers": "expression_rewriter"})


def duckdb_results(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[dict[str, object]]]
) -> list[tuple[object, ...]]:
    """The bag of a query's answer over the accepted rows of its streams."""
    for name in {name for role in query.roles for name in role.streams}:
        connection().register(name, _table(streams[name], rows.get(name, ())))
    found = connection().execute(duckdb_sql(query, streams)).fetchall()
    return [tuple(_as_micros(value) for value in row) for row in found]


def duckdb_sql(query: Query, streams: Mapping[str, Stream]) -> str:
    """The query for DuckDB: for all i != j, ts_j - ts_i < w_i or the same piece of time, and each band on its pair."""
    times = [
        _micros(f'r{i}."{_event_time(role, streams[role.stream])}"', streams[role.stream])
        for i, role in enumerate(query.roles)
    ]

    def name(ref: Ref) -> str:
        return f"greatest({', '.join(times)})" if ref.role == PSEUDO_ROLE else f'r{ref.role}."{ref.column}"'

    conditions = [f"{time} IS NOT NULL" for time in times]
    for key in query.keys:
        ends = [end.sql(name) for end in key if end is not None]
        conditions += [f"({one}) = ({other})" for one, other in pairwise(ends)]
    for i, role in enumerate(query.roles):
        match role.window:
            case Window(int() as length):
                conditions += [f"{later} - {times[i]} < {length}" for j, later in enumerate(times) if j != i]
            case Tumbling(length, origin):
                starts = [f"{t} - (({t} - {origin}) % {length} + {length}) % {length}" for t in times]
                conditions += [f"{starts[i]} = {start}" for start in starts[i + 1 :]]
            case Rows():
                conditions += [f"(r{i}._out IS NULL OR {time} < r{i}._out)" for time in times]
    conditions += [f"{times[b.later]} - {times[b.earlier]} <= {b.upper}" for b in query.bands]
    # An expression that raises counts as NULL as a whole.
    conditions += [f"TRY({e.sql(name)})" for e in (*query.predicates, *query.residuals)]
    items = ", ".join(f"TRY({item.expression.sql(name)})" for item in query.items)
    sources = ", ".join(f"{_source(role, streams[role.stream])} AS r{i}" for i, role in enumerate(query.roles))
    return f"SELECT {items} FROM {sources} WHERE {' AND '.join(conditions)}"


def _source(role: Role, stream: Stream) -> str:
    """The rows of a role; for a window of n rows with the time of the n-th row after each, which pushes it out."""
    if role.branches:
        pairs = zip(role.streams, role.branches, strict=True)
        return f"({' UNION ALL '.join(_select(name, branch) for name, branch in pairs)})"
    if role.union:
        columns = ", ".join(f'"{c.name}"' for c in stream.columns)
        selects = [f'SELECT {columns} FROM "{name}"' for name in role.streams]
        return f"({' UNION ALL '.join(selects)})"
    if not isinstance(role.window, Rows):
        return f'"{stream.name}"'
    columns = [stream.event_time, *([stream.sequence] if stream.sequence else []), *(c.name for c in stream.columns)]
    order = ", ".join(f'"{c}" NULLS FIRST' for c in columns)
    partition = ", ".join(f'"{c}"' for c in role.window.partition)
    time = _micros(f'"{stream.event_time}"', stream)
    out = (
        f"lead({time}, {role.window.count}) OVER ({f'PARTITION BY {partition} ' if partition else ''}ORDER BY {order})"
    )
    return f'(SELECT *, {out} AS _out FROM "{stream.name}" WHERE "{stream.event_time}" IS NOT NULL)'


def _select(name: str, branch: Branch) -> str:
    def column(ref: Ref) -> str:
        return f'"{ref.column}"'

    items = ", ".join(f'TRY({i.expression.sql(column)}) AS "{i.name}"' for i in branch.columns)
    where = " AND ".join(["TRUE", *(f"TRY({p.sql(column)})" for p in branch.predicates)])
    return f'SELECT {items} FROM "{name}" WHERE {where}'


def _event_time(role: Role, stream: Stream) -> str:
    """The column of a role that holds its event time."""
    if not role.branches:
        return stream.event_time
    return next(str(i.name) for i in role.branches[0].columns if i.expression.parts == (Ref(0, stream.event_time),))


def bag(rows: Iterable[Sequence[object]]) -> Counter[tuple[object, ...]]:
    """Rows with their counts, so that two answers compare; one NaN is like another."""
    return Counter(tuple(math.nan if v != v else v for v in row) for row in rows)  # noqa: PLR0124


def _table(stream: Stream, rows: Sequence[dict[str, object]]) -> pa.Table:
    return pa.table({c.name: pa.array([row[c.name] for row in rows], naive_type(c.type)) for c in stream.columns})


def _micros(column: str, stream: Stream) -> str:
    return f"{column}::BIGINT" if stream.integer_time else f"epoch_us({column})"


def _as_micros(value: object) -> object:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
