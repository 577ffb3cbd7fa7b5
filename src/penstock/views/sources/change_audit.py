"""Audit of sources whose changes are reported by others: counted codes reveal deletions of absent rows.

A view stores only the columns it needs, and its changes are reduced to them: two rows of a source may look the same
there, and a deletion of one that never existed would remove the other. Triggers and comparisons cannot report such a
deletion; a change table that somebody else fills can. Only 64 bits per row are stored, so one wrong deletion in 2^64
passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.codes import codes_of
from penstock.errors import StepError
from penstock.model.view import Source, View
from penstock.views.rows.bag import COUNT, consolidated, negated
from penstock.views.sources.source import SourceReader

ROW = "row"
SCHEMA = pa.schema([(ROW, pa.int64()), (COUNT, pa.int64())])
PREFIX = "told/"  # of the bags of such sources in the store of a view


@dataclass(frozen=True)
class Told:
    """Signed rows of each such source, with all its columns: its changes, or (`whole`) all its rows."""

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    whole: bool = False

    @cached_property
    def coded(self) -> dict[str, pa.Table]:
        """The same as bags of codes."""
        return {f"{PREFIX}{name}": coded(rows) for name, rows in self.rows.items()}


def telling(view: View, sources: Mapping[str, SourceReader]) -> list[str]:
    """The sources of a view whose changes are reported by others."""
    return sorted({node.source for node in view.nodes if sources[node.source].source.changes == "table"})


def told_between(
    names: list[str], sources: Mapping[str, SourceReader], after: Mapping[str, int], until: Mapping[str, int]
) -> Told:
    """The changes reported between two positions of each source."""
    return Told({name: sources[name].changes(after[name], until[name])[0] for name in names})


def all_told(names: list[str], sources: Mapping[str, SourceReader], positions: Mapping[str, int]) -> Told:
    """All rows at these positions: those of now, less the changes reported since."""
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
    """Report the first row whose deletion was reported although it was not there."""
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
