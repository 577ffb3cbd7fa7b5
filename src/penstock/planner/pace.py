"""How long to wait between steps: the longest interval that keeps a bound on latency.

A step has a fixed cost and a cost per row (Golab & Ozsu 2003, on lazy evaluation): fewer steps cost less in all, and
make rows wait longer. Both costs, and the rate of rows, are measured while the engine runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

REMEMBERED = 64  # steps
POLLING = 0.01  # seconds between polls for new rows without a trigger (Spark's default)
PAUSE = 1.0  # seconds without a batch that polling does not explain: there were no rows


@dataclass
class Pace:
    """Learns the cost of steps. `bound` is the maximal number of seconds from a row's arrival to its results."""

    bound: float
    steps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))  # (rows, seconds)
    # Seconds from one step's start to the next's.
    spans: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def observe(self, rows: float, seconds: float, span: float) -> None:
        """Record a step: its rows, its duration, and `span`, the seconds since the start of the previous step."""
        self.steps.append((rows, seconds))
        self.spans.append(span)

    @property
    def costs(self) -> tuple[float, float]:
        """Seconds per step and per row: the best straight line through the steps."""
        count = len(self.steps)
        if count == 0:
            return 0.0, 0.0
        rows = sum(r for r, _ in self.steps) / count
        seconds = sum(s for _, s in self.steps) / count
        spread = sum((r - rows) ** 2 for r, _ in self.steps)
        if spread == 0:
            return seconds, 0.0
        each = max(0.0, sum((r - rows) * (s - seconds) for r, s in self.steps) / spread)
        each = min(each, seconds / rows if rows else 0.0)  # the fixed cost of a step is never negative
        return seconds - each * rows, each

    @property
    def rate(self) -> float:
        """Rows that arrive per second."""
        time = sum(self.spans)
        return sum(r for r, _ in self.steps) / time if time > 0 else 0.0

    @property
    def interval(self) -> float:
        """Seconds between the starts of steps: a row waits at most that long, and then for the step that takes it."""
        fixed, each = self.costs
        return max(0.0, (self.bound - fixed) / (1 + each * self.rate))

    def wait(self, seconds: float) -> float:
        """How long to wait after a step of this duration."""
        return max(0.0, self.interval - seconds)


@dataclass(frozen=True)
class Turn:
    """One batch by the clock: when Spark `planned` it, when its results were `done`, and when Spark was free again."""

    planned: float
    done: float
    returned: float


def longest_delay(before: Turn, turn: Turn, trigger: float) -> float:
    """The maximal seconds from the arrival of a row of this turn to its results, after the turn `before`.

    Spark polls for new rows once per trigger, or as soon as it is free; it starts no batch when there are none. No poll
    before this one found the row, so it has waited at most since the previous poll, however long no row came. The poll
    itself, and delays in the source or the engine, are not counted.
    """
    trigger = max(trigger, POLLING)
    free = max(before.returned, before.planned + trigger)
    if turn.planned > free + trigger + PAUSE:
        unseen = trigger
    else:
        unseen = min(turn.planned - before.planned, max(trigger, before.returned - before.planned))
    return max(0.0, unseen) + turn.done - turn.planned


def longest_delays(turns: Sequence[Turn], trigger: float) -> list[float]:
    """The longest delay in each turn but the first, for which the arrival of rows is unknown."""
    return [longest_delay(before, turn, trigger) for before, turn in pairwise(turns)]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
