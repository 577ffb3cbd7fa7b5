"""State without a key is distributed over tasks by time: each task scans one segment, and every new row visits all.

A stored row is in exactly one segment and never moves: a segment is a range of time, chosen anew for each step so that
all hold about the same number of rows. Their number follows from the latency of one step (Wang 2008, 13.5): more
segments share the work of comparing, but each has a fixed cost. Segments decide who compares what, never the result:
errors in these estimates do not affect answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.model.time import NEVER
from penstock.planner.share import Held

PARTS = 10  # of a run per task: so many known times keep the largest segment below 1.5 times the smallest
MOST_PARTS = 160

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Spread(Held, Protocol):
    """A run with known times that cut its rows into parts of equal size; without any, rows count as spread evenly."""

    @property
    def quantiles(self) -> tuple[int, ...]: ...
    @property
    def until(self) -> tuple[tuple[str, int], ...]: ...


@dataclass(frozen=True)
class Scan:
    """One step's scanning: `rows` that arrive, `held` rows that each is compared with, over `streams` streams."""

    rows: float
    held: float
    streams: int = 2


@dataclass(frozen=True)
class Timing:
    """Seconds to compare a `pair`, to `send` a row to a task, and per `task`."""

    pair: float = 25e-9
    send: float = 1.5e-6
    task: float = 4e-3


def latency(scan: Scan, count: int, timing: Timing) -> float:
    """The average latency with so many segments: it falls while comparing dominates, then rises with their number."""
    compared = scan.rows * scan.held * timing.pair
    working = compared / count + scan.rows * timing.send
    return (count - 1) / 2 * timing.task + max(working, scan.streams * count * timing.task)


def segment_count(scan: Scan, most: int, timing: Timing | None = None) -> int:
    """The number of segments, up to `most`, with the least latency; ties go to fewer."""
    known = timing or Timing()
    return min(range(1, most + 1), key=lambda count: (latency(scan, count, known), count))


def quantiles(times: Ints, tasks: int) -> tuple[int, ...]:
    """The times that cut a run (its times in order) into parts of equal size, as many as its segments may need."""
    parts = min(len(times), PARTS * tasks, MOST_PARTS)
    return tuple(times[np.arange(1, parts) * len(times) // max(1, parts)].tolist())


def segment_starts(runs: Sequence[Spread], count: int, tasks: int) -> tuple[int, ...]:
    """The start of each task's segment, balanced by rows; segments of the other tasks begin at the end of time."""
    last = max((run.max_time for run in runs), default=0) + 1
    if not runs:
        return (NEVER, *[last] * (tasks - 1))
    first, end, rows = _parts(runs)
    # The density of rows between two cuts of any run, and so how many lie below each of them.
    at = np.concatenate([first, end])
    density = np.concatenate([rows / (end - first), -rows / (end - first)])
    cuts, place = np.unique(at, return_inverse=True)
    between = np.cumsum(np.bincount(place, density))[:-1] * np.diff(cuts)
    below = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(between)]))
    wanted = [below[-1] * n / count for n in range(1, count)]
    starts = np.rint(np.interp(wanted, below, cuts - cuts[0])).astype(np.int64) + cuts[0]
    return (NEVER, *starts.tolist(), *[last] * (tasks - count))


def rows_in_reach(runs: Sequence[Spread], progress: Mapping[str, int]) -> float:
    """How many of the rows new ones can still join; all rows of a run live as long as its last."""
    if not runs:
        return 0.0
    gone = []
    for run in runs:
        ends = [progress.get(stream, NEVER) - end for stream, end in run.until]
        gone += [max(NEVER, min(ends, default=NEVER) + run.max_time)] * (len(run.quantiles) + 1)
    first, end, rows = _parts(runs)
    past = np.clip((np.array(gone, dtype=np.int64) + 1 - first) / (end - first), 0.0, 1.0)
    return float((rows * (1.0 - past)).sum())


def _parts(runs: Sequence[Spread]) -> tuple[Ints, Ints, Floats]:
    """(first time, time after the last, rows) of each part of each run."""
    first: list[int] = []
    end: list[int] = []
    sizes, counts = [], []
    for run in runs:
        known = (run.min_time, *run.quantiles)
        following = known if run.rows == len(known) else (*run.quantiles, run.max_time + 1)
        first += known
        end += following
        sizes.append(run.rows / len(known))
        counts.append(len(known))
    starts = np.array(first, dtype=np.int64)
    # Rows of equal time cannot be split; where every row is known, each lies at its own time.
    return starts, np.maximum(np.array(end, dtype=np.int64), starts + 1), np.repeat(sizes, counts)
