"""Counts that the joins of a network can share: composites of the same streams under the same conditions.

An order only shows the sets that it passes through; another join may pass through others (Wang 2013, Example 1.3.2).
Rows and state are the same for all joins, so a count that a join lacks is copied as it is, never added to its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from penstock.planner.join import Join, Member, decided_early
from penstock.planner.network import Network
from penstock.planner.orders.graph import Positions
from penstock.planner.orders.statistics import Flow, Statistics


class Lending:
    """Which joins of a network may copy counts from which others, and the counts themselves."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._asked: dict[tuple[int, Positions], Hashable] = {}
        self._streams = [_streams(network, join) for join in network.joins]

    def lenders(self, borrower: int) -> list[int]:
        """The joins that have at least two streams in common with this one."""
        own = self._streams[borrower].keys()
        return [
            join.index
            for join in self.network.joins
            if join.index != borrower and len(own & self._streams[join.index].keys()) > 1
        ]

    def lent(self, counted: Mapping[int, Statistics], borrower: int) -> Statistics:
        """Counts by others in a step of sets that this join has too, from starts where it did not count them itself."""
        own = counted[borrower]
        flows: dict[Flow, float] = {}
        chances: dict[Flow, float] = {}
        for lender in self.lenders(borrower):
            own_place = self._streams[borrower]
            places = {p: own_place[stream] for stream, p in self._streams[lender].items() if stream in own_place}
            for (start, members), rows in counted[lender].flows.items():
                if not members <= places.keys():
                    continue
                flow = (places[start], frozenset(places[p] for p in members))
                if self.asked(lender, members) != self.asked(borrower, flow[1]):
                    continue
                if flow not in own.flows and flow not in flows:
                    flows[flow], chances[flow] = rows, counted[lender].chances[start, members]
        return replace(Statistics.none(len(own.held)), flows=flows, chances=chances)

    def asked(self, index: int, positions: Positions) -> Hashable:
        """What the queries of a join require of rows at these positions: if equal in two joins, composites are too."""
        place = (index, positions)
        if place not in self._asked:
            join = self.network.joins[index]
            keys = [{self.network.tables[t].name for p, t in c.tables if p in positions} for c in join.classes]
            tied = frozenset(frozenset(names) for names in keys if len(names) > 1)
            self._asked[place] = (tied, frozenset(self._by_member(join, m, positions) for m in join.leads))
        return self._asked[place]

    def _by_member(self, join: Join, member: Member, positions: Positions) -> Hashable:
        """Selections, bounds on time, and the conditions evaluated as soon as these positions are joined."""
        stream = {p: self.network.tables[join.tables[p]].stream for p in positions}
        entries = [
            entry
            for _, table in join.places
            for entry in self.network.tables[table].entries
            if entry.join == join.index
        ]
        return (
            frozenset(
                (stream[e.position], frozenset(e.terms), frozenset(e.truths), e.tumbles)
                for e in entries
                if e.position in positions and e.query == member.share
            ),
            frozenset((stream[p], stream[q], member.bounds[p][q]) for p in positions for q in positions if p != q),
            frozenset(
                residual.sql(lambda ref: f"{stream.get(ref.role)}.{ref.column}")
                for residual in member.residuals
                if decided_early(residual) and positions.issuperset(residual.roles)
            ),
        )


def _streams(network: Network, join: Join) -> dict[str, int]:
    """The position of each stream that has only one. Rows that wait for progress are counted at other times."""
    streams = [] if join.closes else [network.tables[table].stream for table in join.tables]
    return {stream: p for p, stream in enumerate(streams) if streams.count(stream) == 1}
