"""The chain of sliced binary joins, tuple at a time (Wang 2008, 5.2, 7.1, 7.3, 7.4): many window joins from one state.

Slices and unions are operators that run one message at a time, in any order that a scheduler chooses. Windows are
half-open: a tuple as old as a slice's end expires. A probe that a selection stops continues as a marker that still
expires rows and punctuates; without it the unions would wait and states would keep unneeded rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lab.counts import Counts
from lab.slices import Copy, Message, SlicedJoin
from lab.union import PunctuatedUnion, SortingUnion
from lab.workload import A, Arrival, B, JoinQuery, LabError, Lengths, Match, Selection, Theta, checked, longest
from penstock.model.time import NEVER
from penstock.planner.chain import mem_opt

Operator = SlicedJoin | PunctuatedUnion | SortingUnion
Schedule = Callable[[Sequence[Operator]], Operator]

ENTRANCE: Lengths = (0, 0)


@dataclass(frozen=True)
class Pipe:
    """The path from a slice to a query's union, with the tests that the slice itself does not make redundant."""

    query: JoinQuery
    union: PunctuatedUnion | SortingUnion
    timed: bool  # compare the result's age with the query's window
    selected: tuple[int, ...]  # the streams whose selection must be tested


def slice_ends(queries: Sequence[JoinQuery]) -> tuple[Lengths, ...]:
    """The ends of the slices of the chain with the least state, one at every distinct window (7.1).

    A stream with fewer windows than the other has empty slices at the end.
    """
    a, b = (mem_opt(query.windows[stream] for query in queries) for stream in (A, B))
    count = max(len(a), len(b))
    return tuple(zip(a + a[-1:] * (count - len(a)), b + b[-1:] * (count - len(b)), strict=True))


