"""Result rows that stand for several windows one slide apart, showing the first and their number: shift, cut, expand.

The number may exceed what fits in memory, so rows are expanded in bounded pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.expression import WINDOW_END, WINDOW_START
from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import Landmark, Sliding
from penstock.state.run import Ints

RUN = "_windows"  # how many windows a row stands for; NULL or no column: one
END = WINDOW_END


def moved(runs: pa.Table, window: Sliding | Landmark, by: Ints, counts: Ints, end: str = END) -> pa.Table:
    """Rows whose windows begin `by` windows later, with other counts; `end` is the column of window ends.

    All windows of a landmark begin at the same time.
    """
    ends = runs.column(end).to_numpy() + by * window.slide
    changed = {end: ends, RUN: counts}
    if isinstance(window, Sliding):
        begins = ends - window.range
        changed[WINDOW_START] = begins if window.origin is None else np.maximum(begins, window.origin)
    for name, values in changed.items():
        at = runs.schema.get_field_index(name)
        if at >= 0:
            runs = runs.set_column(at, name, pa.array(values))
    return runs


def cut(runs: pa.Table, window: Sliding | Landmark, first: int, before: int, end: str = END) -> pa.Table:
    """The windows of these rows that end at `first` or later and before `before`."""
    ends, counts = runs.column(end).to_numpy(), counts_of(runs)
    skipped = np.zeros_like(counts) if first <= NEVER else np.clip(-((ends - first) // window.slide), 0, counts)
    stops = counts if before >= FOREVER else np.clip(-((ends - before) // window.slide), skipped, counts)
    if not skipped.any() and (stops == counts).all():
        return runs
    kept = np.flatnonzero(stops > skipped)
    return moved(runs.take(pa.array(kept)), window, skipped[kept], (stops - skipped)[kept], end)


def written_out(runs: pa.Table, window: Sliding | Landmark, at_once: int, end: str = END) -> Iterator[pa.Table]:
    """One row per window, in tables of at most `at_once` rows."""
    counts = counts_of(runs)
    row, done = 0, 0  # the next row, and how many of its windows were yielded
    while row < len(counts):
        ahead = np.minimum(counts[row : row + at_once], at_once)
        ahead[0] = min(int(counts[row]) - done, at_once)
        whole = int(np.searchsorted(np.cumsum(ahead), at_once, side="right"))
        taken = ahead[: max(whole, 1)]
        index = np.repeat(np.arange(row, row + len(taken)), taken)
        number = np.arange(len(index)) - np.repeat(np.cumsum(taken) - taken, taken)
        number[: taken[0]] += done
        yield moved(runs.take(pa.array(index)), window, number, np.ones(len(index), dtype=np.int64), end)
        left = int(counts[row]) - done - int(taken[0])
        row, done = (row, done + int(taken[0])) if left else (row + len(taken), 0)


def counts_of(runs: pa.Table) -> Ints:
    """How many windows each row stands for."""
    if RUN not in runs.column_names:
        return np.ones(len(runs), dtype=np.int64)
    return np.asarray(pc.fill_null(runs.column(RUN), 1).to_numpy())
