"""Counting with slack: rows wait for `slack` units of time and pass in order; still later rows are late.

After Li 2008, 6.1.5. `consistent` drops a late row from all its windows if one of them has closed, `generous` counts it
in the open ones. Rows have passed once the newest time is `slack` ahead of them, whether or not any row was there to
pass: the printed form uses the last row that passed.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass, field

from lab.counts import Counts
from lab.disorder.windows import Sliding
from lab.workload import LabError
from penstock.model.time import NEVER

POLICIES = ("consistent", "generous")


@dataclass
class SlackCount:
    """Sorts within the slack, and counts a window over buffered rows when it closes."""

    windows: Sliding
    slack: int
    policy: str = "consistent"
    counts: Counts = field(default_factory=Counts)
    waiting: list[int] = field(default_factory=list)  # a heap
    ordered: list[int] = field(default_factory=list)
    # Rows that still count, with the last window closed before them.
    late: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    newest: int = NEVER
    dropped: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            msg = f"slack is one of {', '.join(POLICIES)}, not {self.policy!r}"
            raise LabError(msg)

    @property
    def passed(self) -> int:
        """Rows below this have passed; windows that end at or before it have closed."""
        return self.newest - self.slack

    def arrive(self, time: int) -> list[int]:
        """The windows that the row closes."""
        if self.newest > NEVER and time < self.passed:
            self._late(time)
            return []
        heapq.heappush(self.waiting, time)
        self.counts.stored()
        return self._advance(max(self.newest, time))

    def finish(self) -> list[int]:
        """The stream has ended: everything passes and closes."""
        return self._advance(self.newest + self.windows.length + self.slack) if self.newest > NEVER else []

    def _late(self, time: int) -> None:
        closed = self.windows.closed(self.passed)
        still = [window for window in self.windows.wids(time) if window > closed]
        whole = len(still) == len(self.windows.wids(time))
        if still and (whole or self.policy == "generous"):
            self.late.append((time, closed))
            self.counts.stored()
        else:
            self.dropped += 1

    def _advance(self, newest: int) -> list[int]:
        before = self.windows.closed(self.passed) if self.newest > NEVER else None
        self.newest = newest
        while self.waiting and self.waiting[0] < self.passed:
            bisect.insort(self.ordered, heapq.heappop(self.waiting))
        closed = self.windows.closed(self.passed)
        oldest = min([*self.ordered[:1], *(time for time, _ in self.late)], default=None)
        if oldest is None or (before is not None and closed <= before):
            return []
        first = oldest // self.windows.slide
        done = []
        for window in range(first if before is None else max(first, before + 1), closed + 1):
            end = self.windows.end(window)
            inside = bisect.bisect_left(self.ordered, end) - bisect.bisect_left(self.ordered, end - self.windows.length)
            inside += sum(window > missed and window in self.windows.wids(time) for time, missed in self.late)
            self.counts.probes += len(self.ordered)
            if inside:
                self.answers[window] = inside
                done.append(window)
        self._evict(closed)
        return done

    def _evict(self, closed: int) -> None:
        keep = bisect.bisect_left(self.ordered, self.windows.end(closed + 1) - self.windows.length)
        for _ in self.ordered[:keep]:
            self.counts.removed()
        self.ordered = self.ordered[keep:]
        kept = [(time, missed) for time, missed in self.late if self.windows.wids(time)[-1] > closed]
        for _ in range(len(self.late) - len(kept)):
            self.counts.removed()
        self.late = kept


def wrong_share(answers: dict[int, int], truth: dict[int, int]) -> float:
    """Windows whose answer is wrong or missing, of all that have one."""
    return sum(answers.get(window) != rows for window, rows in truth.items()) / max(1, len(truth))
