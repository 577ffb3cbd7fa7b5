"""Results stored as closed panes: the panes that a step adds, how many windows it closes, and their assembly on read.

All queries over overlapping windows share these panes (decision 0017). The closed windows are recorded elsewhere: a
*closing* is (step, after, until), and a window belongs to the step with `after` < end <= `until`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.close import close, folded, gather, serving, since_origin, time_frames
from penstock.kernels.aggregate.entries import Entries, load, patterns_of, sort_together
from penstock.kernels.aggregate.repeats import END, RUN, moved
from penstock.kernels.aggregate.results import total_of
from penstock.model.time import FOREVER
from penstock.model.windows import Sliding
from penstock.planner.aggregates import AggregatePlan, Windowed
from penstock.planner.panes import pane_width

Closing = tuple[int, int, int]


def window_counts(
    plan: AggregatePlan, tables: Sequence[pa.Table], queries: Sequence[tuple[Windowed, int]], after: int, until: int
) -> list[int]:
    """How many windows with `after` < end <= `until` hold an entry, for each (query, earliest allowed start)."""
    wanted = ["_key", *(f"g{n}" for n in range(plan.groups)), "_pane", "_bits"]
    gathered = gather(plan, [table.select([c for c in wanted if c in table.column_names]) for table in tables])
    if gathered is None:
        return [0] * len(queries)
    newest = int(gathered.ordered.positions.max())
    seen: dict[bytes, Entries] = {}
    found = []
    for query, first in queries:
        alike = gathered.ordered.pattern(query.selection)
        if alike not in seen:
            seen[alike] = serving(gathered.ordered, (None,) * len(plan.pieces), query.selection, fold=False)
        entries = since_origin(seen[alike], query)
        frames = time_frames(plan, query, entries, _seen_whole(query, first, after), until, newest)
        found.append(total_of(frames.windows))
    return found


def pane_edge(queries: Sequence[Windowed], progress: int) -> int:
    """The end of the last pane that progress has closed, among the panes of these queries' windows."""
    if progress >= FOREVER:
        return FOREVER
    found = pane_width([query.window for query in queries])
    assert found is not None, "windows of rows have no panes"
    width, base = found
    return base + (progress - base) // width * width


def closed_panes(
    plan: AggregatePlan, tables: Sequence[pa.Table], queries: Sequence[Windowed], since: int, edge: int
) -> pa.Table:
    """The panes of [since, edge) that serve one of the queries, as wide as these allow, with the pieces they need.

    `since` is a pane edge, perhaps of another set of queries: all later entries lie after it, however wide panes are.
    """
    found = pane_width([query.window for query in queries])
    assert found is not None, "windows of rows have no panes"
    width, base = found
    selections = {query.selection for query in queries}
    chosen = sort_together([_inside(table, since, edge, selections) for table in tables], "_pane")
    needed = sorted({0, *(piece for query in queries for measure in query.measures for piece in measure)})
    panes = np.maximum(base + (chosen.positions - base) // width * width, since)
    return folded(chosen, panes, load(plan, chosen, needed))


def _inside(table: pa.Table, since: int, edge: int, selections: set[int]) -> pa.Table:
    """The panes of a table in [since, edge) that serve one of these selections."""
    panes = table.column("_pane").to_numpy()
    wanted = (panes >= since) & (panes < edge)
    patterns = patterns_of(table)
    if patterns is not None:
        served = np.array([bool(selections.intersection(pattern)) for pattern in patterns], dtype=np.bool_)
        wanted &= served[table.column("_bits").to_numpy()]
    return table.take(pa.array(np.flatnonzero(wanted)))


def assembled(plan: AggregatePlan, panes: pa.Table, closings: Sequence[Closing], first: int) -> pa.Table | None:
    """The windows of the plan's only query that these closings have closed, from all its panes; None if there are none.

    Equal windows that one step (`_step`) has closed are one row with their number.
    """
    if not closings:
        return None
    query = plan.queries[0]
    ordered = sorted(closings, key=lambda closing: closing[2])
    steps, after, until = (np.array(column, dtype=np.int64) for column in zip(*ordered, strict=True))
    low = _seen_whole(query, first, int(after.min()))
    found = close(plan, [panes], low, int(until[-1]), runs=True)
    if not found:
        return None
    assert isinstance(query.window, Sliding)
    table = found[0].table
    ends, counts = (table.column(name).to_numpy() for name in (END, RUN))
    slide = query.window.slide
    # The closings that overlap a run, each of which closed a part of it; no window is closed twice.
    begun = np.searchsorted(until, ends)
    pieces = np.maximum(np.searchsorted(after, ends + (counts - 1) * slide) - begun, 0)
    index = np.repeat(np.arange(len(ends)), pieces)
    place = begun[index] + np.arange(len(index)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = np.maximum(-((ends[index] - after[place] - 1) // slide), 0)
    stops = np.minimum((until[place] - ends[index]) // slide + 1, counts[index])
    mine = np.flatnonzero(stops > begins)
    table = moved(table.take(pa.array(index[mine])), query.window, begins[mine], (stops - begins)[mine])
    return table.append_column("_step", pa.array(steps[place[mine]]))


def _seen_whole(query: Windowed, first: int, after: int) -> int:
    """The end after which windows are shown: those that start before `first` are not."""
    window = query.window
    assert isinstance(window, Sliding)
    if window.origin is not None and window.origin >= first:
        return after
    return max(after, first + window.range - 1)
