"""The joins of one task in one step: each start position's delta along its own route, as pure functions.

By the telescoped delta rule (decision 0002) a delta joins this step's rows at earlier positions too, and only older
rows at later positions, so every result is found exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels.matches import Matches, rows_at
from penstock.kernels.probe import Words
from penstock.kernels.served import served_by
from penstock.kernels.walk import Slices, Walk, Work, pairs_at_once
from penstock.model.memory import Limits
from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.routes import Route
from penstock.state.buckets import bucket_of
from penstock.state.run import Ints, Rows

BLOCK = 1 << 17  # new rows joined at once: bounds the memory of intermediate matches

PutOff = Mapping[int, npt.NDArray[np.bool_]]  # by start: for each bucket whether its new rows do not probe yet


def join_deltas(
    network: Network,
    join: Join,
    routes: Sequence[Route],
    slices: Slices,
    work: Work,
    suspended: Collection[int] = (),
    put_off: PutOff | None = None,
    limits: Limits | None = None,
) -> Iterator[tuple[Route, int, Matches]]:
    """Results of this step, in pieces: (route, hops done, matches). Matches with hops left go to an exchange.

    Suspended queries get no results. Rows whose probes are `put_off` are only counted.
    """
    served = served_by(network, join, frozenset(suspended))
    for route in routes:
        walk = Walk(network, join, route, slices, served, work, limits)
        if route.everywhere:  # every task starts from all new rows, and counts those that it received
            for rows in slices.fresh.get(route.table, ()):
                walk.came(len(served.at(rows, route.start)[1]))
        for delta in _parts(slices.starting(route), limits):
            bits, wanted = served.at(delta, route.start)
            if put_off and route.start in put_off:
                later = put_off[route.start]
                probing = ~later[bucket_of(delta.key[wanted], len(later))]
                work.deferred[route.table] += int(len(wanted) - probing.sum())
                wanted = wanted[probing]
            if not route.everywhere:
                walk.came(len(wanted))
            yield from _started(walk, delta, bits, wanted)


def join_owed(
    network: Network,
    join: Join,
    route: Route,
    runs: Sequence[Rows],
    slices: Slices,
    work: Work,
    suspended: Collection[int] = (),
    limits: Limits | None = None,
) -> Iterator[tuple[Route, int, Matches]]:
    """Results of probes that were put off, from stored rows with their steps: partners are those that came before."""
    served = served_by(network, join, frozenset(suspended))
    walk = Walk(network, join, route, slices, served, work, limits, past=True)
    for rows in _parts([rows for rows in runs if len(rows)], limits):
        bits, wanted = served.at(rows, route.start)
        work.cleaned[route.table] += len(wanted)
        yield from _started(walk, rows, bits, wanted)


def _started(walk: Walk, delta: Rows, bits: Words, wanted: Ints) -> Iterator[tuple[Route, int, Matches]]:
    """The matches that start from these rows of a delta."""
    route = walk.route
    block = BLOCK if walk.limits is None else min(BLOCK, pairs_at_once(walk.limits, 1))
    for first in range(0, len(wanted), block):
        some = wanted[first : first + block]
        pick = ([delta], None, some)
        composite = Matches((route.start,), (pick,), delta.key[some], delta.time[some, None], rows_at(bits, some))
        whole = walk.counted(composite) if route.hops else walk.final(walk.counted(composite))
        if len(whole):
            yield from walk.go(whole, 0)


def _parts(pieces: Sequence[Rows], limits: Limits | None) -> Iterator[Rows]:
    """Sorted rows in parts of which all bits may be in memory; their order does not matter to what they match."""
    for rows in pieces:
        if limits is None:
            yield rows
            continue
        most = pairs_at_once(limits, 0)
        for start in range(0, len(rows), most):
            yield rows.part(start, min(start + most, len(rows)))


def resume(
    network: Network,
    join: Join,
    route: Route,
    done: int,
    pieces: Iterable[Matches],
    slices: Slices,
    work: Work,
    suspended: Collection[int] = (),
    limits: Limits | None = None,
) -> Iterator[tuple[Route, int, Matches]]:
    """Continue with composites from an exchange, after `done` hops."""
    walk = Walk(network, join, route, slices, served_by(network, join, frozenset(suspended)), work, limits)
    for matches in pieces:
        if done < len(route.hops):
            order = np.lexsort((matches.times[:, 0], matches.keys))
            yield from walk.go(matches.take(order), done, arrived=True)
        else:
            yield route, done, matches
