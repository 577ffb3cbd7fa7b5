"""Early results: open windows that have changed since they were last shown, with their content so far.

A landmark has infinitely many open windows: of each group only the first that holds all its rows is shown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.close import (
    Closed,
    Gathered,
    refused,
    results_of,
    serving,
    shown_as,
    since_origin,
    time_frames,
)
from penstock.kernels.aggregate.results import TooManyError
from penstock.model.time import FOREVER
from penstock.model.windows import Landmark
from penstock.planner.aggregates import Windowed

CAME = "_came"  # the column with the step in which a row or partial was added


def marked(table: pa.Table, step: int) -> pa.Table:
    """The table with the step that added its rows (or the last one merged into it)."""
    return table.append_column(CAME, pa.array(np.full(len(table), step, dtype=np.int64)))


def open_windows(gathered: Gathered, query: Windowed, progress: int, since: int, *, runs: bool = False) -> Closed:
    """The windows that end after `progress` and hold an entry added after step `since`; tables must be `marked`.

    `runs` combines windows of equal content.
    """
    entries = since_origin(serving(gathered.ordered, gathered.columns, query.selection, fold=False), query)
    newest = max(int(gathered.ordered.positions.max()), progress)
    frames = time_frames(gathered.plan, query, entries, progress, FOREVER, newest)
    came = gathered.ordered.table.column(CAME).to_numpy()[entries.row_of] > since
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(came)])
    frames = frames.take(before[frames.high] > before[frames.low])
    if isinstance(query.window, Landmark):
        whole = frames.high == entries.starts[frames.group + 1]
        frames = replace(frames, last=np.where(whole, frames.first, frames.last))
    shown = shown_as(query, frames)
    try:
        return replace(results_of(gathered.plan, query, entries, frames, shown, runs=runs), early=True)
    except TooManyError as error:
        return refused(query, error)
