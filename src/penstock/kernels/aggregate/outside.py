"""Rows in no window of a query: before its origin, or in the gaps of windows shorter than their slide."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate.entries import patterns_of
from penstock.model.windows import AggregateWindow, Landmark, PerRow, Sliding, SlidingRows
from penstock.planner.aggregates import AggregatePlan
from penstock.state.run import Ints, Rows


def in_no_window(window: AggregateWindow | None, times: Ints) -> npt.NDArray[np.bool_] | None:
    """Which of these times are in no window; None if every time is in one."""
    if not isinstance(window, Sliding | Landmark):
        return None
    gaps = isinstance(window, Sliding) and window.range < window.slide
    if window.origin is None and not gaps:
        return None
    since = times - window.start
    found = since < 0 if window.origin is not None else np.zeros(len(times), dtype=np.bool_)
    if isinstance(window, Sliding) and gaps:
        found |= since % window.slide < window.slide - window.range
    return np.asarray(found)


def inside(plan: AggregatePlan, rows: pa.Table) -> pa.Table:
    """The rows that some query selects and has a window for; others need not be stored."""
    windows = {query.window for query in plan.queries}
    if any(isinstance(window, SlidingRows | PerRow) for window in windows):
        return rows  # all rows count there, whatever queries they serve
    times = rows.column("_ts").to_numpy()
    outside = {window: in_no_window(window, times) for window in windows}
    if all(found is None for found in outside.values()):
        return rows
    patterns = patterns_of(rows) or ()
    bits = rows.column("_bits").to_numpy() if patterns else None
    kept = np.zeros(len(rows), dtype=np.bool_)
    for query in plan.queries:
        found = outside[query.window]
        own = np.ones(len(rows), dtype=np.bool_) if found is None else ~found
        if bits is not None:
            own &= np.array([query.selection in pattern for pattern in patterns], dtype=np.bool_)[bits]
        kept |= own
    return rows if kept.all() else rows.filter(pa.array(kept))


def count_outside(plan: AggregatePlan, rows: Rows) -> dict[int, int]:
    """By query: how many of these rows it selects and has no window for."""
    counts = {}
    for query in plan.queries:
        found = in_no_window(query.window, rows.time)
        if found is None:
            continue
        serving = np.array([query.selection in pattern for pattern in rows.patterns], dtype=np.bool_)
        if count := int((found & serving[rows.bits]).sum()):
            counts[query.query] = count
    return counts
