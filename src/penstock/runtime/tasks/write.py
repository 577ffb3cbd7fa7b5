"""Result rows of a join as its result table stores them, and the Parquet file of one task and step that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.kernels.compare import Evaluation
from penstock.kernels.matches import Matches, lookup
from penstock.kernels.probe import Words
from penstock.kernels.walk import Work
from penstock.model.time import FOREVER
from penstock.planner.network import Join, Member, Network, result_column
from penstock.runtime.tasks.task import Report, Task
from penstock.state.store import file_name

ROW_GROUP = 1 << 17  # rows
_SAMPLE = 1 << 13  # rows


class ResultWriter:
    """Writes the result rows of one join to one Parquet file, opened at the first row."""

    def __init__(self, network: Network, join: Join, task: Task) -> None:
        self.network, self.join, self.task = network, join, task
        self.name = file_name("results", task.step, "parquet")
        self.writer: pq.ParquetWriter | None = None
        self.file: Any = None
        self.waiting: list[pa.Table] = []
        self.rows = 0
        self.counts = np.zeros(len(join.leads), dtype=np.int64)
        self.min_time, self.max_time = FOREVER, -FOREVER

    def write(self, table: pa.Table, bits: Words) -> None:
        """Take rows; small pieces are gathered to one row group."""
        self.waiting.append(table)
        self.rows += len(table)
        for member in self.join.leads:
            self.counts[member.bit] += int(has_bit(bits, member.bit).sum())
        times = table.column("_time").combine_chunks().to_numpy()
        self.min_time, self.max_time = min(self.min_time, int(times.min())), max(self.max_time, int(times.max()))
        if sum(len(t) for t in self.waiting) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables([t.cast(self.waiting[0].schema) for t in self.waiting])
        self.waiting = []
        if self.writer is None:
            self.file = self.task.store.create(self.name)
            stream = self.file.__enter__()
            encoded = [
                f.name for f in table.schema if f.name.startswith(("_bits", "_step")) or pa.types.is_string(f.type)
            ]
            self.writer = pq.ParquetWriter(
                stream,
                table.schema,
                compression=compression_of(table),
                use_dictionary=encoded,
                write_page_checksum=True,
            )
        self.writer.write_table(table.cast(self.writer.schema))

    def close(self, report: Report) -> None:
        """End the file and enter it into the report."""
        if self.waiting:
            self._flush()
        if self.writer is None:
            return
        self.writer.close()
        self.file.__exit__(None, None, None)
        counts = [(m.id, int(self.counts[m.bit])) for m in self.join.members if self.counts[m.bit]]
        report.add_results(
            counts, name=self.name, join=self.join.name, step=self.task.step, version=self.network.version,
            rows=self.rows, bytes=self.task.store.size(self.name), min_time=self.min_time, max_time=self.max_time,
            kind=self.join.kind,
        )  # fmt: skip


def compression_of(table: pa.Table) -> dict[str, str]:
    """The codec of each column: it takes longer than all the rest of writing, so it must at least halve what is written.

    Small files, which are merged and compressed later, go without.
    """
    found = {}
    for field in table.schema:
        pays = len(table) >= ROW_GROUP
        if pays and pa.types.is_primitive(field.type) and field.type.bit_width >= 8:
            start = table.column(field.name).slice(0, _SAMPLE).combine_chunks()
            whole = start if isinstance(start, pa.Array) else pa.concat_arrays(start.chunks)
            width = field.type.bit_width // 8
            values = whole.buffers()[1].slice(whole.offset * width, len(whole) * width)
            pays = 2 * pa.Codec("snappy").compress(values).size <= values.size
        found[field.name] = "snappy" if pays else "none"
    return found


def has_bit(bits: Words, bit: int) -> npt.NDArray[np.bool_]:
    return np.asarray((bits[:, bit // 64] >> np.uint64(bit % 64)) & np.uint64(1) == 1)


def result_table(
    network: Network,
    join: Join,
    matches: Matches,
    types: Mapping[str, Mapping[str, pa.DataType]],
    work: Work,
    step: int,
) -> pa.Table:
    """Result rows as the result table stores them: result time, bits, the columns of each position, computed items."""
    columns: dict[str, pa.Array] = {
        "_time": pa.array(matches.result_time),
        "_step": pa.array(np.full(len(matches), step, dtype=np.int64)),
    }
    for word in range(matches.bits.shape[1]):
        columns[f"_bits{word}"] = pa.array(matches.bits[:, word].view(np.int64))
    for position, names in enumerate(join.columns):
        stream = network.streams[network.tables[join.tables[position]].stream]
        for name in names:
            kind = types[stream.name][name]
            found = matches.column(position, name, kind if name == stream.event_time else None)
            # A run from before the column was wanted gives NULLs of no type.
            columns[result_column(position, stream, name)] = found.cast(kind) if pa.types.is_null(found.type) else found
    if not join.finished_by_spark:
        for member in join.members:
            columns |= _computed(network, join, member, matches, work)
    return pa.table(columns)


def _computed(network: Network, join: Join, member: Member, matches: Matches, work: Work) -> dict[str, pa.Array]:
    """The items of a query that may raise, over the rows that serve it."""
    if not member.computed:
        return {}
    index = np.flatnonzero(has_bit(matches.bits, member.bit))
    mostly = 2 * len(index) > len(matches)
    rows = (
        matches if mostly else matches.take(index if len(index) else np.zeros(1, dtype=np.int64))
    )  # one tells the type
    evaluation, columns = Evaluation(lookup(network, join, rows), len(rows)), {}
    for item, expression in member.computed:
        assert expression.term is not None
        found, raised = evaluation.values(expression.term)
        columns[computed_column(member, item)] = found if mostly else _spread(found, index, len(matches))
        work.errors[member.id] += int((raised & has_bit(rows.bits, member.bit)).sum())
    return columns


def _spread(values: pa.Array, index: npt.NDArray[np.int64], rows: int) -> pa.Array:
    """Values at those places of a column, NULL elsewhere."""
    place = np.full(rows, -1, dtype=np.int64)
    place[index] = np.arange(len(index))
    return values.take(pa.array(place, mask=place < 0))


def computed_column(member: Member, item: int) -> str:
    return f"x{member.id}_{item}"
