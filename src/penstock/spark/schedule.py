"""When batches start: by a trigger, or as rarely as a bound on latency allows; and how long rows waited for results.

Spark polls for new rows by its trigger. With 'auto' it polls as soon as it is free, and a batch delays its end; the
planner chooses how long.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from math import inf

from penstock.planner.pace import Pace, Turn, longest_delays, percentile


@dataclass(frozen=True)
class Delays:
    """The last batches of a Spark query with a trigger of that many seconds."""

    turns: tuple[Turn, ...]
    trigger: float

    def longest(self) -> dict[str, float | None]:
        """The longest delays from arrival to results, in seconds."""
        delays = longest_delays(self.turns, self.trigger)
        return {f"p{p}": percentile(delays, p / 100) for p in (50, 99)}


class Schedule:
    """The batches of a run by the clock. `latency` is the maximal time from arrival to results, for trigger 'auto'."""

    def __init__(self, trigger: str, latency: float) -> None:
        self.trigger = "0 seconds" if trigger == "auto" else trigger  # with 'auto' the batch itself waits
        self.pace = Pace(latency) if trigger == "auto" else None
        self.turns: deque[Turn] = deque(maxlen=257)  # of this Spark query
        self.trigger_seconds = self._query_started = self._last_start = 0.0

    def begin(self, trigger_seconds: float) -> None:
        """A Spark query starts now, with a trigger of that length."""
        self.trigger_seconds = trigger_seconds
        self._query_started = time.time()
        self.turns.clear()

    def pause(self, started: float, seconds: float, rows: int) -> float:
        """The seconds to wait after a batch, as the pace says."""
        wait = 0.0
        if self.pace is not None:
            self.pace.observe(rows, seconds, started - self._last_start if self._last_start else seconds)
            wait = self.pace.wait(seconds)
        self._last_start = started
        return wait

    def turned(self, planned: float, done: float, pause: float) -> None:
        """Record a batch: when Spark planned it, when its results were done; Spark continues after the pause."""
        # A batch planned before the start of this query waited for that, not for a trigger.
        planned = max(planned, self._query_started)
        self.turns.append(Turn(min(planned, done), done, max(done, time.time()) + pause))

    @property
    def longest_step(self) -> float:
        """The seconds that a step may take: those between two batches, or the bound on latency."""
        if self.pace is not None:
            return self.pace.bound
        return self.trigger_seconds or inf

    @property
    def between_looks(self) -> float:
        """The seconds between two polls of Spark for new rows."""
        return self.trigger_seconds if self.pace is None else self.pace.interval or 0.0

    @property
    def delays(self) -> Delays:
        """The batches so far."""
        return Delays(tuple(self.turns), self.trigger_seconds)
