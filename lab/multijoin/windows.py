"""Contents of windows: lists with the newest tuple last, one per bucket of the hash index (Golab & Ozsu 2003, 6.1).

Whether a tuple is live is decided at the time of the new tuple it meets, never at the time of processing (3.1). So a
window may store expired tuples too; how many depends on when they are expired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile

from lab.counts import Counts
from lab.multijoin.query import Last, Within
from lab.workload import Arrival, LabError


class Window(ABC):
    """The tuples of one stream. A window without an index has one bucket."""

    def __init__(self, lists: Sequence[deque[Arrival]], counts: Counts) -> None:
        self.lists = lists
        self.counts = counts

    def insert(self, x: Arrival) -> None:
        self._bucket(x).append(x)
        self.counts.stored()

    def tuples(self, probe: Arrival | None) -> Iterator[Arrival]:
        """The tuples in the bucket of a probe's value; without a probe, all."""
        return chain.from_iterable(self._lists(probe))

    def since(self, number: int, probe: Arrival | None) -> Iterator[Arrival]:
        """As `tuples`, but only those after the arrival of that number."""
        newest_first = (reversed(one) for one in self._lists(probe))
        return chain.from_iterable(takewhile(lambda u: u.number > number, one) for one in newest_first)

    @abstractmethod
    def live(self, u: Arrival, k: Arrival) -> bool:
        """Whether u came before k and is live at the time of k. Equal times are ordered by arrival."""

    @abstractmethod
    def expire(self, now: int) -> None:
        """Drop what is live for no later tuple; visits every bucket, and every expired tuple."""

    def _lists(self, probe: Arrival | None) -> Sequence[deque[Arrival]]:
        return self.lists if probe is None else (self._bucket(probe),)

    def _bucket(self, x: Arrival) -> deque[Arrival]:
        return self.lists[hash(x.value) % len(self.lists)]


class TimeWindow(Window):
    """The last `length` units of time; expiration removes the heads of lists."""

    def __init__(self, extent: Within, buckets: int, counts: Counts) -> None:
        super().__init__([deque() for _ in range(buckets)], counts)
        self.greatest_age = extent.greatest_age

    def live(self, u: Arrival, k: Arrival) -> bool:
        return u.number < k.number and k.time - u.time <= self.greatest_age

    def expire(self, now: int) -> None:
        for one in self.lists:
            self.counts.purge_tests += 1
            while one and now - one[0].time > self.greatest_age:
                one.popleft()
                self.counts.purge_tests += 1
                self.counts.removed()


class CountWindow(Window):
    """The last tuples as of an earlier moment: those whose counters are near enough to the newest one's (3.6).

    The printed listing admits one tuple too many and also those younger than k; the text above it is right.
    """

    def __init__(self, extent: Last, counts: Counts) -> None:
        super().__init__([deque()], counts)
        self.length = extent.length
        self.expired = 0

    def live(self, u: Arrival, k: Arrival) -> bool:
        newest = self._counter(k)
        return newest - self.length < self._counter(u) <= newest

    def expire(self, now: int) -> None:  # noqa: ARG002  (counters do not age)
        [held] = self.lists
        self.counts.purge_tests += 1
        while len(held) > self.length:
            held.popleft()
            self.expired += 1
            self.counts.purge_tests += 1
            self.counts.removed()

    def _counter(self, x: Arrival) -> int:
        """How many tuples of this stream came until x, which may be one of another stream."""
        return self.expired + bisect_right(self.lists[0], x.number, key=lambda u: u.number)


class CircularWindow(Window):
    """The last tuples in a circular array: an insertion overwrites the oldest, and all stored tuples are live (3.6)."""

    def __init__(self, extent: Last, counts: Counts) -> None:
        super().__init__([deque(maxlen=extent.length)], counts)

    def insert(self, x: Arrival) -> None:
        [held] = self.lists
        if len(held) == held.maxlen:
            self.counts.removed()
        super().insert(x)

    def live(self, u: Arrival, k: Arrival) -> bool:  # noqa: ARG002  (no test is needed)
        return True

    def expire(self, now: int) -> None:
        """Insertions have done it."""


def window(extent: Within | Last, buckets: int, counts: Counts, *, eagerly: bool) -> Window:
    """The empty window of that extent; `eagerly` means that it is expired at every arrival."""
    if buckets < 1:
        raise LabError(f"a window has {buckets} buckets; without an index it has 1")
    if isinstance(extent, Within):
        return TimeWindow(extent, buckets, counts)
    if buckets > 1:
        raise LabError(f"a window of the last {extent.length} tuples has {buckets} buckets; it can have no index")
    return CircularWindow(extent, counts) if eagerly else CountWindow(extent, counts)
