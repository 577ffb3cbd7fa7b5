"""`[RANGE r SLIDE 1 ROW]`: a window that ends with every row, or with every n-th."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PerRow:
    """A row at time w has the window (w - range, w], including other rows at w: open at its start, closed at its end.

    There is one result for every row or, if `rows` is n, for the n-th, 2n-th, .. row in stream order. Rows are counted
    from 1, before any predicate; with `partition` (columns) separately for each combination of values, each with its
    own windows. With `arrival` they are counted in the order of the stream's sequence instead. Ids are the times w.
    GROUP BY comes after and changes no window.
    """

    range: int
    rows: int = 1
    partition: tuple[str, ...] = ()
    arrival: bool = False

    def windows(self, times: Iterable[int]) -> list[int]:
        """The windows of these rows, given all their times: ascending, one per n-th row, so that ids may be equal.

        Rows counted by arrival must be given in that order.
        """
        counted = list(times) if self.arrival else sorted(times)
        return sorted(counted[self.rows - 1 :: self.rows])

    def extent(self, w: int) -> tuple[int, int]:
        """Half-open as for the other kinds: time has a smallest unit."""
        return w - self.range + 1, w + 1

    def wids(self, time: int, windows: Iterable[int]) -> Sequence[int]:
        """Those of `windows` that hold this time."""
        return [w for w in windows if time <= w < time + self.range]

    def closed(self, progress: int) -> int:
        """The first window that is still open: a row of time `progress` may still come."""
        return progress
