"""The order-agnostic join of two streams, and two joins with results in the order of the first (Li 2008, 7.1).

A pair matches if its keys are equal and neither time is a window or more behind the other: `ts_1 - ts_0 < lengths[0]`
and the reverse.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.counts import Counts
from penstock.model.time import NEVER


class Timed(NamedTuple):
    """A row of either stream."""

    time: int
    key: int
    number: int


Pair = tuple[Timed, Timed]


@dataclass
class OrderAgnosticJoin:
    """Each row probes the other store and is stored while a partner may come; progress expires the other's store."""

    lengths: tuple[int, int]
    counts: Counts = field(default_factory=Counts)
    output: list[Pair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bounds = [NEVER, NEVER]
        self.stores: list[list[Timed]] = [[], []]

    @property
    def progress(self) -> int:
        """No later pair has a time of the first stream below this."""
        return min(self.bounds[0], self.bounds[1] - self.lengths[0] + 1)

    @property
    def box(self) -> tuple[int, int]:
        """No later pair has its first time below box[0] *and* its second below box[1] (7.2, clipped to the band).

        It does not wait for a window, so that grouping by both times closes a group no later than `progress` does.
        """
        return min(self.bounds[0], self.bounds[1] + self.lengths[1]), min(
            self.bounds[1], self.bounds[0] + self.lengths[0]
        )

    @property
    def held(self) -> int:
        return self.counts.state

    def arrive(self, stream: int, row: Timed) -> None:
        for other in self.stores[1 - stream]:
            self.counts.probes += 1
            pair = (row, other) if stream == 0 else (other, row)
            if row.key == other.key and self._near(pair):
                self._emit(pair)
        if row.time > self.bounds[1 - stream] - self.lengths[stream]:
            self.stores[stream].append(row)
            self.counts.stored()

    def punctuate(self, stream: int, bound: int) -> None:
        self.bounds[stream] = max(self.bounds[stream], bound)
        other = 1 - stream
        self._purge(other, self.bounds[stream] - self.lengths[other])

    def _purge(self, stream: int, at: int) -> None:
        """Rows at or before this time can join no later row."""
        kept = [row for row in self.stores[stream] if row.time > at]
        self.counts.purge_tests += len(self.stores[stream])
        for _ in range(len(self.stores[stream]) - len(kept)):
            self.counts.removed()
        self.stores[stream] = kept

    def _near(self, pair: Pair) -> bool:
        apart = pair[1].time - pair[0].time
        return -self.lengths[1] < apart < self.lengths[0]

    def _emit(self, pair: Pair) -> None:
        self.output.append(pair)


class OutputBufferedJoin(OrderAgnosticJoin):
    """OPOB: pairs wait in a heap until progress has passed them; it stores results instead of rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heap: list[tuple[int, int, Pair]] = []

    def punctuate(self, stream: int, bound: int) -> None:
        super().punctuate(stream, bound)
        while self.heap and self.heap[0][0] < self.progress:
            self.output.append(heapq.heappop(self.heap)[2])
            self.counts.removed()

    def _emit(self, pair: Pair) -> None:
        heapq.heappush(self.heap, (pair[0].time, self.counts.probes, pair))
        self.counts.stored()


class InputBufferedJoin(OrderAgnosticJoin):
    """OPIB: rows of the first stream wait, in order, until all partners are there: all pairs wait for a window."""

    def arrive(self, stream: int, row: Timed) -> None:
        self.stores[stream].append(row)
        self.counts.stored()

    def punctuate(self, stream: int, bound: int) -> None:
        self.bounds[stream] = max(self.bounds[stream], bound)
        ready = min(self.bounds[0], self.bounds[1] - self.lengths[0] + 1)
        for row in sorted(row for row in self.stores[0] if row.time < ready):
            for other in self.stores[1]:
                self.counts.probes += 1
                if row.key == other.key and self._near((row, other)):
                    self._emit((row, other))
        self._purge(0, ready - 1)
        following = min([self.bounds[0], *(row.time for row in self.stores[0])])
        self._purge(1, following - self.lengths[1])
