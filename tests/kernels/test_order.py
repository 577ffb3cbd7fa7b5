"""The order of rows by which windows count them, for every type that has an order."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.ranks import rank
from penstock.model import Column, Stream
from penstock.model.time import FOREVER
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from penstock.state.run import Rows

NAN = float("nan")
ASCENDING = {
    "boolean": (pa.bool_(), [None, False, True]),
    "tinyint": (pa.int8(), [None, -128, 0, 127]),
    "bigint": (pa.int64(), [None, -(2**63), 0, 2**63 - 1]),
    "float": (pa.float32(), [None, float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), NAN]),
    "double": (pa.float64(), [None, float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), NAN]),
    "string": (pa.string(), [None, "", "B", "a", "é", "\uffff", "\U0001f600"]),
    "binary": (pa.binary(), [None, b"", b"a", b"\xff"]),
    "decimal(10,2)": (pa.decimal128(10, 2), [None, Decimal("-1.50"), Decimal("0.00"), Decimal("10.25")]),
    "date": (pa.date32(), [None, date(1969, 12, 31), date(1970, 1, 2)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [None, datetime(1969, 12, 31), datetime(1970, 1, 2)]),  # noqa: DTZ001
}


def outs(kind: str, window: str, values: list[object], times: list[int]) -> list[int]:
    """When each row leaves the window; the rows lie in two runs, and the second lacks nothing."""
    streams = {"a": Stream("a", (Column("ts", "bigint"), Column("c", kind)), "ts", 0)}
    query = parse_query(f"SELECT a.ts FROM a [{window}] AS a", streams)
    table = build_network([StandingQuery(1, "q", query)], streams).tables[0]
    every = tuple(entry.id for entry in table.entries)
    runs = []
    for part in (slice(0, 2), slice(2, None)):
        time = np.array(times[part], dtype=np.int64)
        bits = np.zeros(len(time), dtype=np.int32)
        columns = {"c": pa.array(values[part], ASCENDING[kind][0])}
        runs.append(Rows(np.zeros_like(time), time, bits, (every,), columns))
    return [out for rows in rank(table, runs) for out in rows.columns[table.counted[0].out].to_pylist()]


@pytest.mark.parametrize("kind", ASCENDING)
def test_rows_of_one_time_are_ordered_by_their_values(kind: str) -> None:
    values: list[object] = ASCENDING[kind][1]
    count = len(values)
    for shift in range(count):
        turned = [*values[shift:], *values[:shift]]
        inside = [out == FOREVER for out in outs(kind, "ROWS 2", turned, [7] * count)]
        assert sorted(np.flatnonzero(inside).tolist()) == sorted((count - n - shift) % count for n in (1, 2))


def test_each_partition_counts_for_itself_and_equal_values_are_one() -> None:
    values = [0.0, NAN, -0.0, None, NAN, None, 0.0]
    assert outs("double", "ROWS 1 PARTITION BY c", list(values), [1, 2, 3, 4, 5, 6, 7]) == [
        3, 5, 7, 6, FOREVER, FOREVER, FOREVER,
    ]  # fmt: skip
