"""Sources in memory that keep their whole history, and may change whenever they are asked."""

from __future__ import annotations

from collections import Counter
from threading import RLock

import pyarrow as pa

from penstock.model import Expression, Ref
from penstock.reference.evaluate import holds
from penstock.reference.view import canonical
from penstock.views.rows.bag import COUNT
from penstock.views.rows.types import schema_of
from penstock.views.sources.source import Answer


class MemorySource:
    """A bag of value tuples with a log of changes; `move` is called before every answer and may change it."""

    connections = 4

    def __init__(self, source, rows=(), move=None):
        self.source = source
        self.requests = 0
        self.log: list[tuple[tuple, int]] = []
        self.content: Counter = Counter()
        self.move = move
        self.asked: list[tuple[str, int]] = []  # kind of request, keys
        self._schema = schema_of(source.name, source.columns)
        self._lock = RLock()
        for row in rows:
            self.change(row, 1)

    def change(self, row, sign):
        with self._lock:
            if self.content[row] + sign < 0:
                raise ValueError(f"{row} is not there")
            self.content[row] += sign
            self.log.append((row, sign))

    def at(self, position):
        found = Counter()
        for row, sign in self.log[:position]:
            found[row] += sign
        return +found

    def position(self):
        return len(self.log)

    def changes(self, after, until=None):
        with self._lock:
            self.requests += 1
            if self.move is not None and until is None:
                self.move(self)
            until = len(self.log) if until is None else until
            part = self.log[after:until]
            return self._table([row for row, _ in part], [sign for _, sign in part]), until

    def lookup(self, columns, keys, filters):
        names = keys.column_names
        assert keys.num_rows == len({tuple(map(canonical, row.values())) for row in keys.to_pylist()}), "distinct"
        assert all(keys.schema.field(n).type == self._schema.field(n).type for n in names), "typed as the source"
        wanted = {tuple(canonical(row[n]) for n in names) for row in keys.to_pylist()}
        assert all(None not in key for key in wanted), "no NULL"
        at = [self._schema.get_field_index(n) for n in names]
        self.asked.append(("lookup", keys.num_rows))
        return self._answer(columns, filters, lambda row: tuple(canonical(row[k]) for k in at) in wanted)

    def scan(self, columns, filters):
        self.asked.append(("scan", 0))
        return self._answer(columns, filters, lambda row: True)

    def close(self):
        pass

    def _answer(self, columns, filters, wanted):
        with self._lock:
            self.requests += 1
            if self.move is not None:
                self.move(self)
            names = self._schema.names
            kept = [
                (row, times)
                for row, times in self.content.items()
                if times
                and wanted(row)
                and all(holds(f, lambda ref, row=row: row[names.index(ref.column)]) for f in filters)
            ]
            table = self._table([row for row, _ in kept], [times for _, times in kept])
            return Answer(table.select([*columns, COUNT]), len(self.log))

    def _table(self, rows, counts):
        arrays = [pa.array([row[k] for row in rows], field.type) for k, field in enumerate(self._schema)]
        return pa.table([*arrays, pa.array(counts, pa.int64())], [*self._schema.names, COUNT])


def ref(node, column):
    term = Ref(node, column)
    return Expression((term,), term, total=True)


def expression(term, *refs):
    """An expression whose text does not matter."""
    parts = [part for r in refs for part in (r, " ")]
    return Expression(tuple(parts), term, total=True)


def bag(table):
    """The signed bag of a table, comparable with the reference."""
    names = [n for n in table.column_names if n != COUNT]
    found: Counter = Counter()
    for row in table.to_pylist():
        found[tuple(canonical(row[n]) for n in names)] += row[COUNT]
    return Counter({row: times for row, times in found.items() if times})


class Frame:
    """As much of a DataFrame as is asked for."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def select(self, *names: str) -> Frame:
        return Frame(self.table.select([name.strip("`") for name in names]))

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self.table
