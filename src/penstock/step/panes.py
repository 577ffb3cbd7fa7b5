"""Results of window aggregates stored as closed panes: one file per task, step and set of panes.

The file has the windows that the step closed and the number of results for each query; `assemble` assembles them on
read (decision 0017).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.entries import patterns_of
from penstock.kernels.aggregate.panes import closed_panes, pane_edge, window_counts
from penstock.kernels.probe import word_count
from penstock.model import Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import Windowed
from penstock.planner.window_aggregate import AggregateMember, WindowAggregate
from penstock.results.layout import PANES, piece_columns
from penstock.state.result_files import ResultFile
from penstock.step.report import Report
from penstock.step.rows import ROW_GROUP, compression_of
from penstock.step.task import Task
from penstock.storage.parquet import write
from penstock.storage.store import file_name


def write_panes(
    aggregate: WindowAggregate,
    tables: Sequence[pa.Table],
    after: int,
    until: int,
    task: Task,
    version: int,
    report: Report,
) -> None:
    """Write the panes that are closed now, and add their files to the report with the results that they stand for.

    Queries that share panes share a file, unless they began to do so in the middle of a pane.
    """
    sets = {query: number for number, own in enumerate(aggregate.plan.sets) for query in own.queries}
    together: dict[tuple[int, int], list[AggregateMember]] = {}
    for member in aggregate.members:
        if member.paned and member.id not in task.suspended:
            together.setdefault((sets[member.id], task.panes.get(member.id, NEVER)), []).append(member)
    for (_, since), members in together.items():
        _write_panes(aggregate, members, tables, (since, after, until), task, version, report)


def _write_panes(
    aggregate: WindowAggregate,
    members: Sequence[AggregateMember],
    tables: Sequence[pa.Table],
    times: tuple[int, int, int],
    task: Task,
    version: int,
    report: Report,
) -> None:
    since, after, until = times
    windowed = {q.query: q for q in aggregate.plan.queries}
    queries = [windowed[m.id] for m in members]
    edge = pane_edge(queries, until)
    panes = closed_panes(aggregate.plan, tables, queries, since, edge)
    found = window_counts(aggregate.plan, tables, [(windowed[m.id], m.first) for m in members], after, until)
    counts = [(m.id, count) for m, count in zip(members, found, strict=True)]
    if not len(panes) and not any(found):
        return
    table = _stored(aggregate, members, panes)
    name = file_name("results", task.step, "parquet")
    # Sorted keys and small counts are compact as dictionaries, so these stay on.
    size = write(task.store, name, table, compression=compression_of(table), row_group_size=ROW_GROUP)
    first, last = _ends(queries, panes, until)
    entry = ResultFile(
        name, aggregate.name, task.step, version, len(table), size, first, last, tuple(counts), PANES,
        closings=((task.step, after, until),), panes_until=edge,
    )  # fmt: skip
    report.add_file(entry)


def _ends(queries: Sequence[Windowed], panes: pa.Table, until: int) -> tuple[int, int]:
    """The range of ends of the windows that need the file: those it closed, and those that contain its panes."""
    longest = max(query.window.range for query in queries if isinstance(query.window, Sliding))
    positions = panes.column("_pane").to_numpy()
    ends = [] if until >= FOREVER else [until]
    if len(positions):
        ends += [int(positions.min()), int(positions.max()) + longest]
    return min(ends, default=NEVER), max(ends, default=FOREVER)


def _stored(aggregate: WindowAggregate, members: Sequence[AggregateMember], panes: pa.Table) -> pa.Table:
    """Panes in the form of the result table: key, groups, position, the bits of queries that they serve, pieces."""
    columns: dict[str, pa.ChunkedArray | pa.Array] = {"_key": panes.column("_key"), "_pane": panes.column("_pane")}
    selection = {q.query: q.selection for q in aggregate.plan.queries}
    patterns = patterns_of(panes)
    served = patterns if patterns is not None else ((0,),)
    numbers = panes.column("_bits").to_numpy() if patterns is not None else np.zeros(len(panes), dtype=np.int32)
    for word in range(word_count(len(aggregate.members))):
        own = [m for m in members if m.bit // 64 == word]
        words = [sum(1 << m.bit % 64 for m in own if selection[m.id] in pattern) for pattern in served]
        columns[f"_bits{word}"] = pa.array(np.array(words, dtype=np.uint64).view(np.int64)[numbers])
    columns |= {f"g{n}": panes.column(f"g{n}") for n in range(aggregate.plan.groups)}
    names = piece_columns(aggregate.plan)
    for name in panes.column_names:
        if name[0] == "p":
            number, part = name[1:].split("_")
            columns[f"{names[int(number)]}_{part}"] = panes.column(name)
    return pa.table(columns)
