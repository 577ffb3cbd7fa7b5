"""Rows that are in no window of a query: before its origin, or in the gaps of windows shorter than their slide."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.model.windows import AggregateWindow, Landmark, Sliding
from penstock.planner.aggregates import AggregatePlan
from penstock.state.run import Ints, Rows


def in_no_window(window: AggregateWindow | None, times: Ints) -> npt.NDArray[np.bool_] | None:
    """Which of these times are in no window; None where every time is in one."""
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
