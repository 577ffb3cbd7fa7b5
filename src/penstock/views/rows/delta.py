"""The unified delta of a refresh (Liu 2005, 10.2.4): members of different width in one table, distinguished by a tag.

A member has no columns but, for every node it has joined, the number of a row in that node's `Rows`; for other nodes it
has -1, which takes part in no predicate. Columns are gathered once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.columns.hash import Ints
from penstock.model import Edge, Expression, Ref, View
from penstock.views.rows.bag import COUNT, consolidated, counts
from penstock.views.rows.evaluate import column, select
from penstock.views.rows.match import NO_CODES, Coder, Codes, Flags, combined, common_type, pairs

ABSENT = -1


class Rows:
    """All rows of one node that a refresh has seen: its delta, and the answers of its source. Only grows."""

    def __init__(self, schema: pa.Schema, coder: Coder) -> None:
        self.schema = schema
        self.count: Ints = np.empty(0, np.int64)
        self._coder = coder
        self._table = schema.empty_table()
        self._codes: dict[tuple[str, pa.DataType], Codes] = {}

    def append(self, table: pa.Table) -> Ints:
        """Add the rows; returns their numbers."""
        start = len(self.count)
        narrow = table.select(self.schema.names)
        self._table = pa.concat_tables(
            [self._table, narrow if narrow.schema == self.schema else narrow.cast(self.schema)]
        )
        self.count = np.concatenate([self.count, counts(table)])
        return np.arange(start, len(self.count), dtype=np.int64)

    def column(self, name: str) -> pa.Array:
        """A whole column."""
        values = self._table.column(name)
        if values.num_chunks == 1:
            return values.chunk(0)
        whole = values.combine_chunks()
        whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
        self._table = self._table.set_column(self._table.schema.get_field_index(name), name, whole)
        return whole

    def codes(self, name: str, kind: pa.DataType) -> Codes:
        """The codes of a whole column, for comparing it as `kind`."""
        known = self._codes.get((name, kind), NO_CODES)
        if len(known.codes) < len(self.count):
            fresh = self._coder.encode(self.column(name).slice(len(known.codes)), kind)
            known = Codes(np.concatenate([known.codes, fresh.codes]), np.concatenate([known.valid, fresh.valid]))
            self._codes[name, kind] = known
        return known

    def table(self, rows: Ints) -> pa.Table:
        """Some of the rows as a signed bag."""
        names = self.schema.names
        return pa.table([*(self.column(n).take(pa.array(rows)) for n in names), self.count[rows]], [*names, COUNT])


@dataclass(frozen=True)
class Delta:
    """Members in one table: their tags, signed counts, and for each node the number of the joined row."""

    tag: Ints
    count: Ints
    held: dict[int, Ints]

    def __len__(self) -> int:
        return len(self.count)

    def take(self, rows: Ints | Flags) -> Delta:
        return Delta(self.tag[rows], self.count[rows], {node: index[rows] for node, index in self.held.items()})


def unify(members: Sequence[Delta]) -> Delta:
    """One table for all members, in ascending order of tags; -1 for nodes that a member has not joined."""
    if len(members) == 1:
        return members[0]
    nodes = set().union(*(m.held for m in members))
    return Delta(
        np.concatenate([m.tag for m in members]),
        np.concatenate([m.count for m in members]),
        {v: np.concatenate([m.held[v] if v in m.held else _absent(len(m)) for m in members]) for v in nodes},
    )


def split(delta: Delta, members: Mapping[int, Delta], node: int | None = None) -> dict[int, Delta]:
    """The members of a unified delta, each with the nodes that it had joined before, and `node`."""
    if len(members) == 1:
        return dict.fromkeys(members, delta)
    bounds = np.searchsorted(delta.tag, list(members), side="left").tolist()
    parts = {}
    for (tag, before), low, high in zip(members.items(), bounds, [*bounds[1:], len(delta)], strict=True):
        held = (*before.held, node) if node is not None else tuple(before.held)
        parts[tag] = Delta(delta.tag[low:high], delta.count[low:high], {v: delta.held[v][low:high] for v in held})
    return parts


def _absent(rows: int) -> Ints:
    return np.full(rows, ABSENT, np.int64)


class Joins:
    """The join conditions of a view over the rows of its nodes."""

    def __init__(self, view: View, schemas: Sequence[pa.Schema]) -> None:
        self.view = view
        self.coder = Coder()
        self.rows = [Rows(schema, self.coder) for schema in schemas]
        self._edges: dict[tuple[int, int], Edge] = {}
        for edge in view.edges:
            self._edges[edge.left, edge.right] = self._edges[edge.right, edge.left] = edge

    def equal(self, v: int, node: int) -> list[tuple[str, str, pa.DataType]]:
        """The pairs of columns that must be equal (of `v`, of `node`), and the type of the comparison."""
        found = self._edges[v, node].toward(node)[1]
        types = [(self.rows[v].schema.field(a).type, self.rows[node].schema.field(b).type) for a, b in found]
        return [(a, b, common_type(*kinds)) for (a, b), kinds in zip(found, types, strict=True)]

    def start(self, node: int, tag: int, rows: Ints) -> Delta:
        """A member with rows of one node."""
        return Delta(np.full(len(rows), tag, np.int64), self.rows[node].count[rows], {node: rows})

    def join(self, delta: Delta, node: int, rows: Ints, via: Sequence[int]) -> Delta:
        """The delta with these rows of `node`: matched by the keys of `via`, then by all other conditions."""
        columns = [(v, a, b, kind) for v in via for a, b, kind in self.equal(v, node)]
        if columns:
            left = [self.rows[v].codes(a, kind).take(delta.held[v]) for v, a, _, kind in columns]
            right = [self.rows[node].codes(b, kind).take(rows) for _, _, b, kind in columns]
            mine, theirs = pairs(*combined(left, right))
        else:
            mine = np.repeat(np.arange(len(delta)), len(rows))
            theirs = np.tile(np.arange(len(rows)), len(delta))
        found = rows[theirs]
        grown = delta.take(mine)
        grown = Delta(grown.tag, grown.count * self.rows[node].count[found], grown.held | {node: found})
        for v in delta.held:
            if (v, node) in self._edges and v != node:
                grown = self._checked(grown, v, node, keyed=v in via)
        return grown

    def _checked(self, delta: Delta, v: int, node: int, *, keyed: bool) -> Delta:
        others = self._edges[v, node].others
        equal = [] if keyed else self.equal(v, node)
        if not others and not equal:
            return delta
        holds = delta.held[v] != ABSENT
        at = np.flatnonzero(holds)
        truth = np.ones(len(at), np.bool_)
        for a, b, kind in equal:
            one = self.rows[v].codes(a, kind).take(delta.held[v][at])
            other = self.rows[node].codes(b, kind).take(delta.held[node][at])
            truth &= (one.codes == other.codes) & one.valid & other.valid
        if others:
            table = self.gather(delta.take(at), [ref for e in others for ref in e.refs])
            for expression in others:
                found = column(table, expression, name_of)
                truth &= np.asarray(found.fill_null(False).combine_chunks().to_numpy(zero_copy_only=False), np.bool_)
        keep = ~holds
        keep[at] = truth
        return delta.take(keep)

    def gather(self, delta: Delta, refs: Sequence[Ref]) -> pa.Table:
        """The referenced columns, and the counts."""
        wanted = {name_of(ref): ref for ref in refs}
        taken = [self.rows[ref.role].column(ref.column).take(pa.array(delta.held[ref.role])) for ref in wanted.values()]
        return pa.table([*taken, pa.array(delta.count)], [*wanted, COUNT])

    def outputs(self, members: Sequence[Delta], *, cancel: bool = True) -> pa.Table:
        """The view's columns for members that have joined every node.

        With `cancel` they are consolidated, and rows that exist only between two states are removed before any
        expression is evaluated; with a single state there are none.
        """
        expressions: list[Expression] = [e for _, e in self.view.outputs]
        refs = [ref for e in (*expressions, *self.view.residuals) for ref in e.refs]
        table = self.gather(unify(members), refs)
        table = select(consolidated(table) if cancel else table, self.view.residuals, name_of)
        columns = [column(table, e, name_of) for e in expressions]
        result = pa.table([*columns, table.column(COUNT)], [*(name for name, _ in self.view.outputs), COUNT])
        plain = {e.term for e in expressions if isinstance(e.term, Ref)}
        same = all(isinstance(e.term, Ref) for e in expressions) and len(set(refs)) == len(plain)
        return result if same or not cancel else consolidated(result)


def name_of(ref: Ref) -> str:
    """The name of a column of a node in gathered tables."""
    return f"{ref.role}.{ref.column}"
