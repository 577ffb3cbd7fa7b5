"""Stored results of window aggregates: one file per task and step.

All queries of an aggregate share it; a row has the bit of its query, and aggregates that several queries compute share
a column. A row may stand for several windows one slide apart, showing the first and their number. HAVING and select
items that need Spark are evaluated on read, when such rows are expanded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.aggregate.close import Closed
from penstock.kernels.aggregate.repeats import RUN, cut
from penstock.kernels.probe import word_count
from penstock.model import Landmark, PerRow, Sliding, SlidingRows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import Windowed
from penstock.planner.window_aggregate import WindowAggregate
from penstock.results.layout import FINAL, OWN, WINDOWS, measure_column
from penstock.state.result_files import ResultFile
from penstock.state.suspension import Suspension
from penstock.step.held import Held
from penstock.step.listed import MOST_LISTED, count_results, write_listed
from penstock.step.report import Report
from penstock.step.rows import ROW_GROUP, compression_of
from penstock.storage.parquet import write
from penstock.storage.store import file_name


def write_windows(aggregate: WindowAggregate, closed: Sequence[Closed], held: Held) -> None:
    """Write closed windows to one file, or to the own files of queries that have them, and add all to the report."""
    task, report, version = held.task, held.report, held.network.version
    members = {m.id: m for m in aggregate.members}
    windowed = {q.query: q for q in aggregate.plan.queries}
    tables, ends = [], []
    counts: Counter[int] = Counter()  # a query may close windows and show others early in the same step
    apart: set[int] = set()
    for found in closed:
        member = members[found.query]
        if found.refused is not None:
            report.refused[member.id] = Suspension(
                f"its results would be too many: {found.refused}; give it fewer windows (a longer SLIDE, a "
                "shorter RANGE), or leave out what "
                "needs each window by itself (LIMIT, flush=, HAVING over window_start and window_end)"
            )
            continue
        if found.errors and not found.early and member.id not in task.suspended:
            report.query(member.id).errors += found.errors
        rows, window = found.table, windowed[found.query].window
        if len(rows) and member.first > NEVER:
            if RUN in rows.column_names and isinstance(window, Sliding):
                rows = _starting(rows, window, member.first)
            begins = rows.column("window_end" if window is None else "window_start")  # a moment has no extent
            rows = rows.filter(pc.greater_equal(begins, member.first))
        if len(rows) == 0 or member.id in task.suspended:
            continue
        results = count_results(rows, window)
        listed = bool(member.listed) and results <= MOST_LISTED
        if (why := task.bound.passed(results if listed else len(rows), 0)) is not None:
            report.refused[member.id] = why
            continue
        if listed:
            own = write_listed(rows, window, member, task, held.listed[member.id])
            report.add_file(own.file(aggregate.name, version, [(member.id, results)], OWN))
            continue
        names = [measure_column(a) for a in windowed[found.query].aggregates]
        stored = _stored(rows, member.bit, len(members), aggregate.plan.groups, names, task.step)
        if member.every is not None:
            stored = stored.append_column(FINAL, pa.array(np.full(len(rows), not found.early)))
        if RUN in rows.column_names and isinstance(window, Sliding | Landmark):
            last = pc.add(rows.column("window_end"), pc.multiply(pc.subtract(rows.column(RUN), 1), window.slide))
            ends.append(pc.max(last).as_py())
            if results > len(rows):
                stored = stored.append_column(RUN, rows.column(RUN))
        tables.append(stored)
        counts[member.id] += results
        if _counted(windowed[found.query], member.id, rows, results, report):
            apart.add(member.id)
    if not tables:
        return
    table = pa.concat_tables(tables, promote_options="default")
    times = pc.min_max(table.column("_time")).as_py()
    name = file_name("results", task.step, "parquet")
    encoded = [f.name for f in table.schema if f.name.startswith(("_", "g")) or pa.types.is_string(f.type)]
    options = {"compression": compression_of(table), "use_dictionary": encoded, "row_group_size": ROW_GROUP}
    size = write(task.store, name, table, **options)
    entry = ResultFile(
        name, aggregate.name, task.step, version, len(table), size, times["min"],
        max([times["max"], *ends]), tuple(counts.items()), WINDOWS,
    )  # fmt: skip
    report.add_file(entry, apart)


def _counted(query: Windowed, number: int, rows: pa.Table, results: int, report: Report) -> bool:
    """Count rows of a query that HAVING or LIMIT may still reduce on read; False if all are results."""
    if (query.having is not None and query.having.term is None) or (query.top is not None and not query.cut):
        report.query(number).undecided += results
        return True
    if query.top is None or isinstance(query.window, SlidingRows | PerRow):
        return False
    ends, kept = np.unique(rows.column("window_end").to_numpy(), return_counts=True)
    report.lead(number, query.top.count, ends.tolist(), kept.tolist())
    return True


def _starting(rows: pa.Table, window: Sliding, first: int) -> pa.Table:
    """Rows without their windows that start before a time."""
    if window.origin is not None and window.origin >= first:
        return rows
    return cut(rows, window, first + window.range, FOREVER)


def _stored(rows: pa.Table, bit: int, queries: int, groups: int, names: Sequence[str], step: int) -> pa.Table:
    """Rows of one query in the form of the result table."""
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        "_time": rows.column("window_end"),
        "_step": pa.array(np.full(len(rows), step, dtype=np.int64)),
    }
    for word in range(word_count(queries)):
        bits = np.uint64(1 << bit % 64 if word == bit // 64 else 0)
        columns[f"_bits{word}"] = pa.array(np.full(len(rows), bits, dtype=np.uint64).view(np.int64))
    columns["window_start"] = rows.column("window_start")
    columns |= {f"g{n}": rows.column(f"g{n}") for n in range(groups)}
    columns |= {name: rows.column(f"a{n}") for n, name in enumerate(names)}
    return pa.table(columns)
