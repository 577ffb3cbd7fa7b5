"""Shapes of the first computation of a view: which relations are joined in which pipelined segments, in which order.

In a **segment** the rows of one input (the probe) visit the hash tables of the others (the builds), in order, without
being stored in between. Left-deep, right-deep, zigzag and segmented right-deep trees (Liu 2005, 2.2) are all lists of
segments; `bushy` composes segmented bushy ones. `shape_cost` computes the cost of a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.planner.views.relations import Members, Relations

EXACT = 8  # builds up to which the order of a segment is optimal; beyond, it is greedy

LEFT_DEEP = "left_deep"
RIGHT_DEEP = "right_deep"
ZIGZAG = "zigzag"
SEGMENTED_RIGHT_DEEP = "segmented_right_deep"
SEGMENTED_BUSHY = "segmented_bushy"


@dataclass(frozen=True)
class Segment:
    """Inputs below the number of relations are relations; input `count + i` is the result of the shape's i-th segment.

    Segments of one `wave` run at the same time, each on its share of the `cores` (0: all of them); a wave starts when
    the one before has ended. Only a `stored` result is written out; others are passed on as they come.
    """

    probe: int
    builds: tuple[int, ...]
    wave: int = 0
    cores: int = 0
    stored: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.probe, *self.builds)


@dataclass(frozen=True)
class Shape:
    """The segments in an order in which they may run; the last gives the view."""

    kind: str
    count: int
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        used = sorted(i for segment in self.segments for i in segment.inputs)
        if used != list(range(self.count + len(self.segments) - 1)):
            raise ValueError(f"every relation and every segment but the last is the input of one segment, not {used}")
        for number, segment in enumerate(self.segments):
            for given in segment.inputs:
                if given >= self.count and self.segments[given - self.count].wave >= segment.wave:
                    raise ValueError(f"segment {number} needs the result of its own wave, or of a later one")

    @cached_property
    def members(self) -> tuple[Members, ...]:
        """The relations in each input: the relations first, then the segments."""
        found = [frozenset((number,)) for number in range(self.count)]
        for segment in self.segments:
            found.append(frozenset[int]().union(*(found[i] for i in segment.inputs)))
        return tuple(found)

    @property
    def waves(self) -> tuple[tuple[Segment, ...], ...]:
        numbers = sorted({segment.wave for segment in self.segments})
        return tuple(tuple(s for s in self.segments if s.wave == number) for number in numbers)

    def reached(self, segment: Segment) -> tuple[Members, ...]:
        """The relations in the rows of a segment: of its probe, and after each join; the last is its result."""
        found = [self.members[segment.probe]]
        for build in segment.builds:
            found.append(found[-1] | self.members[build])
        return tuple(found)


def copied(relations: Relations, bound: Members, build: Members, small: float) -> bool:
    """Whether a table is copied to every core, so that rows need not be sent: it is small, or has no key."""
    return relations.memory(build) <= small or not relations.key(bound, build)


def exchanges(relations: Relations, shape: Shape, segment: Segment, small: float = 0.0) -> int:
    """How often rows of a segment are sent because the next hash table has another key (Liu 2005, 2.4.1).

    The first sending of the probe is not counted. A table that is copied to every core moves no rows.
    """
    found, current = 0, None
    for bound, build in zip(shape.reached(segment), segment.builds, strict=False):
        members = shape.members[build]
        if not copied(relations, bound, members, small):
            key = relations.key(bound, members)
            found += current not in {None, key}
            current = key
    return found


def ordered(relations: Relations, probe: int, builds: Members) -> tuple[int, ...]:
    """An order of the builds with few rows in between: the best for few builds, else the smallest next each time."""
    if len(builds) > EXACT:
        return _greedy(relations, probe, builds)
    best: dict[Members, tuple[float, tuple[int, ...]]] = {frozenset((probe,)): (0.0, ())}
    for _ in builds:
        longer: dict[Members, tuple[float, tuple[int, ...]]] = {}
        for bound, (cost, order) in best.items():
            for following in sorted(relations.neighbours(bound) & builds):
                reached = bound | {following}
                candidate = (cost + relations.size(reached), (*order, following))
                if reached not in longer or candidate < longer[reached]:
                    longer[reached] = candidate
        best = longer
    if not best:
        raise ValueError(f"the relations {sorted(builds | {probe})} are not connected")
    ((_, order),) = best.values()
    return order


def _greedy(relations: Relations, probe: int, builds: Members) -> tuple[int, ...]:
    order: list[int] = []
    bound = frozenset((probe,))
    while len(order) < len(builds):
        near = relations.neighbours(bound) & builds
        if not near:
            raise ValueError(f"the relations {sorted(builds | {probe})} are not connected")
        order.append(min(near, key=lambda r: (relations.size(bound | {r}), r)))
        bound |= {order[-1]}
    return tuple(order)


def largest(relations: Relations, members: Members) -> int:
    """The relation with the most rows; ties go to the lowest number."""
    return min(members, key=lambda m: (-relations.rows[m], m))


def right_deep(relations: Relations) -> Shape:
    """Fully pipelined: the largest relation probes all others."""
    probe = largest(relations, relations.all)
    builds = ordered(relations, probe, relations.all - {probe})
    return Shape(RIGHT_DEEP, relations.count, (Segment(probe, builds),))


def left_deep(relations: Relations) -> Shape:
    """Sequential: each next relation probes a table of all joined so far. Starts with the smallest relation."""
    first = min(relations.all, key=lambda m: (relations.rows[m], m))
    order = ordered(relations, first, relations.all - {first})
    if not order:
        return Shape(LEFT_DEEP, 1, (Segment(first, ()),))
    segments = []
    for number, probe in enumerate(order):
        built = first if number == 0 else relations.count + number - 1
        segments.append(Segment(probe, (built,), wave=number))
    return Shape(LEFT_DEEP, relations.count, tuple(segments))


def zigzag(relations: Relations, memory: float) -> Shape:
    """The right-deep order, cut wherever the next table no longer fits; the result of a piece probes in the next."""
    (whole,) = right_deep(relations).segments
    pieces: list[list[int]] = [[]]
    for build in whole.builds:
        if pieces[-1] and _bytes(relations, [*pieces[-1], build]) > memory:
            pieces.append([])
        pieces[-1].append(build)
    segments = []
    for number, piece in enumerate(pieces):
        probe = whole.probe if number == 0 else relations.count + number - 1
        segments.append(Segment(probe, tuple(piece), wave=number, stored=number < len(pieces) - 1))
    return Shape(ZIGZAG, relations.count, tuple(segments))


def _bytes(relations: Relations, builds: Sequence[int]) -> float:
    """Memory of the tables of these relations, each by itself."""
    return sum(relations.memory((build,)) for build in builds)


def minimized_work(relations: Relations, bound: Members, build: int) -> float:
    """Prefer the table that leaves the fewest rows."""
    return relations.size(bound | {build})


def balanced_consideration(relations: Relations, bound: Members, build: int) -> float:
    """Weigh the remaining rows of a table against its memory, so that more tables fit into one piece."""
    return relations.size(bound | {build}) * relations.memory((build,))


Preference = Callable[[Relations, Members, int], float]
PREFERENCES: dict[str, Preference] = {
    "minimized_work": minimized_work,
    "balanced_consideration": balanced_consideration,
}


def cut(relations: Relations, memory: float, prefer: Preference) -> list[tuple[int, tuple[int, ...]]]:
    """Pieces whose tables fit in memory, as (probe, builds); inputs from `count` on are earlier pieces.

    The result of a piece is a relation of the remaining graph: it may be a probe or a build there. A table that does
    not fit even alone gets a piece of its own.
    """
    pieces: list[tuple[int, tuple[int, ...]]] = []
    inputs = list(range(relations.count))
    parts = [frozenset((number,)) for number in inputs]
    while len(parts) > 1:
        now = relations.contracted(parts)
        probe = largest(now, now.all)
        builds: list[int] = []
        bound = frozenset((probe,))
        while near := now.neighbours(bound):
            fitting = [b for b in near if _bytes(now, [*builds, b]) <= memory]
            if not fitting and builds:
                break
            alone = min(near, key=lambda b: (now.memory((b,)), b))
            builds.append(min(fitting or [alone], key=lambda b: (prefer(now, bound, b), b)))
            bound |= {builds[-1]}
        pieces.append((inputs[probe], tuple(inputs[b] for b in builds)))
        joined = frozenset[int]().union(*(parts[b] for b in bound))
        kept = [n for n in range(len(parts)) if n not in bound]
        inputs = [*(inputs[n] for n in kept), relations.count + len(pieces) - 1]
        parts = [*(parts[n] for n in kept), joined]
    return pieces


def segmented_right_deep(relations: Relations, memory: float, prefer: Preference = minimized_work) -> Shape:
    """Pieces that fit in memory, one after the other, each on all cores."""
    if relations.count == 1:
        return Shape(SEGMENTED_RIGHT_DEEP, 1, (Segment(0, ()),))
    pieces = cut(relations, memory, prefer)
    segments = [
        Segment(probe, builds, wave=number, stored=number < len(pieces) - 1)
        for number, (probe, builds) in enumerate(pieces)
    ]
    return Shape(SEGMENTED_RIGHT_DEEP, relations.count, tuple(segments))
