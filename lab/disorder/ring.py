"""The highest rate without lost rows: a ring buffer of fixed length before aggregation at two levels (Li 2008, 8.3.3).

Rows arrive evenly; serving one takes a fixed time, and so does every slot that leaves meanwhile. A row that finds the
ring full is lost. Times are simulated: only their ratios have a meaning.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from lab.disorder.flush import TwoLevels


@dataclass(frozen=True)
class Ring:
    """`places` for rows that wait or are served; `row` and `slot` are the seconds to serve one of them."""

    places: int = 24
    row: float = 1e-3
    slot: float = 0.25e-3


@dataclass(frozen=True)
class Load:
    """Rows of `groups` at random, for some windows of `length` seconds each."""

    groups: int
    length: float = 4.0
    windows: int = 3
    seed: int = 1


def keeps_up(levels: TwoLevels, ring: Ring, load: Load, rate: float) -> bool:
    """Whether no row is lost at this many rows per second."""
    draw = random.Random(load.seed)  # noqa: S311  (a repeatable workload, no secret)
    keys = [draw.randrange(2**32) for _ in range(load.groups)]
    ends: deque[float] = deque()  # when each row in the ring will have been served
    for number in range(int(rate * load.length * load.windows)):
        now = number / rate
        while ends and ends[0] <= now:
            ends.popleft()
        if len(ends) >= ring.places:
            return False
        before = len(levels.emitted)
        levels.arrive(int(now // load.length), draw.choice(keys))
        begin = ends[-1] if ends else now
        ends.append(begin + ring.row + ring.slot * (len(levels.emitted) - before))
    return True


def sustained_rate(
    size: int, policy: str, load: Load, ring: Ring | None = None, *, every: int = 16, step: float = 25.0
) -> float:
    """The highest rate, in steps, without lost rows; by bisection, since loss grows with the rate."""
    used = ring or Ring()
    low, high = 0, int(1 / used.row / step) + 2  # the time to serve a row bounds the rate
    while high - low > 1:
        middle = (low + high) // 2
        if keeps_up(TwoLevels(size, policy, 2, every), used, load, middle * step):
            low = middle
        else:
            high = middle
    return low * step
