"""`[RANGE r SLIDE s]` and `[TUMBLING r]`: intervals of time whose ends lie one slide apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sliding:
    """Window n is [origin + (n + 1) * slide - range, origin + (n + 1) * slide).

    The ends are aligned to the origin. Without an origin it is 0 and ids are signed. With one, time begins there: the
    first windows are cut at it, and an earlier time is in no window. A range below the slide leaves gaps.
    """

    range: int
    slide: int
    origin: int | None = None

    @property
    def start(self) -> int:
        """The time that windows are counted from."""
        return self.origin or 0

    def windows(self, times: Iterable[int]) -> list[int]:
        """The windows that hold at least one of these times, ascending."""
        return sorted({n for time in times for n in self.wids(time)})

    def extent(self, n: int) -> tuple[int, int]:
        end = self.start + (n + 1) * self.slide
        begin = end - self.range
        return (begin if self.origin is None else max(begin, self.origin)), end

    def wids(self, time: int) -> Sequence[int]:
        since = time - self.start
        if self.origin is not None and since < 0:
            return range(0)
        return range(since // self.slide, (since + self.range) // self.slide)

    def closed(self, progress: int) -> int:
        """The first window that is still open: those below it end at or before `progress`."""
        return (progress - self.start) // self.slide
