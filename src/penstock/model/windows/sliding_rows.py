"""`[RANGE n ROWS SLIDE m ROWS]`: the last n rows, every m rows, over all rows or in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SlidingRows:
    """Window n is the rows of ranks [(n + 1) * slide - range, (n + 1) * slide), ranks counted from 0.

    Rows are ranked in stream order, before any predicate, and with `partition` (columns) separately for each
    combination of values, NULL included. GROUP BY comes after and changes no window.
    """

    range: int
    slide: int
    partition: tuple[str, ...] = ()

    def windows(self, ranks: Iterable[int]) -> list[int]:
        """The windows that hold at least one of these ranks, ascending."""
        return sorted({n for rank in ranks for n in self.wids(rank)})

    def extent(self, n: int) -> tuple[int, int]:
        """Its ranks; the first windows hold fewer."""
        end = (n + 1) * self.slide
        return max(end - self.range, 0), end

    def wids(self, rank: int) -> Sequence[int]:
        return range(rank // self.slide, (rank + self.range) // self.slide)

    def ended(self, count: int) -> int:
        """How many windows `count` rows have if no more come: the last one ends at or after the last row."""
        return -(-count // self.slide)

    def closed(self, final: int) -> int:
        """The first window that is still open once that many rows have a final rank."""
        return final // self.slide
