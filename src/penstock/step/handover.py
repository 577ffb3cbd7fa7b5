"""The rows that a task hands to Spark for finishing: one flat layout for all joins of the network.

Joins with residual predicates or select items that need Spark pass through the JVM between the probe and the write.
Their columns are side by side (prefixed by the join), and the task's report is one more row.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.kernels.probe import word_count
from penstock.planner.join import Join, result_column
from penstock.planner.network import Network
from penstock.step.report import Report


def finished_joins(network: Network) -> list[Join]:
    return [j for j in network.joins if j.finished_by_spark]


def handed_columns(network: Network, join: Join) -> dict[str, str]:
    """Result columns of a join with their Spark types, as handed over (without the join's prefix)."""
    columns = {"_time": "bigint", "_step": "bigint"}
    columns |= {f"_bits{w}": "bigint" for w in range(word_count(len(join.leads)))}
    for position, names in enumerate(join.columns):
        stream = network.streams[network.tables[join.tables[position]].stream]
        for name in names:
            declared = stream.column(name)
            assert declared is not None
            columns[result_column(position, stream, name)] = declared.type
    return columns


def prefixed(join: Join, column: str) -> str:
    return f"j{join.index}{column}" if column.startswith("_") else f"j{join.index}_{column}"


def handover_schema(network: Network) -> str:
    """Spark's DDL of the handed rows."""
    fields = ["report binary"]
    for join in finished_joins(network):
        fields += [f"{prefixed(join, c)} {t}" for c, t in handed_columns(network, join).items()]
    return ", ".join(fields)


def candidates(join: Join, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Result rows of one join in the common layout."""
    for batch in table.to_batches():
        own = {prefixed(join, f.name): batch.column(i) for i, f in enumerate(batch.schema)}
        arrays = [
            own[field.name].cast(field.type) if field.name in own else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def report_row(report: Report, schema: pa.Schema) -> pa.RecordBatch:
    """The report as the last row in the common layout."""
    encoded = pa.array([report.encode()], pa.binary())
    arrays = [encoded if field.name == "report" else pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
