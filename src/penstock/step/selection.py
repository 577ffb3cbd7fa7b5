"""The rows of a source from the rows of its files: columns, computed or renamed, of rows that satisfy its filters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.columns.parcels import one_array
from penstock.columns.terms.evaluation import Evaluation
from penstock.model import Ref, Term
from penstock.planner.meaning import parts_of
from penstock.step.pieces import Unreadable


@dataclass(frozen=True)
class Selection:
    """`types` are those of the columns in the files, `items` the columns of the stream as terms over them.

    An item that is just a column is a `Ref`. A row counts if all `filters` are true.
    """

    types: Mapping[str, pa.DataType]
    items: Mapping[str, Term]
    filters: tuple[Term, ...] = ()

    @staticmethod
    def whole(types: Mapping[str, pa.DataType]) -> Selection:
        """All columns of all rows, unchanged."""
        return Selection(types, {name: Ref(0, name) for name in types})

    def read_for(self, columns: Collection[str]) -> list[str]:
        """The columns of the files that these columns of the stream need."""
        terms = [*self.filters, *(self.items[column] for column in columns)]
        found = sorted({part.column for term in terms for part in parts_of(term) if isinstance(part, Ref)})
        if not found:
            raise Unreadable("nothing of the files is read")  # not even the number of rows
        return found

    def passing(self, rows: pa.Table) -> pa.Table:
        """The rows that satisfy the filters."""
        for term in self.filters:
            true, raised = _evaluation(rows).holds(term)
            if raised.any():
                raise Unreadable("a filter of the source raises")
            rows = rows.filter(pa.array(true))
        return rows

    def computed(self, rows: pa.Table, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Columns of the stream, in their types."""
        evaluation = _evaluation(rows)
        return {column: self._column(column, kind, evaluation) for column, kind in types.items()}

    def _column(self, column: str, kind: pa.DataType, evaluation: Evaluation) -> pa.Array:
        term = self.items[column]
        if isinstance(term, Ref):
            return evaluation.lookup(term)
        found, raised = evaluation.values(term)
        if raised.any():
            raise Unreadable(f"column {column} of the source raises")
        return found.cast(kind)


def _evaluation(rows: pa.Table) -> Evaluation:
    columns = {name: one_array(rows.column(name)) for name in rows.column_names}
    return Evaluation(lambda ref: columns[ref.column], len(rows))
