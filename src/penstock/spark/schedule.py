"""When batches start: by a trigger, or as rarely as a bound on latency allows; and how long rows waited for results.

Spark polls for new rows by its trigger. With 'auto' it polls as soon as it is free, and a batch delays its end; the
planner chooses how long.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from penstock.planner.pace import Pace, Turn, longest_delays, percentile


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

    def wait(self, started: float, seconds: float, rows: int, stopping: Callable[[], bool]) -> None:
        """After a batch, wait as long as the pace says, or until the run is stopping."""
        if self.pace is not None:
            self.pace.observe(rows, seconds, started - self._last_start if self._last_start else seconds)
            until = time.monotonic() + self.pace.wait(seconds)
            while not stopping() and time.monotonic() < until:
                time.sleep(min(0.05, max(0.0, until - time.monotonic())))
        self._last_start = started

    def turned(self, planned: float, done: float) -> None:
        """Record a batch: when Spark planned it, when its results were done; Spark continues now."""
        # A batch planned before the start of this query waited for that, not for a trigger.
        planned = max(planned, self._query_started)
        self.turns.append(Turn(min(planned, done), done, max(done, time.time())))

    @property
    def between_looks(self) -> float:
        """The seconds between two polls of Spark for new rows."""
        return self.trigger_seconds if self.pace is None else self.pace.interval or 0.0

    @property
    def delay(self) -> dict[str, float | None]:
        """The longest delays from arrival to results in the last steps, in seconds."""
        delays = longest_delays(list(self.turns), self.trigger_seconds)
        return {f"p{p}": percentile(delays, p / 100) for p in (50, 99)}
