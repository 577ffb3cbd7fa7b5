"""Entries: rows or partials of one task, sorted by group and position, and the Arrow tables that store both.

A table of rows has the columns `_key` (hash of the group), `g0`.. (values of the group), `_ts`, `a0`.. (arguments),
`o0`.. (what orders rows of one time) and, if queries select rows, `_bits`: an index into the patterns in the schema's
metadata, each the selections that a row serves. A table of partials has `_pane`, the start of the pane, instead of
`_ts`, and the columns of the pieces instead of the rest. Expired rows that must still be counted are one row at time
`NEVER` with their number in `_gone`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.aggregate import sweep
from penstock.kernels.aggregate.bags import lift_bags, load_bags
from penstock.kernels.aggregate.codes import numbers_of, order_ranks, tidy
from penstock.kernels.aggregate.columns import (
    Column,
    Floats,
    Integers,
    Spans,
    extremes_of,
    lift_numbers,
    picks_of,
    stream_places,
)
from penstock.kernels.aggregate.frames import in_order, merge_order
from penstock.kernels.aggregate.states import Lists, States, function_of, load_states
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.taxonomy import ROWS, Piece
from penstock.state.run import Ints

Patterns = tuple[tuple[int, ...], ...]

_PICKS = ("first", "last", "valid_first", "valid_last")
_NUMBERS = ("count", "sum", "moments", "least", "greatest", "span")


@dataclass(frozen=True)
class Entries:
    """Sorted by group, then position; `columns` are in the order of the plan's pieces. `table` has the group values.

    `row_of[i]` is the row of `table` from which entry i has its group.
    """

    starts: Ints
    positions: Ints
    columns: tuple[Column | None, ...]
    table: pa.Table
    row_of: Ints

    def __len__(self) -> int:
        return len(self.positions)

    def group_values(self, groups: Ints) -> list[pa.Array]:
        """The values of these groups (numbers from 0)."""
        rows = pa.array(self.row_of[self.starts[groups]])
        return [column.take(rows) for column in group_columns(self.table)]

    def take(self, index: Ints) -> Entries:
        """Some entries, in ascending order; a group may lose all of its entries."""
        bounds = np.searchsorted(index, self.starts)
        kept = np.flatnonzero(np.diff(bounds))
        starts = np.append(bounds[kept], bounds[-1]).astype(np.int64)
        columns = tuple(column and column.take(index) for column in self.columns)
        return Entries(starts, self.positions[index], columns, self.table, self.row_of[index])

    def fold(self) -> Entries:
        """Entries of the same group and position folded into one."""
        new = np.ones(len(self), dtype=np.bool_)
        new[1:] = self.positions[1:] != self.positions[:-1]
        new[self.starts[:-1]] = True
        low = np.flatnonzero(new)
        if len(low) == len(self):
            return self
        high = np.append(low[1:], len(self))
        columns = tuple(column and column.fold(low, high) for column in self.columns)
        starts = np.searchsorted(low, self.starts)
        return Entries(starts, self.positions[low], columns, self.table, self.row_of[low])


@dataclass(frozen=True)
class Sorted:
    """A sorted table of rows or partials; `codes` number its groups from 0."""

    table: pa.Table
    codes: Ints
    positions: Ints
    bits: npt.NDArray[np.int32]
    patterns: Patterns

    @cached_property
    def starts(self) -> Ints:
        return starts_of(self.codes)

    def pattern(self, selection: int) -> bytes:
        """A key that is equal for selections that see the same rows."""
        return bytes(selection in pattern for pattern in self.patterns)

    def serving(self, selection: int) -> npt.NDArray[np.bool_] | None:
        """The rows that serve a selection; None if all do."""
        served = np.array([selection in pattern for pattern in self.patterns], dtype=np.bool_)
        return None if served.all() else np.asarray(served[self.bits])


def starts_of(codes: Ints) -> Ints:
    """Where each group begins, and the end of the last."""
    if not len(codes):
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1, [len(codes)]]).astype(np.int64)


def group_columns(table: pa.Table) -> list[pa.Array]:
    return _numbered(table, "g")


def with_patterns(table: pa.Table, patterns: Sequence[Sequence[int]]) -> pa.Table:
    """The table with the patterns that its `_bits` index."""
    return table.replace_schema_metadata({"penstock": json.dumps({"patterns": [list(p) for p in patterns]})})


def patterns_of(table: pa.Table) -> Patterns | None:
    found = (table.schema.metadata or {}).get(b"penstock")
    return tuple(tuple(p) for p in json.loads(found)["patterns"]) if found else None


def sort_together(tables: Sequence[pa.Table], time: str, *, ordered: bool = False) -> Sorted:
    """All tables as one, sorted."""
    return sort(together(tables), time, ordered=ordered, runs=[len(table) for table in tables])


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """All tables as one, with common patterns."""
    if len(tables) == 1:
        return tables[0].combine_chunks()
    known = [patterns_of(table) for table in tables]
    if all(p is None for p in known):
        return pa.concat_tables(tables).combine_chunks()
    numbers: dict[tuple[int, ...], int] = {}
    pieces = []
    for table, patterns in zip(tables, known, strict=True):
        assert patterns is not None, "tables with and without bits cannot be put together"
        local = np.array([numbers.setdefault(p, len(numbers)) for p in patterns], dtype=np.int32)
        at = table.schema.get_field_index("_bits")
        bits = pa.array(local[table.column(at).to_numpy()], type=pa.int32())
        pieces.append(table.set_column(at, "_bits", bits).replace_schema_metadata(None))
    return with_patterns(pa.concat_tables(pieces).combine_chunks(), list(numbers))


def sort(table: pa.Table, time: str, *, ordered: bool = False, runs: Sequence[int] = ()) -> Sorted:
    """Sort by group (hash, then values where hashes are equal), time, and what orders rows of one time.

    `runs` are the lengths of the tables that it was concatenated from: sorted ones are only merged.
    """
    keys = table.column("_key").to_numpy()
    times = table.column(time).to_numpy()
    table = _tidied(table)
    bounds = np.cumsum([0, *(runs or [len(keys)])])
    order = merge_order(keys, times, bounds) if in_order(keys, times, bounds) else np.lexsort((times, keys))
    if ordered:
        order = _ties_in_order(table, keys, times, order)
    picked, codes = _in_order(table, keys, order)
    if codes is None:
        # Two groups share a hash: number the values inside each hash.
        numbers = numbers_of(group_columns(table), len(keys))
        order = order[np.lexsort((numbers[order], keys[order]))]
        codes = _steps(keys[order], numbers[order])
        picked = table.take(pa.array(order)).combine_chunks()
    patterns = patterns_of(table)
    bits = picked.column("_bits").to_numpy() if patterns is not None else np.zeros(len(order), dtype=np.int32)
    return Sorted(picked, codes, times[order], bits, patterns if patterns is not None else ((0,),))


def _ties_in_order(table: pa.Table, keys: Ints, times: Ints, order: Ints) -> Ints:
    """The order with rows of equal key and time in stream order; only those rows are compared."""
    same = np.zeros(len(order) + 1, dtype=np.bool_)
    same[1:-1] = (np.diff(keys[order]) == 0) & (np.diff(times[order]) == 0)
    places = np.flatnonzero(same[1:] | same[:-1])
    if not len(places):
        return order
    tied = order[places]
    ties = order_ranks([column.take(pa.array(tied)) for column in _numbered(table, "o")])
    order = order.copy()
    order[places] = tied[np.lexsort([*reversed(ties), times[tied], keys[tied]])]
    return order


def _in_order(table: pa.Table, keys: Ints, order: Ints) -> tuple[pa.Table, Ints | None]:
    """The table in this order and the group numbers; None if rows with one hash have different values."""
    if not (order == np.arange(len(order))).all():
        table, keys = table.take(pa.array(order)).combine_chunks(), keys[order]
    codes = _steps(keys)
    if len(codes) < 2:
        return table, codes
    same_hash = codes[1:] == codes[:-1]
    for column in group_columns(table):
        one, next_one = column[:-1], column[1:]
        equal = pc.fill_null(pc.equal(one, next_one), False)
        if pa.types.is_floating(column.type):
            equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(next_one)), False))
        if column.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(next_one)))
        if (same_hash & ~equal.to_numpy(zero_copy_only=False)).any():
            return table, None
    return table, codes


def _steps(*sorted_columns: Ints) -> Ints:
    """Numbers from 0 that increase wherever one of the columns changes."""
    new = np.zeros(len(sorted_columns[0]), dtype=np.bool_)
    for column in sorted_columns:
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new, dtype=np.int64)


def lift(plan: AggregatePlan, rows: Sorted, needed: Sequence[int] | None = None) -> tuple[Column | None, ...]:
    """The columns of pieces of single rows; `needed` are the numbers of the wanted pieces."""
    times = rows.table.column("_ts").to_numpy()

    def one(piece: Piece) -> Column:
        values = None if piece.argument == ROWS else _array(rows.table, f"a{piece.argument}")
        if piece.kind in _NUMBERS:
            return lift_numbers(piece, values, times)
        assert values is not None
        if piece.kind in _PICKS:
            # Where first or last is wanted, rows are already in stream order.
            return picks_of(piece, [values, pa.array(times), *_numbered(rows.table, "o")], np.arange(len(values)))
        if piece.kind == "bag":
            return lift_bags(values)
        if piece.kind == "list":
            return Lists(values)
        return States(function_of(piece, plan.types[piece.argument], plan.own), None, values)

    return tuple(one(p) if needed is None or n in needed else None for n, p in enumerate(plan.pieces))


def load(plan: AggregatePlan, partials: Sorted, needed: Sequence[int] | None = None) -> tuple[Column | None, ...]:
    """The columns of pieces of partials."""
    table = partials.table

    def one(number: int, piece: Piece) -> Column:
        arrays = [_array(table, name) for name in table.column_names if name.startswith(f"p{number}_")]
        if piece.kind == "span":
            return Spans(arrays[0].to_numpy(), arrays[1].to_numpy())
        if piece.kind in {"count", "sum", "moments"} and pa.types.is_integer(arrays[0].type):
            return Integers(tuple(array.to_numpy() for array in arrays))
        if piece.kind in {"sum", "moments"}:
            kind = sweep.SUM if piece.kind == "sum" else sweep.MOMENTS
            return Floats(kind, np.column_stack([array.to_numpy() for array in arrays]))
        if piece.kind in {"least", "greatest"}:
            return extremes_of(piece, arrays[0])
        if piece.kind in _PICKS:
            return picks_of(piece, arrays, stream_places(_blocks(partials, arrays[1]), arrays[1:]))
        if piece.kind == "bag":
            return load_bags(arrays[0], arrays[1])
        return load_states(arrays[0], function_of(piece, plan.types[piece.argument], plan.own))

    return tuple(one(n, p) if needed is None or n in needed else None for n, p in enumerate(plan.pieces))


def _blocks(partials: Sorted, times: pa.Array) -> Ints:
    """Where blocks of partials begin that follow each other in stream order, if not within; `times` are their rows'.

    The partials of one pane are a block. Where panes of several widths overlap, all partials of a group are one.
    """
    panes = np.flatnonzero(np.diff(_steps(partials.codes, partials.positions), prepend=-1))
    ends = np.append(panes[1:], len(partials.codes))[: len(panes)]
    latest = times.cast(pa.int64()).fill_null(NEVER).to_numpy()
    following = np.append(partials.positions[panes[1:]], FOREVER)[: len(panes)]
    last_of_group = np.append(partials.codes[panes[1:]] != partials.codes[panes[:-1]], True)[: len(panes)]
    within = latest < np.repeat(np.where(last_of_group, FOREVER, following), ends - panes)
    return panes if within.all() else partials.starts[:-1]


def store(entries: Entries, bits: npt.NDArray[np.int32] | None, patterns: Patterns | None) -> pa.Table:
    """The table of these partials, with columns only for the pieces that were computed."""
    rows = pa.array(entries.row_of)
    columns: dict[str, pa.Array] = {"_key": entries.table.column("_key").combine_chunks().take(rows)}
    columns |= {f"g{n}": column.take(rows) for n, column in enumerate(group_columns(entries.table))}
    columns["_pane"] = pa.array(entries.positions)
    if bits is not None:
        columns["_bits"] = pa.array(bits, type=pa.int32())
    for number, column in enumerate(entries.columns):
        if column is None:
            continue
        columns |= {f"p{number}_{k}": array for k, array in enumerate(column.store())}
    table = pa.table(columns)
    return table if patterns is None else with_patterns(table, patterns)


def _tidied(table: pa.Table) -> pa.Table:
    for n, name in enumerate(table.column_names):
        if name[0] == "g" and pa.types.is_floating(table.schema.field(n).type):
            table = table.set_column(n, name, tidy(_array(table, name)))
    return table


def _numbered(table: pa.Table, letter: str) -> list[pa.Array]:
    names = [name for name in table.column_names if name[0] == letter and name[1:].isdigit()]
    return [_array(table, name) for name in names]


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
