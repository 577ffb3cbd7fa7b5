"""The nest of loops in which all algorithms join (Golab & Ozsu 2003, GENERAL COMPUTE JOIN, 3.3): one loop per window.

The loop over the new tuples may be at any depth. Above it the new tuple is unknown, and only values can be compared; in
it all bound tuples must be live at the new tuple's time; below it each tuple is tested when it is met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.counts import Counts
from lab.multijoin.query import Composite, Condition, MultiJoin
from lab.multijoin.windows import Window
from lab.workload import Arrival, LabError

Order = Sequence[int]  # the streams from the outermost loop to the innermost


@dataclass(frozen=True)
class Loop:
    """One loop: the conditions between its stream and those bound before it, and the one whose value picks a bucket."""

    stream: int
    conditions: tuple[tuple[int, Condition], ...]
    probe: int | None


def nest(query: MultiJoin, order: Order) -> tuple[Loop, ...]:
    """The loops of a query in that order."""
    if sorted(order) != list(query.streams):
        raise LabError(f"{tuple(order)} is no order of the streams; name each of 0 to {len(query.windows) - 1} once")
    loops = []
    for depth, stream in enumerate(order):
        tested = [(other, edge) for edge in query.edges for other in order[:depth] if edge.joins(stream, other)]
        conditions = tuple((other, edge.seen_from(other)) for other, edge in tested)
        probe = next((other for other, edge in tested if edge.equality), None)
        loops.append(Loop(stream, conditions, probe))
    return tuple(loops)


@dataclass(frozen=True)
class Execution:
    """One run of a nest for the tuples of one stream that came after the arrival `last`.

    A tuple that a loop meets is one probe; the outermost loop has nothing to compare with, and counts none.
    """

    windows: Sequence[Window]
    loops: Sequence[Loop]
    origin: int
    last: int
    counts: Counts

    def results(self) -> Iterator[Composite]:
        return self._descend(0, {}, None)

    def _descend(self, depth: int, bound: dict[int, Arrival], k: Arrival | None) -> Iterator[Composite]:
        if depth == len(self.loops):
            yield tuple(bound[stream] for stream in range(len(bound)))
            return
        loop = self.loops[depth]
        window = self.windows[loop.stream]
        probe = None if loop.probe is None else bound[loop.probe]
        fresh = loop.stream == self.origin
        for u in window.since(self.last, probe) if fresh else window.tuples(probe):
            self.counts.probes += depth > 0
            if _matches(loop, bound, u) and self._in_time(window, u, bound, k, fresh=fresh):
                yield from self._descend(depth + 1, {**bound, loop.stream: u}, u if fresh else k)

    def _in_time(
        self, window: Window, u: Arrival, bound: dict[int, Arrival], k: Arrival | None, *, fresh: bool
    ) -> bool:
        if fresh:
            return all(self.windows[stream].live(member, u) for stream, member in bound.items())
        return k is None or window.live(u, k)


def _matches(loop: Loop, bound: dict[int, Arrival], u: Arrival) -> bool:
    for stream, condition in loop.conditions:
        value = bound[stream].value
        if value is None or u.value is None or not condition(value, u.value):
            return False
    return True
