"""Conversion between rows of state tables and the tables of the aggregate kernels.

Runs outlive plans: as queries come and go, so do the pieces of partials, the pane width, and whether rows are stored
instead. So pieces are stored under names derived from their definition, and any plan can read any run. What an older
run lacks is needed only by queries that its rows do not serve: it is filled with the values of a row of NULLs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.columns.types import arrow_type
from penstock.kernels.aggregate.close import partials
from penstock.kernels.aggregate.entries import patterns_of, with_patterns
from penstock.kernels.aggregate.states import why_lost
from penstock.kernels.aggregate.ticks import LAST
from penstock.model.windows import PerRow, SlidingRows
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.state_table import MAX_ROLES
from penstock.planner.taxonomy import ROWS, Piece
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate
from penstock.state.run import Rows

_OWN = ("_key", "_ts", "_pane", "_bits")


def served(aggregate: WindowAggregate, rows: Rows) -> Rows:
    """Rows of a state table with the queries that each serves: a later query may need what they share kept apart."""
    queries = aggregate.plan.queries
    if any(isinstance(query.window, SlidingRows | PerRow) for query in queries):
        return rows  # ranks count all rows, whatever queries they serve
    entry = {m.id: m.share * MAX_ROLES for m in aggregate.members}
    return replace(rows, patterns=tuple(
        tuple(q.selection for q in queries if entry[q.query] in pattern) for pattern in rows.patterns
    ))  # fmt: skip


def received(aggregate: WindowAggregate, source: AggregateSource, rows: Rows) -> pa.Table:
    """New rows of a state table in the kernels' form."""
    columns: dict[str, pa.Array] = {"_key": pa.array(rows.key)}
    columns |= {f"g{n}": rows.columns[name] for n, name in enumerate(source.groups)}
    columns["_ts"] = pa.array(rows.time)
    columns |= {f"a{n}": rows.columns[name] for n, name in enumerate(source.arguments)}
    columns |= {f"o{n}": rows.columns[name] for n, (name, _) in enumerate(aggregate.order)}
    columns["_bits"] = pa.array(rows.bits, type=pa.int32())
    if source.ticks is not None:
        columns[LAST] = rows.columns[source.ticks.last]
    return with_patterns(pa.table(columns), rows.patterns)


def to_rows(aggregate: WindowAggregate, table: pa.Table) -> Rows:
    """Partials (or rows) in the form of a run."""
    single = "_ts" in table.column_names
    time = "_ts" if single else "_pane"
    stored = {name: kept for kept, name in _stored_rows(aggregate).items()} if single else {}
    columns = {}
    for name in table.column_names:
        if name in ("_key", "_bits", time):
            continue
        if name[0] == "p":
            number, part = name[1:].split("_")
            stored[name] = f"{_name(aggregate, aggregate.plan.pieces[int(number)])}_{part}"
        columns[stored.get(name, name)] = _array(table, name)
    key, position, bits = (table.column(name).to_numpy() for name in ("_key", time, "_bits"))
    return Rows(key, position, bits, patterns_of(table) or (), columns)


def refused(plan: AggregatePlan, table: pa.Table) -> dict[int, str]:
    """The queries with a user's aggregate whose state in this table is lost, and why."""
    own = [
        (n, f"p{n}_0") for n, piece in enumerate(plan.pieces) if piece.kind == "state" and piece.function in plan.own
    ]
    lost = {n: why for n, name in own if name in table.column_names and (why := why_lost(table.column(name)))}
    return {
        query.query: lost[piece]
        for query in plan.queries
        for piece in (number for measure in query.measures for number in measure if number in lost)
    }


def from_rows(aggregate: WindowAggregate, rows: Rows) -> pa.Table:
    """The rows or partials of a run, named as in the present plan, without rows that serve no query any more."""
    plan = aggregate.plan
    single = plan.buffered or not any(name.startswith("p:") for name in rows.columns)
    found = {name: stored for stored, name in _stored(aggregate, list(rows.columns), single=single).items()}
    values = _lacking(aggregate, found, len(rows), single=single)
    values |= {name: rows.columns[stored] for name, stored in found.items()}
    columns: dict[str, pa.Array] = {"_key": pa.array(rows.key)}
    columns |= {f"g{n}": rows.columns[f"g{n}"] for n in range(plan.groups)}
    columns["_ts" if single else "_pane"] = pa.array(rows.time)
    # Tables are concatenated by column, so all need the column order of new ones.
    for name in sorted(values, key=_place):
        if name[0] in "p_" and "_bits" not in columns:
            columns["_bits"] = pa.array(rows.bits, type=pa.int32())
        columns[name] = values[name]
    columns.setdefault("_bits", pa.array(rows.bits, type=pa.int32()))
    return _serving(aggregate, with_patterns(pa.table(columns), rows.patterns), rows)


