"""The rows of sources that tell their changes themselves, kept as counted codes, so that no deletion of an absent row passes.

A view keeps only the columns it needs, and its changes are cut down to them: two rows of a source may look the same there, and a
deletion of one that never was would take the other away. Triggers and comparisons cannot report such a deletion; a change table
that somebody else fills can. Nothing is kept of the rows but 64 bits each, so one wrong deletion in 2^64 is taken for a right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StepError
from penstock.model.view import Source, View
from penstock.views.rows.bag import consolidated, negated
from penstock.views.rows.codes import codes_of
from penstock.views.sources.source import COUNT, SourceReader

ROW = "row"
SCHEMA = pa.schema([(ROW, pa.int64()), (COUNT, pa.int64())])
PREFIX = "told/"  # of the bags of such sources in the store of a view


@dataclass(frozen=True)
class Told:
    """Signed rows of each such source, with all its columns: what has changed, or (`whole`) all it holds."""

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    whole: bool = False

    @cached_property
    def coded(self) -> dict[str, pa.Table]:
        """The same as bags of codes."""
        return {f"{PREFIX}{name}": coded(rows) for name, rows in self.rows.items()}


def telling(view: View, sources: Mapping[str, SourceReader]) -> list[str]:
    """The sources of a view whose changes are told by others."""
    return sorted({node.source for node in view.nodes if sources[node.source].source.changes == "table"})


def told_between(
    names: list[str], sources: Mapping[str, SourceReader], after: Mapping[str, int], until: Mapping[str, int]
) -> Told:
    """What was told from one position of each source to another."""
    return Told({name: sources[name].changes(after[name], until[name])[0] for name in names})


def all_told(names: list[str], sources: Mapping[str, SourceReader], positions: Mapping[str, int]) -> Told:
    """All rows at these positions: those of now, less what was told since."""
    found = {}
    for name in names:
        columns = [column.name for column in sources[name].source.columns]
        answer = sources[name].scan(columns, ())
        later, _ = sources[name].changes(positions[name], answer.position)
        found[name] = pa.concat_tables([answer.rows, negated(later).select(answer.rows.column_names)])
    return Told(found, whole=True)


def coded(rows: pa.Table) -> pa.Table:
    """A bag of codes over all columns."""
    columns = [name for name in rows.column_names if name != COUNT]
    return consolidated(pa.table([codes_of(rows, columns), rows.column(COUNT)], schema=SCHEMA))


def refuse(source: Source, rows: pa.Table, absent: pa.Table) -> None:
    """Report the first of the rows whose deletion was told, but which were not there."""
    if not len(absent):
        return
    columns = [name for name in rows.column_names if name != COUNT]
    wrong = np.isin(codes_of(rows, columns), absent.column(ROW).to_numpy())
    row = rows.filter(pa.array(wrong)).filter(pc.less(rows.filter(pa.array(wrong)).column(COUNT), 0)).slice(0, 1)
    text = row.drop_columns(COUNT).to_pylist()[0]
    msg = (
        f"source {source.name!r}: {source.change_table} tells of the deletion of {text}, which was not there; "
        "correct what fills it, and recompute the view by refresh(full=True)"
    )
    raise StepError(msg)
