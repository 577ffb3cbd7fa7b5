"""Merge sorted runs of one state table to longer ones: the kernel of compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.delta import alive, row_order, select
from penstock.model.time import FOREVER
from penstock.planner.network import StateTable
from penstock.state.compaction import MOST_INTERVALS, interval_length, interval_of, life_class, wider
from penstock.state.run import Rows


def merge_runs(table: StateTable, runs: Sequence[Rows], progress: Mapping[str, int]) -> Rows | None:
    """All rows of the runs that are still in reach, sorted, with dead role ids dropped; None if no row is left.

    A column that an older run lacks (no query wanted it then) is filled with NULL: the queries that want it now
    started after those rows and do not see them.
    """
    current = {entry.id for entry in table.entries}
    numbers: dict[tuple[int, ...], int] = {}
    pieces = []
    for rows in runs:
        kept = select(rows, alive(table, rows, progress))
        if len(kept):
            local = [
                numbers.setdefault(tuple(r for r in pattern if r in current), len(numbers)) for pattern in kept.patterns
            ]
            pieces.append((kept, np.array(local, dtype=np.int32)[kept.bits]))
    if not pieces:
        return None
    key = np.concatenate([rows.key for rows, _ in pieces])
    time = np.concatenate([rows.time for rows, _ in pieces])
    bits = np.concatenate([ids for _, ids in pieces])
    together = {}
    for name in table.columns:
        kind = next((rows.columns[name].type for rows, _ in pieces if name in rows.columns), pa.null())
        together[name] = pa.concat_arrays([rows.columns.get(name, pa.nulls(len(rows), kind)) for rows, _ in pieces])
    order = row_order(table, key, time, lambda name: together[name])
    picked = pa.array(order)
    columns = {name: column.take(picked) for name, column in together.items()}
    return Rows(key[order], time[order], bits[order], tuple(numbers), columns)


def split_by_life(table: StateTable, rows: Rows, least: int = 0) -> list[tuple[int, Rows]]:
    """The rows as (life class, rows of one class and one time interval), each sorted as before.

    No class is below `least`, or so short that its rows would fall into very many intervals.
    """
    classes = pattern_classes(table, rows)
    widened = {}
    for life in np.unique(classes[rows.bits]).tolist():
        times = rows.time[classes[rows.bits] == life]
        first, last, wide = int(times.min()), int(times.max()), max(life, least)
        while interval_of(last, wide) - interval_of(first, wide) >= MOST_INTERVALS:
            wide = wider(wide)
        widened[life] = wide
    lives = np.array([widened.get(life, life) for life in classes.tolist()], dtype=np.int64)[rows.bits]
    pieces: list[tuple[int, Rows]] = []
    for life in np.unique(lives).tolist():
        of_class = lives == life
        interval = np.zeros_like(rows.time) if life >= FOREVER else rows.time // interval_length(life)
        numbers = np.unique(interval[of_class]).tolist()
        pieces.extend((life, select(rows, of_class & (interval == number))) for number in numbers)
    return pieces


def longest_life(table: StateTable, rows: Rows) -> int:
    """The longest life class among the rows."""
    return int(pattern_classes(table, rows)[rows.bits].max())


def pattern_classes(table: StateTable, rows: Rows) -> npt.NDArray[np.int64]:
    """The life class of each bits id: that of the longest life among its roles."""
    life = {entry.id: max((length for _, length in entry.lives), default=0) for entry in table.entries}
    return np.array(
        [life_class(max((life.get(role, 0) for role in pattern), default=0)) for pattern in rows.patterns],
        dtype=np.int64,
    )
