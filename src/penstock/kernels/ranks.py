"""Windows that count rows: when each row of a state table leaves them, and which rows take part in a step.

With `[ROWS n]` a row leaves the window when the n-th row after it, in stream order, arrives. That time is final once
progress has passed it, so a join with such windows is evaluated on rows that progress has closed: there each row leaves
the window at a known time, as with any other window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.delta import ranks
from penstock.kernels.merge import whole_column
from penstock.kernels.walk import Slices
from penstock.model.time import FOREVER
from penstock.planner.state_table import StateTable
from penstock.state.cold import Cold
from penstock.state.run import Ints, Rows


def rank(table: StateTable, runs: Sequence[Rows]) -> list[Rows]:
    """All rows of a table, with a column per window that counts rows: the time at which the row leaves it, if ever.

    A query's windows do not count rows from before the query began.
    """
    if not runs:
        return []
    time = np.concatenate([rows.time for rows in runs])
    outs: dict[str, Ints] = {}
    orders: dict[tuple[str, ...], tuple[Ints, Ints]] = {}
    for entry in table.counted:
        assert entry.counts is not None
        partition, count = entry.counts.partition, entry.counts.count
        if partition not in orders:
            orders[partition] = _in_order(table, runs, time, partition)
        order, group = orders[partition]
        counted = np.concatenate([_serve(rows, entry.id) for rows in runs])
        places = order[counted[order]]
        out = np.full(len(time), FOREVER, dtype=np.int64)
        one, other = places[:-count], places[count:]
        same = group[one] == group[other]
        out[one[same]] = time[other[same]]
        outs[entry.out] = out
    edges = np.cumsum([len(rows) for rows in runs])[:-1]
    pieces = {name: np.split(out, edges) for name, out in outs.items()}
    return [
        replace(rows, columns={**rows.columns, **{name: pa.array(own[number]) for name, own in pieces.items()}})
        for number, rows in enumerate(runs)
    ]


def _serve(rows: Rows, role: int) -> npt.NDArray[np.bool_]:
    return np.array([role in pattern for pattern in rows.patterns], dtype=np.bool_)[rows.bits]


def _in_order(table: StateTable, runs: Sequence[Rows], time: Ints, partition: Sequence[str]) -> tuple[Ints, Ints]:
    """The places of rows by partition and then stream order, and the number of each row's partition."""
    event_time = table.order[0]

    def numbers(name: str) -> list[Ints]:
        return [time] if name == event_time else _numbers(whole_column(runs, name))

    group = np.zeros(len(time), dtype=np.int64)
    for name in partition:
        _, group = np.unique(np.column_stack([group, numbers(name)[0]]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.lexsort((time, group))
    # Few rows share a time as a rule, and only they need the other columns.
    tied = np.zeros(len(time), dtype=np.bool_)
    again = (np.diff(time[order]) == 0) & (np.diff(group[order]) == 0)
    tied[order[1:][again]] = tied[order[:-1][again]] = True
    if tied.any():
        chosen = np.flatnonzero(tied)
        picked = pa.array(chosen)
        of_values, of_zeros = [], []
        for name in table.order[1:]:
            places = np.zeros((2, len(time)), dtype=np.int64)
            for row, own in zip(places, _numbers(whole_column(runs, name).take(picked)), strict=False):
                row[chosen] = own
            of_values.append(places[0])
            of_zeros.append(places[1])
        order = np.lexsort((*reversed(of_zeros), *reversed(of_values), time, group))
    return order, group


def _numbers(column: pa.Array) -> list[Ints]:
    """Numbers in the order of the values, NULL first; for floats a second number that puts -0.0 before 0.0."""
    if pa.types.is_null(column.type):
        return [np.zeros(len(column), dtype=np.int64)]
    if not pa.types.is_floating(column.type):
        return [ranks(column)]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    _, found = np.unique(values + 0.0, return_inverse=True)  # all NaN are one value, the largest
    negative = (values == 0) & np.signbit(values) & valid
    return [np.where(valid, found.reshape(-1), -1), -negative.astype(np.int64)]


def closed(slices: Slices, before: int, now: int) -> Slices:
    """The rows for a join that is evaluated on what progress has closed.

    Old are stored rows with a time below `before`, which the last step had closed. New are the rows, stored or of this
    step, that `now` closes.
    """

    def old(held: Mapping[int, Sequence[Rows | Cold]]) -> dict[int, list[Rows | Cold]]:
        return {table: [*_between(runs, None, before)] for table, runs in held.items()}

    def new(held: Mapping[int, Sequence[Rows | Cold]], came: Mapping[int, Sequence[Rows]]) -> dict[int, list[Rows]]:
        tables = dict.fromkeys([*held, *came])
        return {
            table: [*_between(held.get(table, ()), before, now), *_between(came.get(table, ()), None, now)]
            for table in tables
        }

    # New rows begin at the task that stores them: which rows are new, each step decides anew.
    return Slices(
        old(slices.own), new(slices.own, slices.fresh), old(slices.whole), new(slices.whole, slices.every),
        old(slices.lent), new(slices.lent, slices.lent_fresh),
    )  # fmt: skip


def _between(runs: Sequence[Rows | Cold], low: int | None, high: int) -> list[Rows]:
    found = []
    for rows in runs:
        if isinstance(rows, Cold):  # no table of such a join has any
            continue
        inside = rows.time < high if low is None else (rows.time >= low) & (rows.time < high)
        if inside.all():
            found.append(rows)
        elif inside.any():
            index = np.flatnonzero(inside)
            picked = pa.array(index)
            columns = {name: column.take(picked) for name, column in rows.columns.items()}
            found.append(Rows(rows.key[index], rows.time[index], rows.bits[index], rows.patterns, columns))
    return found
