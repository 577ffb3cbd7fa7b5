"""A view whose sources are all tables of one PostgreSQL database, computed by that database in one statement.

Only equal columns and filters with the same meaning there are sent; every other condition, and all expressions, are
evaluated here on the joined rows. The snapshot is read in the same transaction: it is the position of every source.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.model import Edge, Ref, Source, View
from penstock.views.postgres.capture import qualified, quoted
from penstock.views.postgres.comparable_columns import same
from penstock.views.postgres.pushdown import condition
from penstock.views.postgres.source import PostgresReader
from penstock.views.postgres.tables import as_declared, type_of
from penstock.views.rows.bag import COUNT
from penstock.views.rows.delta import name_of
from penstock.views.rows.evaluate import column, select
from penstock.views.rows.types import schema_of
from penstock.views.sources.source import SourceReader


def computed_together(view: View, sources: Mapping[str, SourceReader]) -> tuple[pa.Table, dict[str, int]] | None:
    """(the view's outputs with counts, not consolidated, each source's position); None if no one database has all."""
    readers = {node.source: sources[node.source] for node in view.nodes}
    tables = {name: reader for name, reader in readers.items() if isinstance(reader, PostgresReader)}
    pools = {id(reader.pool) for reader in tables.values()}
    if len(tables) < len(readers) or len(pools) > 1 or len(view.nodes) < 2:
        return None
    if any(reader.source.changes == "snapshot" for reader in tables.values()):
        return None  # such a position is a copy, not a snapshot of the database
    if not all(edge.equal and all(_alike(view, tables, edge, *names) for names in edge.equal) for edge in view.edges):
        return None
    conditions = [*(e for edge in view.edges for e in edge.others), *view.residuals]
    sent = [
        [condition(e, tables[node.source].source, tables[node.source].exact) for e in view.local(k)]
        for k, node in enumerate(view.nodes)
    ]
    conditions += [e for k, texts in enumerate(sent) for e, t in zip(view.local(k), texts, strict=True) if t is None]
    refs = list(dict.fromkeys(r for e in (*conditions, *(e for _, e in view.outputs)) for r in e.refs))
    reader = next(iter(tables.values()))
    statement = _statement(view, tables, refs, [[t for t in texts if t is not None] for texts in sent])
    snapshot, rows = reader.pool.fetch_at(statement, sorted({name for r in tables.values() for name in r.locked}))
    columns = [_declared(rows.column(k), tables[view.nodes[ref.role].source].source, ref) for k, ref in enumerate(refs)]
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    table = select(pa.table([*columns, ones], [*map(name_of, refs), COUNT]), conditions, name_of)
    outputs = [column(table, e, name_of) for _, e in view.outputs]
    found = pa.table([*outputs, table.column(COUNT)], [*(name for name, _ in view.outputs), COUNT])
    return found, {name: r.resume(snapshot) for name, r in tables.items()}


def _declared(values: pa.ChunkedArray, source: Source, ref: Ref) -> pa.ChunkedArray:
    return as_declared(values, source, ref.column, schema_of(source.name, source.columns).field(ref.column).type)


def _alike(view: View, tables: Mapping[str, PostgresReader], edge: Edge, left: str, right: str) -> bool:
    """Whether the database joins two columns as this process does."""
    one, other = (tables[view.nodes[k].source] for k in (edge.left, edge.right))
    a, b = one.source.column(left), other.source.column(right)
    exactly = left in one.exact and right in other.exact and one.exact[left] == other.exact[right]
    return exactly and a is not None and b is not None and same(a.type, b.type)


def _statement(view: View, tables: Mapping[str, PostgresReader], refs: list[Ref], sent: list[list[str]]) -> str:
    kinds = []
    for ref in refs:
        declared = tables[view.nodes[ref.role].source].source.column(ref.column)
        assert declared is not None, ref
        kinds.append(type_of(declared.type))
    taken = [f"t{r.role}.{quoted(r.column)}::{kind}" for r, kind in zip(refs, kinds, strict=True)]
    joined = []
    for k, node in enumerate(view.nodes):
        table = qualified(tables[node.source].table)
        where = f" WHERE {' AND '.join(sent[k])}" if sent[k] else ""
        joined.append(f"(SELECT * FROM {table}{where}) t{k}")
    equal = [f"t{edge.left}.{quoted(a)} = t{edge.right}.{quoted(b)}" for edge in view.edges for a, b in edge.equal]
    return f"SELECT {', '.join(taken) or 'true'} FROM {', '.join(joined)} WHERE {' AND '.join(equal)}"
