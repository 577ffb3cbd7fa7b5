"""The second stage, if only Spark can evaluate residuals or select items: rows that still serve a query are written.

Between the probe and the write such rows leave the task, and return with the truth of residuals and the computed items,
each NULL where evaluation raised, which is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.probe import word_count
from penstock.model import Expression, Ref
from penstock.planner.join import Join, Member
from penstock.planner.network import Network
from penstock.results.layout import computed_column
from penstock.step.frugal import frugal
from penstock.step.handover import finished_joins, handed_columns, prefixed
from penstock.step.report import Report
from penstock.step.results import ResultWriter, has_bit
from penstock.step.task import Plan, Task, report_batch, result_writer


def finish_task(batches: Iterator[pa.RecordBatch], plan: Plan, task: Task) -> Iterator[pa.RecordBatch]:
    """The second Python stage: keep rows that still serve a query, write them, and complete the report."""
    with frugal(task.limits):
        yield from _finished(batches, plan, task)


def _finished(batches: Iterator[pa.RecordBatch], plan: Plan, task: Task) -> Iterator[pa.RecordBatch]:
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
        if member in join.leads and residual_of(member) is not None:
            evaluated = own.column(residual_column(join, member))
            raised |= serves & pc.is_null(evaluated).to_numpy(zero_copy_only=False)
            true = pc.fill_null(pc.struct_field(evaluated, "v"), False).to_numpy(zero_copy_only=False)
            bits[serves & ~true, member.bit // 64] &= ~np.uint64(1 << (member.bit % 64))
            serves &= true
        for item, _ in member.computed:
            evaluated = own.column(prefixed(join, computed_column(member.id, item)))
            raised |= serves & pc.is_null(evaluated).to_numpy(zero_copy_only=False)
            columns[computed_column(member.id, item)] = pc.struct_field(evaluated, "v")
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


def residual_of(member: Member) -> Expression | None:
    """The residuals that Spark evaluates, as one condition; those that cannot raise come first."""
    wanted = sorted((r for r in member.residuals if r.term is None), key=lambda r: not r.total)
    if not wanted:
        return None
    parts: list[str | Ref] = []
    for residual in wanted:
        parts += [" AND " if parts else "", "(", *residual.parts, ")"]
    return Expression(tuple(parts), None, all(r.total for r in wanted))


def residual_column(join: Join, member: Member) -> str:
    return f"j{join.index}_true{member.bit}"
