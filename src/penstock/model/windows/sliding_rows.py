"""`[RANGE n ROWS SLIDE m ROWS]`: the last n rows, every m rows, over all rows or in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SlidingRows:
    """Window n is the rows of ranks [(n + 1) * slide - range, (n + 1) * slide), ranks counted from 0.

    Rows are ranked in the order of their stream, before any predicate, and with `partition` (columns) apart for each
    combination of its values, NULL being one of them. GROUP BY comes after and changes no window.
    """

    range: int
    slide: int
    partition: tuple[str, ...] = ()

    def windows(self, ranks: Iterable[int]) -> list[int]:
        """The windows that hold at least one of these ranks, ascending."""
        return sorted({n for rank in ranks for n in self.wids(rank)})

    def extent(self, n: int) -> tuple[int, int]:
        """Its ranks; the first windows are short."""
        end = (n + 1) * self.slide
        return max(end - self.range, 0), end

    def wids(self, rank: int) -> Sequence[int]:
        return range(rank // self.slide, (rank + self.range) // self.slide)

    def ended(self, count: int) -> int:
        """The windows below this are all there are when no row comes after so many: the last of them ends at or after the last row."""
        return -(-count // self.slide)

    def closed(self, final: int) -> int:
        """The first window that is still open when that many rows have a final rank."""
        return final // self.slide
