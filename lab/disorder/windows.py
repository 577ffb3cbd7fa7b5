"""Sliding windows over integer time, and their counts by definition and by punctuation (Li 2008, 5.1 and 6.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.counts import Counts
from penstock.model.time import NEVER


@dataclass(frozen=True)
class Sliding:
    """Window n holds the times from (n + 1) * slide - length on and below (n + 1) * slide."""

    length: int
    slide: int

    def end(self, window: int) -> int:
        return (window + 1) * self.slide

    def wids(self, time: int) -> range:
        """The windows that hold a time."""
        return range(time // self.slide, (time + self.length) // self.slide)

    def closed(self, bound: int) -> int:
        """The last window that ends at or before this time."""
        return bound // self.slide - 1


def true_counts(windows: Sliding, times: Iterable[int]) -> Counter[int]:
    """Rows by window, with all rows known: the oracle."""
    return Counter(window for time in times for window in windows.wids(time))


@dataclass
class PunctuatedCount:
    """One partial count per open window; a punctuation emits all that it closes. No row is stored or sorted."""

    windows: Sliding
    counts: Counts = field(default_factory=Counts)
    partial: Counter[int] = field(default_factory=Counter)
    answers: dict[int, int] = field(default_factory=dict)
    bound: int = NEVER

    def arrive(self, time: int) -> None:
        for window in self.windows.wids(time):
            if window not in self.partial:
                self.counts.stored()
            self.partial[window] += 1

    def punctuate(self, bound: int) -> list[int]:
        """The windows that it closes. One that skips ahead closes all that it passes."""
        self.bound = max(self.bound, bound)
        done = sorted(window for window in self.partial if self.windows.end(window) <= self.bound)
        for window in done:
            self.answers[window] = self.partial.pop(window)
            self.counts.removed()
        return done
