"""Which partials and rows open windows still need at some progress, and which may expire.

Sessions can be told from their rows only. Landmarks need only a total, and windows that count rows only the number of
expired ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate import frames as framing
from penstock.kernels.aggregate.close import by_begin, merge, merged_anew, serving, spans_of
from penstock.kernels.aggregate.entries import lift, load, sort
from penstock.kernels.aggregate.ranking import arrived_since, expire_ranked, wanted_rows
from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import AggregateWindow, Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.aggregates import AggregatePlan, Windowed
from penstock.planner.panes import INSTANT

LATEST_END = 2 * FOREVER - 1  # no window ends later


def horizon(plan: AggregatePlan, progress: int) -> int | None:
    """The earliest position that an open window may need: older partials or rows can expire unread.

    None if that depends on the rows (`alive`), or if expired rows leave something behind (`expire`): sessions,
    landmarks, windows that count rows.
    """
    needed = [_earliest(query.window, progress) for query in plan.queries]
    found = [position for position in needed if position is not None]
    return min(found) if found and len(found) == len(needed) else None


def _earliest(window: AggregateWindow | None, progress: int) -> int | None:
    match window:
        case Sliding():
            return window.start + (window.closed(progress) + 1) * window.slide - window.range
        case PerRow(length, rows):
            return progress - length + 1 if rows == 1 else None
        case None:
            return progress
        case _:
            return None


def needed_until(plan: AggregatePlan, position: int) -> int:
    """The progress from which no window needs what lies up to `position`; FOREVER if only `expire` can decide."""
    found = position
    for query in plan.queries:
        match query.window:
            case Sliding() | None:
                window = query.window or INSTANT
                inside = window.wids(position)
                found = max(found, window.extent(inside[-1])[1]) if inside else found
            case PerRow(length, 1):
                found = max(found, position + length)
            case _:
                return FOREVER
    return found


def alive(plan: AggregatePlan, table: pa.Table, progress: int) -> npt.NDArray[np.bool_]:
    """Rows of a table that a window still open at this progress needs; for sessions `table` must hold all rows."""
    buffered = plan.width is None
    positions = table.column("_ts" if buffered else "_pane").to_numpy()
    needed = np.zeros(len(table), dtype=np.bool_)
    for query in plan.queries:
        match query.window:
            case Sliding() | None:
                needed |= positions >= _earliest(query.window, progress)
            case Landmark():
                needed[:] = True
            case PerRow(length):
                needed |= positions > progress - length
            case SlidingRows():
                needed |= wanted_rows(query.window, table, progress)
            case Session(gap):
                needed |= _in_open_sessions(plan, query, table, gap, progress)
    return needed


def expire(plan: AggregatePlan, tables: Sequence[pa.Table], progress: int) -> pa.Table | None:
    """One table of what open windows need; None if they need nothing.

    What only landmarks need becomes one partial per group; expired rows that are still counted become their number.
    """
    held = [table for table in tables if len(table)]
    if not held:
        return None
    whole = merge(plan, held)
    needed = alive(plan, whole, progress)
    landmarks = any(isinstance(q.window, Landmark) for q in plan.queries)
    if plan.width is not None and landmarks:
        others = replace(plan, queries=tuple(q for q in plan.queries if not isinstance(q.window, Landmark)))
        # A pane that begins after progress must keep its time: the next landmark window may end before it begins.
        at = whole.schema.get_field_index("_pane")
        panes = whole.column(at).to_numpy()
        kept = alive(others, whole, progress) | (panes >= progress) | (panes == NEVER)
        origins = [
            NEVER if q.window.origin is None else q.window.origin
            for q in plan.queries
            if isinstance(q.window, Landmark)
        ]
        # What lies before the origin of some landmark must keep its time; before all origins nothing is needed.
        together = ~kept & (panes >= max(origins))
        kept |= panes >= min(origins)
        placed = whole.set_column(at, "_pane", pa.array(np.where(together, NEVER, panes))).filter(pa.array(kept))
        return merged_anew(plan, [placed]) if len(placed) else None
    if plan.ranked:
        partition = max(len(q.window.partition) for q in plan.queries if isinstance(q.window, SlidingRows | PerRow))
        if any(isinstance(q.window, PerRow) and q.window.arrival for q in plan.queries):
            needed = arrived_since(whole, needed, partition)
        return expire_ranked(whole, needed, partition)
    return whole.filter(pa.array(needed)) if needed.any() else None


def _in_open_sessions(
    plan: AggregatePlan, query: Windowed, table: pa.Table, gap: int, progress: int
) -> npt.NDArray[np.bool_]:
    """Entries of sessions that a later row may still extend."""
    buffered = plan.width is None
    ordered = sort(table, "_ts" if buffered else "_pane", ordered=buffered and plan.ordered)
    number = next(n for n, piece in enumerate(plan.pieces) if piece.kind == "span")
    columns = lift(plan, ordered, [number]) if buffered else load(plan, ordered, [number])
    entries = by_begin(plan, serving(ordered, columns, query.selection, fold=False))
    spans = spans_of(plan, entries)
    frames = framing.sessions(entries.starts, spans.begins, spans.ends, gap, progress, LATEST_END)
    edges = np.zeros(len(entries) + 1, dtype=np.int64)
    np.add.at(edges, frames.low, 1)
    np.add.at(edges, frames.high, -1)
    needed = np.zeros(len(table), dtype=np.bool_)
    needed[entries.row_of[np.cumsum(edges[:-1]) > 0]] = True
    return needed
