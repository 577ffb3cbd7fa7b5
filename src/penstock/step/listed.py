"""Results of a window aggregate in the form of one query's select list, in a file of its own: one row per window."""

from __future__ import annotations

import pyarrow as pa

from penstock.kernels.aggregate.repeats import RUN, written_out
from penstock.kernels.aggregate.results import total_of
from penstock.model import Expression, Landmark, Sliding
from penstock.model.expression import PSEUDO_ROLE, WINDOW_END, WINDOW_START
from penstock.model.limits import MOST_BUILT
from penstock.model.windows import AggregateWindow
from penstock.planner.listed import bare
from penstock.planner.window_aggregate import AggregateMember
from penstock.step.rows import ROW_GROUP, RowFile
from penstock.step.task import Task

MOST_LISTED = (
    MOST_BUILT  # of more results of a task those that hold the same stay one row, which is written out where it is read
)


def count_results(rows: pa.Table, window: AggregateWindow | None) -> int:
    """The number of results that rows stand for."""
    runs = RUN in rows.column_names and isinstance(window, Sliding | Landmark)
    return total_of(rows.column(RUN).to_numpy()) if runs else len(rows)


def write_listed(
    rows: pa.Table, window: AggregateWindow | None, member: AggregateMember, task: Task, schema: pa.Schema
) -> RowFile:
    """Write the results that some rows stand for to a file, and end it."""
    file = RowFile(task.store, task.step)
    sliding = window if RUN in rows.column_names and isinstance(window, Sliding | Landmark) else None
    for each in (rows,) if sliding is None else written_out(rows, sliding, ROW_GROUP):
        columns = [
            each.column(_place(item)).cast(wanted.type) for item, wanted in zip(member.listed, schema, strict=True)
        ]
        file.add(pa.table(columns, schema=schema), each.column(WINDOW_END).to_numpy())
    assert file.close()
    return file


def _place(item: Expression) -> str:
    """The column of an item of a select list."""
    ref = bare(item)
    assert ref is not None
    return WINDOW_END if ref.role == PSEUDO_ROLE and ref.column != WINDOW_START else ref.column
