"""Rows from a test as the batches that a source hands to mappers: tagged, with what Spark adds to each row.

Values are those of the reference: times are whole microseconds. What only Spark can compute is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import whole_numbers
from penstock.columns.terms.values import MICROS_PER_DAY
from penstock.columns.text import rows_as_text
from penstock.columns.types import arrow_type
from penstock.columns.verdict import MALFORMED_MARK, MARK, event_time
from penstock.errors import RegistrationError
from penstock.model import Stream
from penstock.model.time import EARLIEST, LATEST
from penstock.planner.network import Network
from penstock.reference import Row
from penstock.state.progress import EVERYTHING
from penstock.step.layout import Layout


def check_computable(network: Network) -> None:
    """Refuse a network that needs Spark, and say what for."""
    for value in network.derived:
        if value.term is None:
            text = "".join(part if isinstance(part, str) else part.column for part in value.parts)
            raise RegistrationError(f"stream {value.stream!r}: only Spark can compute {text}")
    for table in network.tables:
        if table.hashed is None:
            raise RegistrationError(f"stream {table.stream!r}: only Spark can compute its key in {table.name!r}")
    for join in network.joins:
        for member in join.members:
            if member.finished_by_spark:
                raise RegistrationError(f"query {member.name!r}: only Spark can compute what it selects")


def table_of(stream: Stream, rows: Sequence[Row]) -> pa.Table:
    """The declared columns of rows."""
    return pa.table({c.name: _column([row[c.name] for row in rows], arrow_type(c.type)) for c in stream.columns})


def tagged(stream: Stream, rows: Sequence[Row], layout: Layout) -> pa.Table:
    """Rows of a stream as rows of all streams: its number, times, slots, and each whole row as text."""
    whole = table_of(stream, rows)
    found = {"_stream": pa.array(np.full(len(rows), layout.order.index(stream.name), dtype=np.int32))}
    times = event_time(_chunk(whole, stream.event_time)) if rows else pa.nulls(0, pa.int64())
    if layout.marked:
        marks, bounds, patterns = _marks(stream, rows)
        times = pc.if_else(pc.is_null(marks), times, bounds)
        found |= {"_mark": marks, "_pattern": patterns}
    if layout.placed:
        placed = stream.delay_rows is not None and stream.sequence is not None
        found["_seq"] = event_time(_chunk(whole, str(stream.sequence))) if placed else pa.nulls(len(rows), pa.int64())
    found |= {"_ts": times, "_side": rows_as_text(whole)}
    return pa.table(found | {slot: whole.column(column) for column, slot in layout.slots[stream.name].items()})


def no_rows() -> pa.RecordBatch:
    """A batch without rows, for a mapper that reads pieces itself."""
    return pa.RecordBatch.from_pydict({"_stream": pa.array([], pa.int32()), "_ts": pa.array([], pa.int64())})


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_date32(kind):
        days = [value // MICROS_PER_DAY if isinstance(value, int) else value for value in values]
        return pa.array(days, pa.int32()).view(kind)
    return pa.array(values, kind)


def _chunk(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _marks(stream: Stream, rows: Sequence[Row]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Which rows are punctuations, the bound of each, and its pattern; none may come from elsewhere."""
    if stream.punctuation is None:
        if stream.punctuated:
            raise RegistrationError(
                f"stream {stream.name!r}: its punctuations come from a source, which only Spark reads"
            )
        none = pa.nulls(len(rows), pa.int64())
        return none.cast(pa.int32()), none, none.cast(pa.string())
    column = stream.column(stream.punctuation)
    assert column is not None
    said = _column([row[column.name] for row in rows], arrow_type(column.type))
    bounds = event_time(said)
    values = whole_numbers(bounds)
    usable = (values >= EARLIEST) & (values <= LATEST)
    marks = pa.array(np.where(usable, MARK, MALFORMED_MARK).astype(np.int32), mask=said.is_null().to_numpy(False))
    fixed = [{c.name: row[c.name] for c in stream.patterns if row[c.name] is not None} for row in rows]
    patterns = [json.dumps(own, separators=(",", ":"), ensure_ascii=False) if own else EVERYTHING for own in fixed]
    return marks, bounds, pa.array(patterns, pa.string())
