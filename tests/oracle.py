"""A second opinion: the same answers by DuckDB, as one plain join with every time condition written out pairwise.

It shares no code with the reference: expressions go to DuckDB as SQL text, which for the subset that both
understand means the same as in Spark (NaN equals itself and is largest, -0.0 equals 0.0, strings by bytes).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache

import duckdb
import pyarrow as pa

from penstock.model import Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE

ARROW_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
}
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (DuckDB's TIMESTAMP has no zone)


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
    for name in {role.stream for role in query.roles}:
        connection().register(name, _table(streams[name], rows.get(name, ())))
    found = connection().execute(duckdb_sql(query, streams)).fetchall()
    return [tuple(_as_micros(value) for value in row) for row in found]


def duckdb_sql(query: Query, streams: Mapping[str, Stream]) -> str:
    """The query as DuckDB text: for all i != j, ts_j - ts_i < w_i, and each band on its pair."""
    times = [
        _micros(f'r{i}."{streams[role.stream].event_time}"', streams[role.stream]) for i, role in enumerate(query.roles)
    ]

    def name(ref: Ref) -> str:
        return f"greatest({', '.join(times)})" if ref.role == PSEUDO_ROLE else f'r{ref.role}."{ref.column}"'

    conditions = [f"{time} IS NOT NULL" for time in times]
    for part in query.keys:
        conditions += [f"({part[0].sql(name)}) = ({other.sql(name)})" for other in part[1:]]
    for i, role in enumerate(query.roles):
        if role.window is not None and role.window.length is not None:
            conditions += [f"{later} - {times[i]} < {role.window.length}" for j, later in enumerate(times) if j != i]
    conditions += [f"{times[b.later]} - {times[b.earlier]} <= {b.upper}" for b in query.bands]
    # An expression that raises counts as NULL as a whole.
    conditions += [f"TRY({e.sql(name)})" for e in (*query.predicates, *query.residuals)]
    items = ", ".join(f"TRY({item.expression.sql(name)})" for item in query.items)
    sources = ", ".join(f'"{role.stream}" AS r{i}' for i, role in enumerate(query.roles))
    return f"SELECT {items} FROM {sources} WHERE {' AND '.join(conditions)}"


def bag(rows: Iterable[Sequence[object]]) -> Counter[tuple[object, ...]]:
    """Rows with their counts, so that two answers compare; one NaN is like another."""
    return Counter(tuple(math.nan if v != v else v for v in row) for row in rows)  # noqa: PLR0124


def _table(stream: Stream, rows: Sequence[dict[str, object]]) -> pa.Table:
    return pa.table({c.name: pa.array([row[c.name] for row in rows], ARROW_TYPES[c.type]) for c in stream.columns})


def _micros(column: str, stream: Stream) -> str:
    return f"{column}::BIGINT" if stream.integer_time else f"epoch_us({column})"


def _as_micros(value: object) -> object:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
