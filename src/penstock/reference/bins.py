"""Windows that end with each row, one row at a time and in any order of arrival (Li 2008, 6.1.4, as it should read).

A bin at time b holds the aggregate of the rows in (b - range, b]. A row opens a bin at its own time, which becomes a
result, and one at the time when it leaves the window, which does not. Both start as copies of the bin before them; then
the row is added to every bin that contains it. Nothing is subtracted, so any function works. This is a second
definition of `PerRow` with one row per slide, and not part of any plan.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State")


@dataclass
class Bins(Generic[State]):
    """The open bins. `add` must not change the given state."""

    range: int
    zero: State
    add: Callable[[State, object], State]
    base: State = field(init=False)
    times: list[int] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.zero

    def row(self, time: int, value: object) -> None:
        """Add a row, which must not be late."""
        for bin_time in (time, time + self.range):
            if bin_time not in self.states:
                self.states[bin_time] = self._below(bin_time)
                insort(self.times, bin_time)
        self.results[time] = self.results.get(time, 0) + 1
        for bin_time in self.times:
            if time <= bin_time < time + self.range:
                self.states[bin_time] = self.add(self.states[bin_time], value)

    def progress(self, reached: int) -> list[tuple[int, State]]:
        """The results that no later row can change, one per row; the last bin closed becomes the base of the next."""
        found = []
        over = bisect_right(self.times, reached - 1)
        for time in self.times[:over]:
            self.base = self.states.pop(time)
            found += [(time, self.base)] * self.results.pop(time, 0)
        del self.times[:over]
        return found

    def _below(self, time: int) -> State:
        """The aggregate at a time where nothing begins or ends: that of the last bin before it."""
        at = bisect_right(self.times, time)
        return self.states[self.times[at - 1]] if at else self.base
