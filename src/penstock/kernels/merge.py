"""Merge sorted runs of one state table into longer ones: the kernel of compaction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.delta import Delta, alive, row_order, select
from penstock.kernels.owed import STEP, steps_of
from penstock.model.time import FOREVER
from penstock.planner.chain import link_of
from penstock.planner.reached import Reached
from penstock.planner.state_table import StateTable
from penstock.state.compaction import MOST_INTERVALS, interval_length, interval_of, wider
from penstock.state.run import Rows, gap


def merge_runs(table: StateTable, runs: Sequence[Rows], progress: Reached, since: int | None = None) -> Rows | None:
    """All rows of the runs that have not expired, sorted, without ids of dropped roles; None if no row is left.

    If they tell their steps, those `since` that one stay whether they have expired or not.

    A column that an older run lacks (no query needed it then) is filled with NULL: the queries that need it now began
    after those rows and do not see them. Such rows are marked beside their roles, for queries that begin from state.
    """
    current = {entry.id for entry in table.entries}
    numbers: dict[tuple[int, ...], int] = {}
    pieces = []
    for rows in runs:
        stay = alive(table, rows, progress)
        if since is not None and STEP in rows.columns:
            stay |= steps_of(rows) >= since
        kept = select(rows, stay)
        if len(kept):
            lacks = tuple(gap(name) for name in table.columns if name not in kept.columns)
            local = [
                numbers.setdefault((*(r for r in pattern if r in current or r < 0), *lacks), len(numbers))
                for pattern in kept.patterns
            ]
            pieces.append((kept, np.array(local, dtype=np.int32)[kept.bits]))
    return _merged(table, pieces, tuple(numbers)) if pieces else None


def merge_deltas(table: StateTable, deltas: Sequence[Delta]) -> Delta:
    """The delta of all rows of several deltas."""
    if len(deltas) == 1:
        return deltas[0]
    return Delta(merge_fresh(table, [delta.rows for delta in deltas]), sum(delta.unwanted for delta in deltas))


def merge_fresh(table: StateTable, pieces: Sequence[Rows]) -> Rows:
    """All rows of sorted pieces of one step."""
    if len(pieces) == 1:
        return pieces[0]
    numbers: dict[tuple[int, ...], int] = {}
    numbered = []
    for rows in pieces:
        own = np.array([numbers.setdefault(p, len(numbers)) for p in rows.patterns], dtype=np.int32)
        numbered.append((rows, own[rows.bits]))
    return _merged(table, numbered, tuple(numbers))


def _merged(
    table: StateTable, pieces: Sequence[tuple[Rows, npt.NDArray[np.int32]]], patterns: tuple[tuple[int, ...], ...]
) -> Rows:
    """The rows of sorted pieces as one, with their bits ids among these patterns."""
    runs = [rows for rows, _ in pieces]
    key, time = np.concatenate([rows.key for rows in runs]), np.concatenate([rows.time for rows in runs])
    order = row_order(table, key, time, lambda name: whole_column(runs, name), in_runs=True)
    picked = pa.array(order)
    columns = {
        name: whole_column(runs, name).take(picked) for name in _names(table, runs)
    }  # one at a time: each is large
    return Rows(key[order], time[order], np.concatenate([ids for _, ids in pieces])[order], patterns, columns)


def _names(table: StateTable, runs: Sequence[Rows]) -> list[str]:
    return [*table.columns, *([STEP] if all(STEP in rows.columns for rows in runs) else ())]


def types_of(table: StateTable, runs: Sequence[Rows]) -> dict[str, pa.DataType]:
    """The types of the columns of all runs together; see `whole_column`."""
    found = {}
    for name in _names(table, runs):
        kinds = (rows.columns[name].type for rows in runs if name in rows.columns)
        found[name] = next((kind for kind in kinds if not pa.types.is_null(kind)), pa.null())
    return found


def whole_column(runs: Sequence[Rows], name: str) -> pa.Array:
    """A column of all runs; NULL where a run lacks it or has it untyped, because it was merged from such runs only."""
    arrays = [rows.columns.get(name, pa.nulls(len(rows))) for rows in runs]
    kind = next((array.type for array in arrays if not pa.types.is_null(array.type)), pa.null())
    return pa.concat_arrays([array if array.type == kind else array.cast(kind) for array in arrays])


def lay_out(table: StateTable, rows: Rows, least: int = 0) -> list[tuple[int, Rows]]:
    """The rows as (end of link, rows of one link and one time interval), each sorted as before.

    No link ends before `least`, or so early that its rows would be split into very many intervals.
    """
    links = pattern_links(table, rows)
    cells = np.arange(len(links)) if table.by_cell else np.zeros(len(links), dtype=np.int64)
    widened = {}
    for link in np.unique(links[rows.bits]).tolist():
        times = rows.time[links[rows.bits] == link]
        first, last, wide = int(times.min()), int(times.max()), max(link, least)
        while interval_of(last, wide) - interval_of(first, wide) >= MOST_INTERVALS:
            wide = wider(wide)
        widened[link] = wide
    ends = np.array([widened.get(link, link) for link in links.tolist()], dtype=np.int64)[rows.bits]
    pieces: list[tuple[int, Rows]] = []
    for cell in np.unique(cells[rows.bits]).tolist():
        of_cell = cells[rows.bits] == cell
        for end in np.unique(ends[of_cell]).tolist():
            of_link = of_cell & (ends == end)
            interval = np.zeros_like(rows.time) if end >= FOREVER else rows.time // interval_length(end)
            numbers = np.unique(interval[of_link]).tolist()
            pieces.extend((end, select(rows, of_link & (interval == number))) for number in numbers)
    return pieces


def fresh_runs(table: StateTable, rows: Rows) -> list[tuple[int, Rows]]:
    """The rows of one step as (end of the last link they reach, rows): one piece, or one per cell."""
    links = pattern_links(table, rows)
    if not table.by_cell:
        return [(int(links[rows.bits].max()), rows)]
    return [(int(links[cell]), select(rows, rows.bits == cell)) for cell in np.unique(rows.bits).tolist()]


def pattern_links(table: StateTable, rows: Rows) -> npt.NDArray[np.int64]:
    """For each bits id the end of the link that contains the end of the longest life among its roles."""
    life = {entry.id: entry.life for entry in table.entries}
    lives = [max((life.get(role, 0) for role in pattern), default=0) for pattern in rows.patterns]
    return np.array([link_of(table.chain, own) for own in lives], dtype=np.int64)
