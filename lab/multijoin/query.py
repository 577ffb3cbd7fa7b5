"""A join of one window per stream, with conditions between named pairs of streams.

The paper compares values with the newest tuple in one algorithm and with the outermost in another, which is the same
for equality only. Here a query names the streams of each condition, so that all algorithms give the same answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from lab.workload import Arrival, LabError

Condition = Callable[[float, float], bool]  # of a value of the edge's left stream and one of its right stream
Composite = tuple[Arrival, ...]  # a result: one tuple of each stream, in the order of the streams


@dataclass(frozen=True)
class Within:
    """The tuples of less than a certain age; for `closed` windows also those of exactly that age (1.1)."""

    length: int
    closed: bool = False

    @property
    def greatest_age(self) -> int:
        return self.length if self.closed else self.length - 1


@dataclass(frozen=True)
class Last:
    """The newest tuples, `count` of them (3.6)."""

    length: int


@dataclass(frozen=True)
class Edge:
    """A condition between the values of two streams. NULL satisfies none."""

    left: int
    right: int
    condition: Condition = operator.eq

    @property
    def equality(self) -> bool:
        return self.condition is operator.eq

    def seen_from(self, stream: int) -> Condition:
        """The condition with the value of that stream as its first argument."""
        if stream == self.left:
            return self.condition
        return lambda right, left: self.condition(left, right)

    def joins(self, stream: int, other: int) -> bool:
        return {self.left, self.right} == {stream, other}


@dataclass(frozen=True)
class MultiJoin:
    """The join of all windows: stream i has the window `windows[i]`; streams without an edge match in every pair."""

    windows: tuple[Within | Last, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        if len(self.windows) < 2:
            raise LabError(f"a join of {len(self.windows)} windows is no join; give at least 2")
        for stream, window in enumerate(self.windows):
            if window.length <= 0:
                raise LabError(f"stream {stream} has a window of {window.length}; a window is longer than 0")
        streams = range(len(self.windows))
        for edge in self.edges:
            if edge.left == edge.right or edge.left not in streams or edge.right not in streams:
                raise LabError(
                    f"a condition between streams {edge.left} and {edge.right} joins nothing; "
                    f"name two different ones of 0 to {len(self.windows) - 1}"
                )

    @property
    def streams(self) -> range:
        return range(len(self.windows))


def equal_values(*windows: Within | Last) -> MultiJoin:
    """The join on one attribute that all streams have."""
    return MultiJoin(windows, tuple(Edge(i, j) for i, j in combinations(range(len(windows)), 2)))
