"""`[RANGE r SLIDE 1 ROW]`: a window that ends with every row, or with every n-th."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PerRow:
    """A row at time w has the window (w - range, w], rows of its own time included: open at its start and closed at its end.

    There is one result for every row, or for the n-th, 2n-th, .. row in the order of the stream where `rows` is n; rows are
    counted from 1, before any predicate, and with `partition` (columns) apart for each combination of its values, which then
    has windows of its own. With `arrival` they are counted in the order of the stream's sequence instead. Ids are the times w. GROUP BY
    comes after and changes no window.
    """

    range: int
    rows: int = 1
    partition: tuple[str, ...] = ()
    arrival: bool = False

    def windows(self, times: Iterable[int]) -> list[int]:
        """The windows of these rows, given all their times: ascending, one for each n-th row, so that ids may be equal.

        Rows that are counted by arrival are given in that order.
        """
        counted = list(times) if self.arrival else sorted(times)
        return sorted(counted[self.rows - 1 :: self.rows])

    def extent(self, w: int) -> tuple[int, int]:
        """As for the other kinds the half-open interval: time has a smallest unit."""
        return w - self.range + 1, w + 1

    def wids(self, time: int, windows: Iterable[int]) -> Sequence[int]:
        """Those of `windows` that hold this time."""
        return [w for w in windows if time <= w < time + self.range]

    def closed(self, progress: int) -> int:
        """The first window that is still open: a row of time `progress` may still come."""
        return progress
