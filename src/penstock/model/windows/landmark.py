"""`[RANGE ALL SLIDE s]`: everything from the beginning on, once per slide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.model.time import EARLIEST, FOREVER


@dataclass(frozen=True)
class Landmark:
    """Window n is all time before origin + (n + 1) * slide, from the origin on if one is given."""

    slide: int
    origin: int | None = None

    @property
    def start(self) -> int:
        """The time that windows are counted from."""
        return self.origin or 0

    def windows(self, times: Iterable[int]) -> Sequence[int]:
        """From the first window that holds one of these times to the first that holds them all."""
        firsts = [ids[0] for time in times if (ids := self.wids(time))]
        return range(min(firsts), max(firsts) + 1) if firsts else range(0)

    def extent(self, n: int) -> tuple[int, int]:
        """Its interval; without an origin it begins before every possible time."""
        return (EARLIEST if self.origin is None else self.origin), self.start + (n + 1) * self.slide

    def wids(self, time: int) -> Sequence[int]:
        """Every window from this one on: a range to test, never to enumerate."""
        since = time - self.start
        if self.origin is not None and since < 0:
            return range(0)
        return range(since // self.slide, self.closed(FOREVER))

    def closed(self, progress: int) -> int:
        """The first window that is still open: those below it end at or before `progress`."""
        return (progress - self.start) // self.slide
