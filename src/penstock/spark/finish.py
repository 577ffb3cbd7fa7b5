"""Finish what only Spark can evaluate: cross-stream residuals, and select items that may raise, without a term.

Between the probe and the write, rows pass through one JVM projection; a second Python stage of the same job clears the bits of
queries whose residual is not TRUE and writes the results. An expression that may raise is evaluated whole under TryEval,
only on rows that serve its query, and counted where it raised.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.kernels.probe import word_count
from penstock.model import Expression, Ref
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.network import Join, Member, Network, result_column
from penstock.spark.ingest import try_eval
from penstock.step.handover import finished_joins, handed_columns, prefixed
from penstock.step.report import Report
from penstock.step.results import ResultWriter, computed_column, has_bit
from penstock.step.task import Plan, Task, report_batch, result_writer


def finish_projection(handed: DataFrame, network: Network) -> DataFrame:
    """Add, for each query that needs it, the truth of its residuals and its computed items (each with a raised mark)."""
    added: list[Column] = []
    for join in finished_joins(network):
        for member in join.members:
            residual = _residual(member) if member in join.leads else None
            if residual is not None:
                added.append(_evaluated(network, join, member, residual).alias(_residual_column(join, member)))
            for item, expression in member.computed:
                name = prefixed(join, computed_column(member, item))
                added.append(_evaluated(network, join, member, expression).alias(name))
    return handed.select("*", *added)


def finish_task(batches: Iterator[pa.RecordBatch], plan: Plan, task: Task) -> Iterator[pa.RecordBatch]:
    """The second Python stage: keep rows that still serve a query, write them, and complete the report."""
    network = plan.network
    joins = finished_joins(network)
    writers = {join.index: result_writer(plan, task, join) for join in joins}
    errors: dict[int, int] = {}
    report: Report | None = None
    for batch in batches:
        for join in joins:
            _finish_batch(join, network, batch, writers[join.index], errors)
        for text in batch.column("report").drop_null().to_pylist():
            report = Report.decode(text)
    if report is None:
        return
    for writer in writers.values():
        for file in writer.close():
            report.add_file(file)
        report.refused.update(writer.refused)
    for query, count in errors.items():
        report.query(query).errors += count
    yield report_batch(report)


def _finish_batch(
    join: Join, network: Network, batch: pa.RecordBatch, writer: ResultWriter, errors: dict[int, int]
) -> None:
    own = batch.filter(pc.is_valid(batch.column(prefixed(join, "_time"))))
    if own.num_rows == 0:
        return
    words = word_count(len(join.leads))
    bits = np.column_stack(
        [own.column(prefixed(join, f"_bits{w}")).to_numpy(zero_copy_only=False) for w in range(words)]
    ).view(np.uint64)
    columns: dict[str, pa.Array] = {}
    for member in join.members:
        serves = has_bit(bits, member.bit)
        raised = np.zeros(own.num_rows, dtype=np.bool_)
        if member in join.leads and _residual(member) is not None:
            evaluated = own.column(_residual_column(join, member))
            raised |= serves & pc.is_null(evaluated).to_numpy(zero_copy_only=False)
            true = pc.fill_null(pc.struct_field(evaluated, "v"), False).to_numpy(zero_copy_only=False)
            bits[serves & ~true, member.bit // 64] &= ~np.uint64(1 << (member.bit % 64))
            serves &= true
        for item, _ in member.computed:
            evaluated = own.column(prefixed(join, computed_column(member, item)))
            raised |= serves & pc.is_null(evaluated).to_numpy(zero_copy_only=False)
            columns[computed_column(member, item)] = pc.struct_field(evaluated, "v")
        if raised.any():
            errors[member.id] = errors.get(member.id, 0) + int(raised.sum())
    alive = np.flatnonzero(bits.any(axis=1))
    if len(alive) == 0:
        return
    for column in handed_columns(network, join):
        columns[column] = own.column(prefixed(join, column))
    for word in range(words):
        columns[f"_bits{word}"] = pa.array(bits[:, word].copy().view(np.int64))
    table = pa.table(columns).take(pa.array(alive)).combine_chunks()
    writer.write(table, bits[alive])


def _residual(member: Member) -> Expression | None:
    """The residuals that Spark evaluates, as one condition; those that cannot raise come first."""
    wanted = sorted((r for r in member.residuals if r.term is None), key=lambda r: not r.total)
    if not wanted:
        return None
    parts: list[str | Ref] = []
    for residual in wanted:
        parts += [" AND " if parts else "", "(", *residual.parts, ")"]
    return Expression(tuple(parts), None, all(r.total for r in wanted))


def _evaluated(network: Network, join: Join, member: Member, expression: Expression) -> Column:
    """A struct with the value, NULL where evaluating it raised; only for rows that serve the query."""

    def name(ref: Ref) -> str:
        if ref.role == PSEUDO_ROLE:
            first = network.streams[network.tables[join.tables[0]].stream]
            time = prefixed(join, "_time")
            return time if first.integer_time else f"timestamp_micros({time})"
        stream = network.streams[network.tables[join.tables[ref.role]].stream]
        return prefixed(join, result_column(ref.role, stream, ref.column))

    word = prefixed(join, f"_bits{member.bit // 64}")
    serves = f"shiftright({word}, {member.bit % 64}) & 1 = 1"
    value = F.expr(f"named_struct('v', CASE WHEN {serves} THEN {expression.sql(name)} END)")
    return value if expression.total else try_eval(value)


def _residual_column(join: Join, member: Member) -> str:
    return f"j{join.index}_true{member.bit}"
