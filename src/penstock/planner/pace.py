"""How long to wait between steps: the longest interval that keeps a bound on latency.

A step costs something by itself and something for each row (Golab & Ozsu 2003, on lazy evaluation): rarer steps cost less in all, and make
rows wait longer. Both costs, and the rate of rows, are measured while the engine runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

REMEMBERED = 64  # steps
POLLING = 0.01  # seconds from one look for new rows to the next, where no trigger is given (Spark's default)
PAUSE = 1.0  # seconds without a batch that looking for one does not explain: there was nothing to find


@dataclass
class Pace:
    """Learns the cost of steps. `bound` is the most seconds from a row's arrival to its results."""

    bound: float
    steps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))  # (rows, seconds)
    spans: deque[float] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED)
    )  # seconds from one step's start to the next's

    def observe(self, rows: float, seconds: float, span: float) -> None:
        """One step took so long for so many rows, and began `span` seconds after the one before."""
        self.steps.append((rows, seconds))
        self.spans.append(span)

    @property
    def costs(self) -> tuple[float, float]:
        """Seconds of a step by itself, and for each row: the straight line through the steps that fits best."""
        count = len(self.steps)
        if count == 0:
            return 0.0, 0.0
        rows = sum(r for r, _ in self.steps) / count
        seconds = sum(s for _, s in self.steps) / count
        spread = sum((r - rows) ** 2 for r, _ in self.steps)
        if spread == 0:
            return seconds, 0.0
        each = max(0.0, sum((r - rows) * (s - seconds) for r, s in self.steps) / spread)
        each = min(each, seconds / rows if rows else 0.0)  # a step by itself costs something, never less than nothing
        return seconds - each * rows, each

    @property
    def rate(self) -> float:
        """Rows that arrive in a second."""
        time = sum(self.spans)
        return sum(r for r, _ in self.steps) / time if time > 0 else 0.0

    @property
    def interval(self) -> float:
        """Seconds from one step's start to the next's: a row waits so long at most, and then for the step that takes all such rows."""
        fixed, each = self.costs
        return max(0.0, (self.bound - fixed) / (1 + each * self.rate))

    def wait(self, seconds: float) -> float:
        """How long to wait after a step that took so long."""
        return max(0.0, self.interval - seconds)


@dataclass(frozen=True)
class Turn:
    """One batch by the clock: when Spark had `planned` it, when its results were `done`, and when Spark was free again."""

    planned: float
    done: float
    returned: float


def longest_delay(before: Turn, turn: Turn, trigger: float) -> float:
    """The most seconds from the arrival of a row of this turn to its results, after the turn `before`.

    Spark looks for new rows once in each trigger, or as soon as it is free; it calls no batch when it finds none. A row was there at none of
    those looks: it has waited since the one before at most, however long nothing came. The look itself, and what a source or the engine
    holds back, are not counted.
    """
    trigger = max(trigger, POLLING)
    free = max(before.returned, before.planned + trigger)
    if turn.planned > free + trigger + PAUSE:
        unseen = trigger
    else:
        unseen = min(turn.planned - before.planned, max(trigger, before.returned - before.planned))
    return max(0.0, unseen) + turn.done - turn.planned


def longest_delays(turns: Sequence[Turn], trigger: float) -> list[float]:
    """The longest delay in each turn but the first, of which it is not known since when its rows were there."""
    return [longest_delay(before, turn, trigger) for before, turn in pairwise(turns)]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
