"""The changes of the sources since the last refresh, and how to undo later ones in answers.

A source answers as of now, which may be after the changes that are being maintained. Since the answer has its position,
exactly the changes up to it are undone (Liu 2005, 10.2.1 and 10.3.1; decision 0022), whatever the order in which
answers and changes arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import Ints
from penstock.errors import StepError
from penstock.model import View
from penstock.views.rows.bag import COUNT, consolidated, counts, negated, total
from penstock.views.rows.delta import Joins
from penstock.views.rows.evaluate import select
from penstock.views.rows.match import among, combined
from penstock.views.rows.types import schema_of
from penstock.views.sources.change_audit import Told, telling
from penstock.views.sources.source import SourceReader


def schemas(view: View, sources: Mapping[str, SourceReader]) -> list[pa.Schema]:
    """The columns of each node that the view needs."""
    found = []
    for k, node in enumerate(view.nodes):
        whole = schema_of(node.source, sources[node.source].source.columns)
        found.append(pa.schema([whole.field(name) for name in view.columns(k)]))
    return found


class Changes:
    """The changes of all sources of a view up to the positions `reached`, and later ones as they are requested."""

    def __init__(
        self,
        view: View,
        sources: Mapping[str, SourceReader],
        reached: Mapping[str, int],
        raw: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self.view = view
        self.reached = dict(reached)
        self._sources = sources
        self.schemas = schemas(view, sources)
        self._later: dict[str, dict[int, pa.Table]] = {}
        nodes = view.nodes if raw is not None else ()
        self.fetched = 0 if raw is None else sum(rows.num_rows for rows in raw.values())  # seen by the view or not
        self.told = Told({name: raw[name] for name in telling(view, sources)} if raw is not None else {})
        self.deltas = [self._projected(k, raw[node.source]) for k, node in enumerate(nodes) if raw is not None]

    @classmethod
    def since(
        cls,
        view: View,
        sources: Mapping[str, SourceReader],
        positions: Mapping[str, int],
        pool: Executor | None = None,
    ) -> Changes:
        """All changes since `positions`, requested from all sources concurrently."""
        names = sorted({node.source for node in view.nodes})

        def fetch(name: str) -> tuple[pa.Table, int]:
            return sources[name].changes(positions[name])

        found = list(pool.map(fetch, names)) if pool is not None and len(names) > 1 else [fetch(n) for n in names]
        reached = {name: position for name, (_, position) in zip(names, found, strict=True)}
        return cls(view, sources, reached, {name: rows for name, (rows, _) in zip(names, found, strict=True)})

    @property
    def empty(self) -> frozenset[int]:
        """The nodes without changes that affect the view."""
        return frozenset(k for k, delta in enumerate(self.deltas) if delta.num_rows == 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of distinct changed rows of each node."""
        return tuple(delta.num_rows for delta in self.deltas)

    def later(self, node: int, position: int) -> pa.Table | None:
        """The changes of a node after `reached`, up to a position; None if there are none."""
        name = self.view.nodes[node].source
        base = self.reached[name]
        if position == base:
            return None
        if position < base:
            msg = (
                f"source {name!r} answered as of position {position}, but had changes up to {base} before; "
                "its positions must not fall"
            )
            raise StepError(msg)
        known = self._later.setdefault(name, {})
        if position not in known:
            nearest = max((p for p in known if p < position), default=base)
            more, _ = self._sources[name].changes(nearest, position)
            known[position] = pa.concat_tables([known[nearest], more]) if nearest in known else more
        found = self._projected(node, known[position])
        return found if found.num_rows else None

    def _projected(self, node: int, raw: pa.Table) -> pa.Table:
        schema = self.schemas[node]
        if raw.num_rows:
            raw = select(raw, self.view.local(node), lambda ref: ref.column)
        narrow = raw.select([*schema.names, COUNT]).cast(schema.append(pa.field(COUNT, pa.int64())))
        return consolidated(narrow)


def take_back(joins: Joins, node: int, rows: Ints, change: Ints, keys: pa.Table | None, source: str) -> Ints:
    """Rows of a node as they were before a change, restricted to `keys` (None: all rows).

    Other rows may be incomplete, so no changes of these are undone.
    """
    held = joins.rows[node]
    touched = np.ones(len(rows), np.bool_)
    if keys is not None and len(change):
        kinds = [held.schema.field(name).type for name in keys.column_names]
        mine = [held.codes(name, kind) for name, kind in zip(keys.column_names, kinds, strict=True)]
        asked = [joins.coder.encode(flat(column), kind) for column, kind in zip(keys.columns, kinds, strict=True)]
        change = change[among(*combined([c.take(change) for c in mine], asked))]
        touched = among(*combined([c.take(rows) for c in mine], [c.take(change) for c in mine]))
    if not len(change):
        return rows
    before = total([held.table(rows[touched]), negated(held.table(change))])
    if (counts(before) < 0).any():
        row = before.filter(pc.less(before.column(COUNT), 0)).slice(0, 1).to_pylist()[0]
        times = row.pop(COUNT)
        msg = (
            f"the changes of source {source!r} do not fit its content: {row} would have been there {times} times; "
            "set its change capture up again and recompute the view"
        )
        raise StepError(msg)
    return np.concatenate([rows[~touched], held.append(before)])


def flat(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
