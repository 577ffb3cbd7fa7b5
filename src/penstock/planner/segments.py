"""State without a key is spread over tasks by time: each task scans one segment, and every new row visits all of them.

A stored row is in exactly one segment and never moves: a segment is a range of time, chosen anew for each step so that all hold
about the same number of rows. How many there are follows from the latency of one step (Wang 2008, 13.5): more segments share the
work of comparing, but each costs something by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from penstock.model.time import NEVER
from penstock.planner.share import Held


@dataclass(frozen=True)
class Scan:
    """One step's scanning: `rows` that arrive, `held` rows that each is compared with, over `streams` streams."""

    rows: float
    held: float
    streams: int = 2


@dataclass(frozen=True)
class Timing:
    """Seconds: to compare a `pair`, to `send` a row to a task, and what each `task` costs by itself."""

    pair: float = 25e-9
    send: float = 1.5e-6
    task: float = 4e-3


def latency(scan: Scan, count: int, timing: Timing) -> float:
    """The average latency with so many segments: falls while comparing dominates, and then rises with their number."""
    compared = scan.rows * scan.held * timing.pair
    working = compared / count + scan.rows * timing.send
    return (count - 1) / 2 * timing.task + max(working, scan.streams * count * timing.task)


def segment_count(scan: Scan, most: int, timing: Timing | None = None) -> int:
    """The number of segments, up to `most`, with the least latency; the fewest of equal ones."""
    known = timing or Timing()
    return min(range(1, most + 1), key=lambda count: (latency(scan, count, known), count))


def segment_starts(runs: Sequence[Held], count: int, tasks: int) -> tuple[int, ...]:
    """Where the segment of each task begins, balanced by rows; tasks without one begin at the end of time.

    Of a run only its number of rows and its range of times is known: its rows count as spread evenly.
    """
    last = max((run.max_time for run in runs), default=0) + 1
    cuts = sorted({run.min_time for run in runs} | {run.max_time + 1 for run in runs})
    if len(cuts) < 2:
        return (NEVER, *[last] * (tasks - 1))
    between = np.zeros(len(cuts) - 1)
    edges = np.array(cuts, dtype=np.int64)
    for run in runs:
        first, end = np.searchsorted(edges, [run.min_time, run.max_time + 1])
        widths = np.diff(edges[first : end + 1])
        between[first:end] += run.rows * widths / widths.sum()
    below = np.array([0.0, *accumulate(between.tolist())])
    wanted = [below[-1] * n / count for n in range(1, count)]
    starts = np.interp(wanted, below, edges - edges[0]).astype(np.int64) + edges[0]
    return (NEVER, *starts.tolist(), *[last] * (tasks - count))
