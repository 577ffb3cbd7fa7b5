"""A step's rows of one state table, prepared: bits computed, rows that serve no query dropped, the rest sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.kernels.bits import bits_ids, row_bits
from penstock.kernels.probe import Words, to_words
from penstock.model.time import FOREVER, NEVER
from penstock.planner.reached import Reached
from penstock.planner.state_table import Entry, StateTable
from penstock.state.buckets import first_keys
from penstock.state.run import Ints, Rows

KEYS_AT_ONCE = 1 << 18
FEW = 1 << 10  # so many integers are sorted faster than put into a dictionary

_INTS = types.Array(types.int64, 1, "C", readonly=True)


@dataclass(frozen=True)
class Delta:
    """Sorted rows that serve at least one query role, and how many rows were dropped because they serve none."""

    rows: Rows
    unwanted: int


def count_keys(pieces: Sequence[Delta]) -> int:
    """The number of distinct keys of a delta's pieces."""
    if len(pieces) == 1:
        key = pieces[0].rows.key  # sorted, so it is one more than the number of key changes
        return int(np.count_nonzero(key[1:] != key[:-1])) + 1 if len(key) else 0
    # A range of keys at a time, so that memory does not grow with their number.
    cuts = first_keys(1 << max(1, (sum(len(p.rows) for p in pieces) // KEYS_AT_ONCE).bit_length()))
    edges = [np.append(np.searchsorted(p.rows.key, cuts), len(p.rows)) for p in pieces]
    return sum(
        len(np.unique(np.concatenate([p.rows.key[e[n] : e[n + 1]] for p, e in zip(pieces, edges, strict=True)])))
        for n in range(len(cuts))
    )


def build_delta(
    table: StateTable,
    key: Ints,
    has_key: npt.NDArray[np.bool_],
    time: Ints,
    columns: Mapping[str, pa.Array],
    truths: Mapping[str, npt.NDArray[np.bool_]],
    index: Ints | None = None,
) -> Delta:
    """Bits, dictionary and order of one table's new rows: those at `index` of whole columns, or all.

    Rows with a NULL key match nothing; at most they are counted.
    """
    bits = wanted_bits(table, has_key, columns, truths, index)
    wanted = np.asarray(bits.any(axis=1))
    ids, patterns = bits_ids(bits)
    some = np.flatnonzero(wanted)
    chosen = some if index is None else index[some]
    # Without a key all rows have the same one.
    own = np.zeros(len(chosen), dtype=np.int64) if table.timed else key[chosen]
    within = row_order(table, own, time[chosen], lambda name: columns[name].take(pa.array(chosen)))
    order = chosen[within]
    picked = pa.array(order)
    rows = Rows(
        own[within],
        time[order],
        ids[some[within]],
        roles_of(table, patterns),
        {name: columns[name].take(picked) for name in table.columns},
    )
    return Delta(rows, len(wanted) - len(chosen))


def wanted_bits(
    table: StateTable,
    has_key: npt.NDArray[np.bool_],
    columns: Mapping[str, pa.Array],
    truths: Mapping[str, npt.NDArray[np.bool_]],
    index: Ints | None = None,
) -> Words:
    """The entries of the table that each row (at `index`, or each of all) serves: none if no query wants the row."""
    if index is not None and len(index) < len(has_key):
        picked = pa.array(index)
        columns = {name: columns[name].take(picked) for name in {i.column for i in table.indexes}}
        truths = {name: values[index] for name, values in truths.items()}
        has_key = has_key[index]
    bits = row_bits(table, columns, truths, len(has_key))
    if not (table.stateless or table.timed or has_key.all()):
        counting = sum(1 << bit for bit, entry in enumerate(table.entries) if entry.counting)
        bits[~has_key] &= np.array(to_words(counting, bits.shape[1]), dtype=np.uint64)
    return bits


def alive(table: StateTable, rows: Rows, progress: Reached) -> npt.NDArray[np.bool_]:
    """Rows that some query can still use, given the progress of the other streams."""
    kept = _after(rows, {entry.id: table.horizon(entry, progress) for entry in table.entries if entry.counts is None})
    for entry in table.counted:
        # A row serves its own role only as long as the window counts it.
        kept |= _after(rows, {entry.id: table.horizon(entry, progress)}) & _inside(entry, rows, progress)
    return kept


def _after(rows: Rows, horizon: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    """Rows with a time after the horizon of some role that they serve."""
    dead = np.array(
        [
            min((horizon[r] for r in pattern if r in horizon), default=np.iinfo(np.int64).max)
            for pattern in rows.patterns
        ],
        dtype=np.int64,
    )
    return np.asarray(rows.time > dead[rows.bits]) if len(dead) else np.zeros(len(rows), dtype=np.bool_)


def _inside(entry: Entry, rows: Rows, progress: Reached) -> npt.NDArray[np.bool_] | bool:
    """Rows still inside the window at the time of the next result; new rows are not ranked yet and count as inside."""
    out = rows.columns.get(entry.out)
    if out is None:
        return True
    least = min((progress.get(stream, NEVER) for stream, _ in entry.lives), default=FOREVER)
    return np.asarray(out.to_numpy() > least)


def select(rows: Rows, keep: npt.NDArray[np.bool_]) -> Rows:
    """The rows to keep; the dictionary of bits ids is reduced to those in use."""
    if keep.all():
        return compact_patterns(rows)
    index = np.flatnonzero(keep)
    picked = pa.array(index)
    columns = {name: column.take(picked) for name, column in rows.columns.items()}
    return compact_patterns(Rows(rows.key[index], rows.time[index], rows.bits[index], rows.patterns, columns))


def compact_patterns(rows: Rows) -> Rows:
    used = np.unique(rows.bits)
    if len(used) == len(rows.patterns):
        return rows
    number = np.zeros(len(rows.patterns), dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return Rows(rows.key, rows.time, number[rows.bits], tuple(rows.patterns[i] for i in used), rows.columns)


def row_order(
    table: StateTable, key: Ints, time: Ints, column: Callable[[str], pa.Array], *, in_runs: bool = False
) -> Ints:
    """The order of rows in a run: key (and so bucket), time, declared sequence. `in_runs`: the rows are sorted runs."""
    if table.sequence is not None:
        return np.asarray(np.lexsort((ranks(column(table.sequence)), time, key)))
    # Most keys have few rows: sorting by key and then within keys is several times faster than a stable sort by both.
    # A stable sort merges runs instead of sorting from scratch.
    order = np.argsort(key, kind="stable" if in_runs else None)
    _order_ties(key, time, order)
    return np.asarray(order)


@njit(types.void(_INTS, _INTS, types.Array(types.int64, 1, "C")), cache=True, nogil=True)
def _order_ties(key, time, order):  # type: ignore[no-untyped-def]
    """Sort the rows of each key by time, in place."""
    start, count = 0, order.shape[0]
    while start < count:
        stop = start + 1
        while stop < count and key[order[stop]] == key[order[start]]:
            stop += 1
        if stop - start > 32:
            inside = order[start:stop].copy()
            order[start:stop] = inside[np.argsort(time[inside], kind="mergesort")]
        else:
            for i in range(start + 1, stop):
                row, j = order[i], i - 1
                while j >= start and time[order[j]] > time[row]:
                    order[j + 1] = order[j]
                    j -= 1
                order[j + 1] = row
        start = stop


def roles_of(table: StateTable, patterns: Words) -> tuple[tuple[int, ...], ...]:
    """The ids of the roles in each pattern of bits."""
    ids = np.array([entry.id for entry in table.entries], dtype=np.int64)
    bits = np.unpackbits(patterns.view(np.uint8), axis=1, bitorder="little")[:, : len(ids)].astype(np.bool_)
    return tuple(tuple(ids[row].tolist()) for row in bits)


def ranks(column: pa.Array) -> Ints:
    """Numbers in the order of the values, NULL first."""
    if len(column) <= FEW and column.null_count == 0 and pa.types.is_integer(column.type):
        return np.asarray(np.unique(column.to_numpy(), return_inverse=True)[1])
    encoded = column.dictionary_encode()
    ranks = np.full(len(encoded.dictionary) + 1, -1, dtype=np.int64)
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    return np.asarray(ranks[pc.fill_null(encoded.indices, len(ranks) - 1).to_numpy(zero_copy_only=False)])