class Chain:
    """Slices of growing age, connected by FIFO queues, and one union for each query.

    `one_way` is the chain of Def. 1: A only builds and B only probes. With `ordered=False` only each stream by itself
    must be in order (15.2): then a probe also meets younger tuples, and the unions sort.
    """

    def __init__(
        self,
        queries: Sequence[JoinQuery],
        theta: Theta,
        *,
        ends: Sequence[Lengths] | None = None,
        one_way: bool = False,
        ordered: bool = True,
    ) -> None:
        self.queries = checked(queries)
        self.theta = theta
        self.one_way = one_way
        self.ordered = ordered
        self.counts = Counts()
        ends = slice_ends(queries) if ends is None else ends
        _check_ends(ends, longest(queries))
        self.slices = [SlicedJoin(start, end, self.counts) for start, end in pairwise((ENTRANCE, *ends))]
        union = PunctuatedUnion if ordered else SortingUnion
        self.unions: list[PunctuatedUnion | SortingUnion] = [union(self.counts) for _ in self.queries]
        self._newest = [NEVER, NEVER]
        self._rewire()

    @property
    def answers(self) -> dict[str, list[Match]]:
        """What each query's union has emitted so far."""
        return {query.name: union.output for query, union in zip(self.queries, self.unions, strict=True)}

    def arrive(self, arrival: Arrival) -> None:
        """Queue the two copies of a tuple at the entrance; no operator runs."""
        newest = max(self._newest) if self.ordered else self._newest[arrival.stream]
        if arrival.time < newest:
            raise LabError(f"a tuple of time {arrival.time} comes after one of time {newest}; sort the arrivals")
        self._newest[arrival.stream] = arrival.time
        tagged = self._tag(arrival)
        if not (self.one_way and arrival.stream == A):
            self._forward_probe(tagged, self.slices[0])
        if not (self.one_way and arrival.stream == B):
            self._forward_build(tagged, self.slices[0])

    def ready(self) -> list[Operator]:
        """The operators that have a message."""
        return [operator for operator in (*self.slices, *self.unions) if operator.ready]

    def run(self, operator: Operator) -> None:
        """Let one operator process one message."""
        self.counts.messages += 1
        if isinstance(operator, SlicedJoin):
            self._run_slice(operator)
        else:
            operator.run()

    def drain(self, schedule: Schedule = lambda ready: ready[0]) -> None:
        """Run operators, one message at a time, until no message is left."""
        while ready := self.ready():
            self.run(schedule(ready))

    def finish(self) -> None:
        """The streams have ended: process all messages and emit what the unions hold."""
        self.drain()
        for union in self.unions:
            union.finish()

    def split(self, index: int, at: Lengths) -> None:
        """Split a slice in two at ages inside it; nothing moves, the next probes fill the new slice (7.3)."""
        first = self._slice(index)
        inside = all(start <= age <= end for start, age, end in zip(first.start, at, first.end, strict=True))
        if not inside or at in (first.start, first.end):
            raise LabError(f"slice {index} is {first!r} and cannot be split at {at}; choose ages inside it")
        self.slices.insert(index + 1, SlicedJoin(at, first.end, self.counts))
        first.end = at
        self._rewire()

    def merge(self, index: int, following: int) -> None:
        """Merge two neighbouring slices: the queue between them is drained first, older state goes first (7.3)."""
        first, second = self._slice(index), self._slice(following)
        if following != index + 1:
            raise LabError(f"slices {index} and {following} are not neighbours; merge a slice with the one after it")
        while second.ready:
            self.run(second)
        for young, old in zip(first.states, second.states, strict=True):
            young.extendleft(reversed(old))
        first.end = second.end
        self.slices.remove(second)
        self._rewire()

    def explain(self) -> str:
        """The slices with their state and the queries they serve."""
        lines = []
        for piece in self.slices:
            served = [q.name for q, u in zip(self.queries, self.unions, strict=True) if piece in u.feeders]
            held = f"{len(piece.states[A])} of A, {len(piece.states[B])} of B, {len(piece.queue)} in the queue"
            lines.append(f"slice {piece!r}: {held}, serves {', '.join(served)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return " -> ".join(map(repr, self.slices))

    def _run_slice(self, piece: SlicedJoin) -> None:
        message = piece.queue.popleft()
        arrival = message.arrival
        if message.copy is Copy.BUILD:
            piece.insert(arrival)
            return
        following = self._following(piece)
        for gone in piece.purge(arrival):
            if following is not None:
                self._forward_build(gone, following)
        if message.copy is Copy.PROBE:
            for match in piece.probe(arrival, self.theta):
                self._route(piece, arrival, match)
        if following is not None:
            self._forward_probe(arrival, following)
        for union in self.unions:
            if union.feeders[-1] is piece:
                union.punctuate(arrival)

    def _tag(self, arrival: Arrival) -> Arrival:
        """Evaluate the selections once for all slices: the longest windows among the queries that want the tuple."""
        known: dict[Selection, bool] = {}
        own, other = arrival.stream, 1 - arrival.stream
        return replace(
            arrival, life=self._longest_wanting(arrival, own, known), reach=self._longest_wanting(arrival, other, known)
        )

    def _longest_wanting(self, arrival: Arrival, side: int, known: dict[Selection, bool]) -> int:
        """The longest window on that side among the queries that select the tuple, tried from the longest down."""
        for query in sorted(self.queries, key=lambda q: q.windows[side], reverse=True):
            selection = query.selections[arrival.stream]
            if selection is None:
                return query.windows[side]
            if selection not in known:
                self.counts.filtered += 1
                known[selection] = query.selects(arrival)
            if known[selection]:
                return query.windows[side]
        return 0

    def _forward_build(self, arrival: Arrival, to: SlicedJoin) -> None:
        """The selection before a slice: a tuple that no query wants at that age is dropped."""
        if arrival.life > to.start[arrival.stream]:
            to.queue.append(Message(Copy.BUILD, arrival))

    def _forward_probe(self, arrival: Arrival, to: SlicedJoin) -> None:
        """The same for a probe, which must not vanish: it continues as a marker."""
        copy = Copy.PROBE if arrival.reach > to.start[1 - arrival.stream] else Copy.MARKER
        to.queue.append(Message(copy, arrival))

    def _route(self, piece: SlicedJoin, probe: Arrival, match: Match) -> None:
        """Emit a result of one slice to the queries whose window and selections it satisfies."""
        for pipe in self._pipes[piece, 1 - probe.stream]:
            if self._passes(pipe, match):
                pipe.union.receive(piece, probe, match)

    def _passes(self, pipe: Pipe, match: Match) -> bool:
        if pipe.timed:
            self.counts.routed += 1
            if not pipe.query.close(*match):
                return False
        for stream in pipe.selected:
            self.counts.filtered += 1
            if not pipe.query.selects(match[stream]):
                return False
        return True

    def _following(self, piece: SlicedJoin) -> SlicedJoin | None:
        index = self.slices.index(piece) + 1
        return self.slices[index] if index < len(self.slices) else None

    def _slice(self, index: int) -> SlicedJoin:
        if not 0 <= index < len(self.slices):
            raise LabError(f"there is no slice {index}; the chain has slices 0 to {len(self.slices) - 1}")
        return self.slices[index]

    def _rewire(self) -> None:
        """Connect each union with the slices that its query's windows reach into."""
        for query, union in zip(self.queries, self.unions, strict=True):
            union.feeders = [s for s in self.slices if any(query.windows[i] > s.start[i] for i in (A, B))]
        self._pipes = {(piece, side): self._connect(piece, side) for piece in self.slices for side in (A, B)}

    def _connect(self, piece: SlicedJoin, side: int) -> list[Pipe]:
        """The paths of results found in one state of a slice to the queries whose windows reach into it."""
        served = [(q, u) for q, u in zip(self.queries, self.unions, strict=True) if q.windows[side] > piece.start[side]]
        # One of these held before the slice; if they are all the same, it holds for every query.
        let_in = [{query.selections[stream] for query, _ in served} for stream in (A, B)]
        known = self.ordered or piece is not self.slices[0]  # only the first slice can hold tuples younger than a probe
        return [
            Pipe(
                query,
                union,
                timed=not (known and query.windows[side] >= piece.end[side]),
                selected=tuple(s for s in (A, B) if query.selections[s] is not None and len(let_in[s]) > 1),
            )
            for query, union in served
        ]


def _check_ends(ends: Sequence[Lengths], longest_windows: Lengths) -> None:
    for before, after in pairwise((ENTRANCE, *ends)):
        if before == after or any(later < earlier for earlier, later in zip(before, after, strict=True)):
            raise LabError(f"a slice cannot reach from {before} to {after}; give the ends in growing order")
    if not ends or ends[-1] != longest_windows:
        raise LabError(f"the chain must end at the longest windows {longest_windows}, not at {(ENTRANCE, *ends)[-1]}")
