"""State without a key is distributed over tasks by time: each task scans one segment, and every new row visits all.

A stored row is in exactly one segment and never moves: a segment is a range of time, chosen anew for each step so that
all hold about the same number of rows in reach. Rows that have expired and are still stored do not count: segments that
are cut by counts alone would be uneven as soon as the rate of a stream changes (Wang 2008, 14.1). Their number follows
from the latency of one step (13.5): more segments share the work of comparing, but each has a fixed cost. Segments
decide who compares what, never the result: errors in these estimates do not affect answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.model.time import NEVER
from penstock.planner.reached import Clock, Reached
from penstock.planner.share import Held

PARTS = 10  # of a run per task: so many known times keep the largest segment below 1.5 times the smallest
MOST_PARTS = 160
TOLERANCE = 0.1  # of the latency: the number of segments changes only if more is won

NOTHING_REACHED: Reached = MappingProxyType({})

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Spread(Held, Protocol):
    """A run with known times that cut its rows into parts of equal size; without any, rows count as spread evenly."""

    @property
    def quantiles(self) -> tuple[int, ...]: ...
    @property
    def until(self) -> tuple[tuple[Clock, int], ...]: ...


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


def settled_count(scan: Scan, before: int | None, best: int, most: int, timing: Timing) -> int:
    """The number of segments after `before` ones, if `best` has the least latency: it stays if little is won."""
    if before is None or before > most:
        return best
    stays = latency(scan, before, timing) <= (1 + TOLERANCE) * latency(scan, best, timing)
    return before if stays else best


def quantiles(times: Ints, tasks: int) -> tuple[int, ...]:
    """The times that cut a run (its times in order) into parts of equal size, as many as its segments may need."""
    parts = min(len(times), PARTS * tasks, MOST_PARTS)
    return tuple(times[np.arange(1, parts) * len(times) // max(1, parts)].tolist())


def segment_starts(
    runs: Sequence[Spread], count: int, tasks: int, progress: Reached = NOTHING_REACHED
) -> tuple[int, ...]:
    """The start of each task's segment, balanced by rows in reach; segments of the other tasks begin at the end."""
    last = max((run.max_time for run in runs), default=0) + 1
    if not runs:
        return (NEVER, *[last] * (tasks - 1))
    first, end, rows = _in_reach(runs, progress)
    if not rows.any():
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


def rows_in_reach(runs: Sequence[Spread], progress: Reached) -> float:
    """How many of the rows new ones can still join; all rows of a run live as long as its last."""
    return float(_in_reach(runs, progress)[2].sum()) if runs else 0.0


def segments_in(starts: Sequence[int], runs: Sequence[Spread]) -> int:
    """How many segments these starts make; those of other tasks begin after the last row."""
    last = max((run.max_time for run in runs), default=NEVER)
    return max(1, sum(start <= last for start in starts))


def _in_reach(runs: Sequence[Spread], progress: Reached) -> tuple[Ints, Ints, Floats]:
    """As `_parts`, with what of each part new rows can still join."""
    gone = []
    for run in runs:
        ends = [progress.get(stream, NEVER) - end for stream, end in run.until]
        gone += [max(NEVER, min(ends, default=NEVER) + run.max_time)] * (len(run.quantiles) + 1)
    first, end, rows = _parts(runs)
    dead = np.clip(np.array(gone, dtype=np.int64) + 1, first, end)
    past = (dead - first) / (end - first)
    # A part that is gone keeps its place, without rows.
    return np.minimum(dead, end - 1), end, rows * (1.0 - past)


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
