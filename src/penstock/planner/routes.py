"""Routes: how new rows of each position pass through the others, and where in the cluster each lookup happens.

An *order* is the sequence of positions looked up; a *route* adds by which key, and where. Composites (rows joined so
far) are at the task that owns their key. A lookup in a table sorted by the same key happens there (`here`). For another
key the composites go through an exchange to the tasks that own it (`moved`), or every task looks into the whole table
and this step's rows of that table are sent to every task (`whole`). Without any equality the rows of the table are
scanned: new rows are sent to every task and each scans its own share (`here`), or composites scan the whole table
(`whole`). State is never copied (decision 0011).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.planner.join import Join
from penstock.planner.network import Network

Order = tuple[int, ...]
HERE, MOVED, WHOLE = "here", "moved", "whole"


@dataclass(frozen=True)
class Hop:
    """One lookup: the rows of `position` in `table`; `fresh` includes those of this very step.

    Rows are found by their key in `key_class`, which must equal that of the known position `source`; without a source
    the table is scanned. `rekey` if the composites are not sorted by this key yet. `checks` are the other equalities
    between this position and known ones: (known position, key class).
    """

    position: int
    table: int
    fresh: bool
    access: str = HERE
    source: int | None = None
    key_class: int | None = None
    rekey: bool = False
    checks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Route:
    """The path of new rows of `start`, taken from `table`; `everywhere` if every task has them all."""

    start: int
    table: int
    everywhere: bool
    hops: tuple[Hop, ...]

    @cached_property
    def order(self) -> Order:
        return tuple(hop.position for hop in self.hops)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """The number of exchanges before each hop."""
        moved = 0
        found = []
        for hop in self.hops:
            moved += hop.access == MOVED
            found.append(moved)
        return tuple(found)


@dataclass(frozen=True)
class Routes:
    """All routes of a network: by join, by start."""

    joins: tuple[tuple[Route, ...], ...]

    @cached_property
    def exchanges(self) -> int:
        """The exchanges of composites in a step: those of the longest route, since all routes share them."""
        return max((route.stages[-1] for routes in self.joins for route in routes if route.hops), default=0)

    @cached_property
    def replicated(self) -> frozenset[int]:
        """Tables whose new rows every task gets."""
        every = {route.table for routes in self.joins for route in routes if route.everywhere}
        whole = {h.table for routes in self.joins for route in routes for h in route.hops if h.access == WHOLE}
        return frozenset(every | whole)

    @cached_property
    def whole(self) -> frozenset[int]:
        """Tables of which some task reads all rows."""
        return frozenset(h.table for routes in self.joins for route in routes for h in route.hops if h.access == WHOLE)

    @cached_property
    def shared(self) -> frozenset[int]:
        """Tables whose new rows are looked up by their key before any exchange.

        Each task that takes turns with a split bucket needs all of these of it.
        """
        return frozenset(
            hop.table
            for routes in self.joins
            for route in routes
            for hop, stage in zip(route.hops, route.stages, strict=True)
            if hop.fresh and hop.access == HERE and hop.source is not None and not stage
        )

    @cached_property
    def later(self) -> frozenset[int]:
        """Tables whose new rows are looked up after an exchange."""
        return frozenset(
            hop.table
            for routes in self.joins
            for route in routes
            for hop, stage in zip(route.hops, route.stages, strict=True)
            if stage and hop.fresh
        )


def neighbours(join: Join, known: Collection[int]) -> set[int]:
    """Positions that an equality, a condition or a band connects to a known one."""
    tied = [*(c.positions.keys() for c in join.classes), *join.ties]
    return {p for positions in tied if positions & set(known) for p in positions} - set(known)


def default_order(join: Join, start: int) -> Order:
    """By equality if there is one, else by a condition or a band, else by position."""
    known = [start]
    while len(known) < len(join.tables):
        left = [p for p in range(len(join.tables)) if p not in known]
        equal = [
            p
            for p in left
            if any({p} | set(known) & c.positions.keys() > {p} and p in c.positions for c in join.classes)
        ]
        tied = [p for p in left if p in neighbours(join, known)]
        known.append((equal or tied or left)[0])
    return tuple(known[1:])


def always(_table: int) -> bool:
    return True


def build_routes(
    network: Network,
    orders: Mapping[int, Mapping[int, Order]] | None = None,
    replicate: Callable[[int], bool] = always,
) -> Routes:
    """Routes for the given orders (by join and start; for others, any connected order).

    `replicate(table)` tells whether to send a table's new rows to every task rather than composites to its tasks.
    """
    found = []
    for join in network.joins:
        own = (orders or {}).get(join.index, {})
        starts = range(len(join.tables))
        found.append(tuple(route_of(join, s, own.get(s, default_order(join, s)), replicate) for s in starts))
    return Routes(tuple(found))


def past_route(join: Join, start: int, table: int, order: Order) -> Route:
    """A route of stored rows of this very table, in one stage: with another key the whole state is looked up."""
    key_class = next(i for i, c in enumerate(join.classes) if c.positions.get(start) == table)
    walks = [_Walk((), key_class, key_class)]
    for number, position in enumerate(order):
        known = (start, *order[:number])
        walks = [
            longer for w in walks for longer in _next(join, w, known, position, always, everywhere=False, fresh=False)
        ]
    return Route(
        start, table, False, min((w.hops for w in walks), key=lambda hops: sum(h.access == WHOLE for h in hops))
    )


@dataclass(frozen=True)
class _Walk:
    """A partial route: the key class that distributes the composites (None if any), and the one that sorts them."""

    hops: tuple[Hop, ...]
    place: int | None
    sorted_by: int | None


def route_of(join: Join, start: int, order: Order, replicate: Callable[[int], bool]) -> Route:
    """For an order or a prefix of one, the keys with the fewest exchanges, then the fewest `whole` lookups."""
    if not order:
        return Route(start, join.tables[start], everywhere=False, hops=())
    first = [i for i, c in enumerate(join.classes) if {start, order[0]} <= c.positions.keys()]
    begun: list[tuple[int, bool, _Walk]] = []
    for key_class in first:
        table = join.classes[key_class].positions[start]
        begun.append((table, False, _Walk((), key_class, key_class)))
    if not first:
        table = join.tables[start]
        begun.append((table, True, _Walk((), None, None)))
    best: tuple[tuple[int, int], Route] | None = None
    for table, everywhere, walk in begun:
        walks = [walk]
        for number, position in enumerate(order):
            known = (start, *order[:number])
            fresh = position < start
            walks = [
                longer
                for w in walks
                for longer in _next(
                    join, w, known, position, replicate, everywhere=everywhere and number == 0, fresh=fresh
                )
            ]
        for done in walks:
            price = (sum(h.access == MOVED for h in done.hops), sum(h.access == WHOLE for h in done.hops))
            if best is None or price < best[0]:
                best = (price, Route(start, table, everywhere, done.hops))
    assert best is not None
    return best[1]


def _next(
    join: Join,
    walk: _Walk,
    known: Sequence[int],
    position: int,
    replicate: Callable[[int], bool],
    *,
    everywhere: bool,
    fresh: bool,
) -> list[_Walk]:
    tied = [i for i, c in enumerate(join.classes) if position in c.positions and c.positions.keys() & set(known)]
    if not tied:
        table = join.tables[position]
        home = next((i for i, c in enumerate(join.classes) if c.positions.get(position) == table), None)
        hop = Hop(position, table, fresh, HERE if everywhere else WHOLE, rekey=True)
        place = home if everywhere else walk.place
        return [_Walk((*walk.hops, hop), place, None)]
    walks = []
    for key_class in tied:
        positions = join.classes[key_class].positions
        table = positions[position]
        source = next(p for p in known if p in positions)
        if walk.place == key_class:
            access, place = HERE, key_class
        elif replicate(table):
            access, place = WHOLE, walk.place
        else:
            access, place = MOVED, key_class
        checks = tuple((next(p for p in known if p in join.classes[c].positions), c) for c in tied if c != key_class)
        hop = Hop(position, table, fresh, access, source, key_class, walk.sorted_by != key_class, checks)
        walks.append(_Walk((*walk.hops, hop), place, key_class))
    return walks