def _lacking(aggregate: WindowAggregate, found: Collection[str], count: int, *, single: bool) -> dict[str, pa.Array]:
    """Columns of the plan that a table lacks, with the values of a row of NULLs."""
    plan = aggregate.plan
    if (len(_stored_rows(aggregate)) <= len(found)) if single else (_pieces_in(found) >= len(plan.pieces)):
        return {}
    example = _example(aggregate, single=single)
    first = pa.array(np.zeros(count, dtype=np.int64))
    added = [n for n in example.column_names if n not in found and n[0] in "aop_" and n not in _OWN]
    return {name: _array(example, name).take(first) for name in added}


def _place(name: str) -> tuple[object, ...]:
    """Sort key: arguments, what orders rows, pieces (each by number), and last the number of expired rows."""
    if name == "_gone":
        return ("z",)
    return (name[0], *(int(part) for part in name[1:].split("_")))


def _pieces_in(names: Collection[str]) -> int:
    return len({name.split("_")[0] for name in names})


def _serving(aggregate: WindowAggregate, table: pa.Table, rows: Rows) -> pa.Table:
    """Drop rows that only dropped queries wanted; where windows count rows all rows stay."""
    selections = {query.selection for query in aggregate.plan.queries}
    counted = any(isinstance(query.window, SlidingRows | PerRow) for query in aggregate.plan.queries)
    if counted or all(selections.intersection(pattern) for pattern in rows.patterns):
        return table
    wanted = np.array([bool(selections.intersection(pattern)) for pattern in rows.patterns], dtype=np.bool_)
    return table.filter(pa.array(wanted[rows.bits]))


def _stored(aggregate: WindowAggregate, columns: Collection[str], *, single: bool) -> dict[str, str]:
    """Name in a run -> name in the kernels' table, for columns of both; a run of `single` rows or of partials."""
    if single:
        return {stored: name for stored, name in _stored_rows(aggregate).items() if stored in columns}
    found: dict[str, str] = {}
    for number, piece in enumerate(aggregate.plan.pieces):
        own = f"{_name(aggregate, piece)}_"
        found |= {name: f"p{number}_{name.removeprefix(own)}" for name in columns if name.startswith(own)}
    return found


def _stored_rows(aggregate: WindowAggregate) -> dict[str, str]:
    names = {f"a:{column}": f"a{n}" for n, column in enumerate(aggregate.sources[0].arguments)}
    names |= {f"o:{column}": f"o{n}" for n, (column, _) in enumerate(aggregate.order)}
    return names | ({"_gone": "_gone"} if aggregate.plan.ranked else {})


def _name(aggregate: WindowAggregate, piece: Piece) -> str:
    argument = "" if piece.argument == ROWS else aggregate.sources[0].arguments[piece.argument]
    text = f"{piece.kind}\0{argument}\0{piece.function}\0{piece.parameters}"
    return "p:" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _example(aggregate: WindowAggregate, *, single: bool) -> pa.Table:
    """What the plan stores of one row of NULLs."""
    columns: dict[str, pa.Array] = {"_key": pa.array([0], pa.int64())}
    columns |= {f"g{n}": pa.nulls(1, stored_type(kind)) for n, kind in enumerate(aggregate.group_types)}
    columns["_ts"] = pa.array([0], pa.int64())
    columns |= {f"a{n}": pa.nulls(1, stored_type(kind)) for n, kind in enumerate(aggregate.plan.types)}
    columns |= {f"o{n}": pa.nulls(1, stored_type(kind)) for n, (_, kind) in enumerate(aggregate.order)}
    columns["_bits"] = pa.array([0], type=pa.int32())
    table = with_patterns(pa.table(columns), [()])
    return table if single and not aggregate.plan.buffered else partials(aggregate.plan, table)


def stored_type(kind: str) -> pa.DataType:
    """The Arrow type for Spark's name of a type."""
    return pa.string() if kind.startswith(("char(", "varchar(")) else arrow_type(kind)


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
