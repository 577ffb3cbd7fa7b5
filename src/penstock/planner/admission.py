"""How much one step may read of sources that say of themselves to read everything: by what steps have cost.

A source that counts rows gets as many as fit into the target, by the best straight line through the last steps. Of
files only bytes can be limited, and nobody knows beforehand how many rows they hold: their limit follows the duration
of full steps, by at most a factor of two at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.planner.pace import Pace

TARGET = 10.0  # seconds of a step that has all it may read
FIRST_BYTES, LEAST_BYTES, MOST_BYTES = 256 << 20, 1 << 20, 16 << 30
FIRST_ROWS, LEAST_ROWS = 1_000_000, 1_000
FULL = 0.8  # of the rows of the largest step remembered: only such a step says that more could be read


@dataclass
class Admission:
    """Learns what a step may read of each source."""

    target: float = TARGET
    bytes: int = field(default_factory=lambda: FIRST_BYTES)
    rows: int = FIRST_ROWS
    _pace: Pace = field(default_factory=lambda: Pace(TARGET))

    def observe(self, rows: int, seconds: float) -> None:
        """Record a step over rows."""
        if not rows or seconds <= 0:
            return
        self._pace.observe(rows, seconds, seconds)
        largest = max(count for count, _ in self._pace.steps)
        most = 2.0 if rows >= FULL * largest else 1.0
        factor = min(most, max(0.5, self.target / seconds))
        self.bytes = min(MOST_BYTES, max(LEAST_BYTES, int(self.bytes * factor)))
        fixed, each = self._pace.costs
        if each > 0:
            # Never far beyond what was seen: a line through small steps says little about large ones.
            self.rows = max(LEAST_ROWS, int(min(4 * largest, max(0.0, self.target - fixed) / each)))
