"""Composites on one route: hop by hop they are joined with the slices of the next position, and checked.

A composite is a match of the positions so far. At an exchange it stops, and `join` resumes it after the exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.columns.terms.evaluation import Lookup
from penstock.kernels.conditions import Condition, at_end, at_hop, refuted
from penstock.kernels.links import count_probes, count_results, links_of
from penstock.kernels.matches import Matches, equal, extend, lookup, serving
from penstock.kernels.owed import came_before
from penstock.kernels.probe import Counts, Reach, Words, build_reach, nearest, probe
from penstock.kernels.ranges import Search, build_search, find_ranges
from penstock.kernels.scan import pairs_by_time, scan
from penstock.kernels.served import Served
from penstock.kernels.streamed import parts_of
from penstock.model.memory import Limits
from penstock.planner.join import Join
from penstock.planner.links import Link
from penstock.planner.network import Network
from penstock.planner.routes import MOVED, WHOLE, Hop, Route
from penstock.state.bucket_counters import BucketTally, edges_of
from penstock.state.cold import CACHE, Cold
from penstock.state.run import Ints, Rows

LEAST_PAIRS = 1 << 10  # at once: fewer would cost more than they take up
FEW = 1 << 13  # this many matches of one run continue by themselves; fewer wait for those of other runs


@dataclass
class Work:
    """A task's work: probes by state table of the start, errors by query, composites by (join, start, positions).

    `probes` and `results` have, by (state table, link), the work of the links of its chain; `deferred` and `cleaned`,
    by state table of the start, the rows whose probes were put off, and those that a clean-up ran. `tally` is the work
    with each bucket, without that of scans.
    """

    counts: dict[int, Counts] = field(default_factory=dict)
    errors: Counter[int] = field(default_factory=Counter)
    flows: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    probes: Counter[tuple[int, Link]] = field(default_factory=Counter)
    results: Counter[tuple[int, Link]] = field(default_factory=Counter)
    ages: Counter[tuple[int, int]] = field(default_factory=Counter)  # by (state table, class of age): matches
    blocks: Counter[int] = field(default_factory=Counter)  # by state table: blocks of cold runs that were read
    skipped: Counter[int] = field(default_factory=Counter)  # and those that need not be
    deferred: Counter[int] = field(default_factory=Counter)
    cleaned: Counter[int] = field(default_factory=Counter)
    tally: BucketTally = field(default_factory=BucketTally)


Runs = Mapping[int, Sequence[Rows]]  # by state table
Stored = Mapping[int, Sequence[Rows | Cold]]


@dataclass(frozen=True)
class Slices:
    """A task's rows of the state tables: `own` (older) and `fresh` (new) of its buckets, `whole` and `every` of all.

    `lent` and `lent_fresh` are those of split buckets that other tasks serve: they are looked up by key, and never
    scanned, for a scan visits each row in one task only. With `probing` the task probes with these new rows and not
    with all its fresh ones.
    """

    own: Stored = field(default_factory=dict)
    fresh: Runs = field(default_factory=dict)
    whole: Stored = field(default_factory=dict)
    every: Runs = field(default_factory=dict)
    lent: Stored = field(default_factory=dict)
    lent_fresh: Runs = field(default_factory=dict)
    probing: Runs | None = None

    def starting(self, route: Route) -> Sequence[Rows]:
        """The new rows that begin a route here."""
        if route.everywhere:
            return self.every.get(route.table, ())
        return (self.fresh if self.probing is None else self.probing).get(route.table, ())

    def of(self, hop: Hop) -> list[Rows | Cold]:
        """The rows that a hop looks up."""
        kinds = [(self.whole, self.every)] if hop.access == WHOLE else [(self.own, self.fresh)]
        if hop.access != WHOLE and hop.source is not None:
            kinds.append((self.lent, self.lent_fresh))
        return [
            *(rows for old, _ in kinds for rows in old.get(hop.table, ())),
            *(rows for _, new in kinds if hop.fresh for rows in new.get(hop.table, ())),
        ]


@dataclass(frozen=True)
class Walk:
    """Walks composites along one route; those of the `past` meet only rows that came before their start."""

    network: Network
    join: Join
    route: Route
    slices: Slices
    served: Served
    work: Work
    limits: Limits | None = None
    past: bool = False

    def came(self, rows: int) -> None:
        """Count new rows of the start; sets they do not reach count 0, or a set that became rare would look unknown."""
        start, order = self.route.start, self.route.order
        if not order:
            return
        self.work.flows[self.join.index, start, (start,)] += rows
        for k in range(1, len(order) + 1 if rows else 1):
            self.work.flows[self.join.index, start, tuple(sorted((start, *order[:k])))] += 0

    def go(self, composite: Matches, done: int, *, arrived: bool = False) -> Iterator[tuple[Route, int, Matches]]:
        """From after `done` hops to the end or the next exchange; `arrived`: the exchange before this hop is done."""
        if done == len(self.route.hops):
            for links in links_of(self.network, self.join).values():
                own = composite.times[:, composite.positions.index(links.position)]
                count_results(links, composite.result_time - own, self.work.results)
            yield self.route, done, composite
            return
        hop = self.route.hops[done]
        if not arrived and (hop.rekey or hop.access == MOVED):
            composite = self._rekey(composite, hop)
        if len(composite) == 0:
            return
        if hop.access == MOVED and not arrived:
            yield self.route, done, composite
            return
        for extended in self._look_up(composite, hop, last=done + 1 == len(self.route.hops)):
            yield from self.go(extended, done + 1)

    def _rekey(self, composite: Matches, hop: Hop) -> Matches:
        """The composites with the key of the next lookup, sorted by it; those with a NULL key match nothing."""
        if hop.source is None:
            order = np.argsort(composite.times[:, 0], kind="stable")
            found = composite.take(order)
            return replace(found, keys=np.zeros(len(order), dtype=np.int64))
        assert hop.key_class is not None
        table = self.join.classes[hop.key_class].positions[hop.source]
        keys = composite.key(hop.source, self.network.tables[table].name)
        if keys.null_count:
            valid = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
            composite, keys = composite.take(valid), keys.drop_null()
        values = keys.to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.lexsort((composite.times[:, 0], values))
        return replace(composite.take(order), keys=values[order])

    def _look_up(self, composite: Matches, hop: Hop, *, last: bool) -> Iterator[Matches]:
        tally = self.work.tally
        known = self.work.counts.setdefault(self.join.tables[self.route.start], Counts())
        counts = Counts(len(composite), by_bucket=np.zeros(tally.buckets, dtype=np.int64))
        edges = None if hop.source is None else edges_of(composite.keys, tally.buckets)
        links = links_of(self.network, self.join).get((hop.position, hop.table))
        if links is not None:
            count_probes(links, composite.bits, self.work.probes)
        turned, places = composite, None
        if hop.source is None:
            lead = nearest(self.join, composite.positions, hop.position)
            turned, places = (composite, None) if lead == composite.positions[0] else composite.led_by(lead)
        reach = _reach(self.network, self.join, turned.positions, hop.position)
        # More matches of several runs wait only if they may: a part of them continues as well as all.
        most = None if self.limits is None else pairs_at_once(self.limits, len(composite.positions))
        bounded = {} if most is None else {"chunk": most}
        found: list[tuple[int, Ints, Ints, Words]] = []
        runs: list[Rows] = []  # those with matches that wait
        waiting = thawed = 0
        for run in self.slices.of(hop):
            rows = run if isinstance(run, Rows) else self._thawed(run, turned, hop, reach)
            if rows is None:
                continue
            words = self.served.words(rows, hop.position)
            if hop.source is not None:
                keys, times, own = composite.keys, composite.times, composite.bits
                pieces = probe(keys, times, own, rows, words, reach, counts, **bounded)
            else:
                pieces = self._scan(turned, hop.position, rows, words, reach, counts)
            own_number = -1
            for turned_left, right, bits in pieces:
                left = turned_left if places is None else places[turned_left]
                if edges is not None:
                    tally.add("compared", np.diff(np.searchsorted(left, edges)))
                if self.limits is not None:
                    ages = np.abs(composite.times[left, 0] - rows.time[right])
                    for age, count in enumerate(np.bincount(np.frexp(ages.astype(np.float64))[1]).tolist()):
                        if count:
                            self.work.ages[hop.table, age] += count
                if isinstance(run, Cold):
                    rows = run.rows()
                if last and len(left) >= FEW:
                    whole = extend(composite, hop.position, ([rows], None, right), left, bits)
                    yield from self._checked(whole, hop, last=last)
                else:
                    if own_number < 0:
                        own_number = len(runs)
                        runs.append(rows)
                        thawed += run.size if isinstance(run, Cold) else 0
                    found.append((own_number, left, right, bits))
                    waiting += len(left)
                    if (most is not None and waiting >= most) or thawed > self.thawed:
                        yield from self._interleaved(composite, hop, runs, found, last=last)
                        found, runs, waiting, thawed, own_number = [], [], 0, 0, -1
        known.add(counts)
        if edges is not None:
            tally.add("probed", np.diff(edges))
            tally.add("candidates", counts.by_bucket)
        if found:
            yield from self._interleaved(composite, hop, runs, found, last=last)

    @property
    def thawed(self) -> int:
        """The bytes of blocks that matches may keep in memory."""
        return CACHE if self.limits is None else self.limits.cache

    def _thawed(self, cold: Cold, composite: Matches, hop: Hop, reach: Reach) -> Rows | None:
        """What the probe needs of a block; None if it cannot have a match."""
        if hop.source is None:  # an inequality may need any column
            self.work.blocks[hop.table] += 1
            return cold.rows()
        start = composite.times[:, 0]
        if not cold.may_match(composite.keys, int(start.min()) - reach.low, int(start.max()) + reach.high):
            self.work.skipped[hop.table] += 1
            return None
        self.work.blocks[hop.table] += 1
        return cold.head()

    def _interleaved(
        self,
        composite: Matches,
        hop: Hop,
        runs: Sequence[Rows],
        found: Sequence[tuple[int, Ints, Ints, Words]],
        *,
        last: bool,
    ) -> Iterator[Matches]:
        """Matches of several runs in the order of the composites, which the next hop needs."""
        left = np.concatenate([f[1] for f in found])
        order = np.argsort(left, kind="stable")
        run = np.concatenate([np.full(len(f[1]), f[0], dtype=np.int64) for f in found])[order]
        row = np.concatenate([f[2] for f in found])[order]
        bits = np.concatenate([f[3] for f in found])[order]
        longer = extend(composite, hop.position, (runs, run, row), left[order], bits)
        yield from self._checked(longer, hop, last=last)

    def _scan(
        self, composite: Matches, position: int, rows: Rows, words: Words, reach: Reach, counts: Counts
    ) -> Iterator[tuple[Ints, Ints, Words]]:
        """Pairs without an equality: by an inequality over sorted values, or by time, whichever leaves fewer."""
        ordered, order = _by_time(rows)
        search = _search(self.network, self.join, composite.positions, position)
        if search is not None and len(rows) and len(composite):
            every = np.arange(len(rows), dtype=np.int64)
            alone = Matches((position,), (([rows], None, every),), rows.key, rows.time[:, None], words[rows.bits])
            of_rows, of_composites = (lookup(self.network, self.join, m) for m in (alone, composite))
            ranges = find_ranges(search, of_rows, len(rows), of_composites, len(composite))
            if ranges is not None and ranges.pairs < pairs_by_time(composite.times[:, 0], ordered, reach):
                yield from scan(composite.times, composite.bits, rows, ranges, words, reach, counts)
                return
        for left, right, bits in probe(composite.keys, composite.times, composite.bits, ordered, words, reach, counts):
            yield left, right if order is None else order[right], bits

    def _checked(self, extended: Matches, hop: Hop, *, last: bool) -> Iterator[Matches]:
        """Only matches whose keys are really equal, and whose conditions hold as far as they can be evaluated."""
        if self.past:
            extended = extended.take(came_before(extended, hop.position))
            if len(extended) == 0:
                return
        for part in [extended] if self.limits is None else parts_of(extended, self.limits.work):
            yield from self._checked_at_once(part, hop, last=last)

    def _checked_at_once(self, extended: Matches, hop: Hop, *, last: bool) -> Iterator[Matches]:
        matches = self.counted(self._verified(extended, hop))
        matches = self._conditions(matches, at_hop(self.join, hop.position, extended.positions, last=last))
        matches = self.final(matches) if last else matches
        if not self.past:  # orders are chosen by what steps find
            self.work.flows[self.join.index, self.route.start, tuple(sorted(matches.positions))] += len(matches)
        if len(matches):
            yield matches

    def counted(self, matches: Matches) -> Matches:
        """Clear the bits of queries for which a row has left its window, because enough rows came after it."""
        outs = [(m.bit, p, out) for m in self.join.leads for p, out in m.outs if p in matches.positions]
        if not outs or len(matches) == 0:
            return matches
        bits, newest = matches.bits.copy(), matches.result_time
        for number, position, column in outs:
            out = matches.column(position, column, None).to_numpy(zero_copy_only=False)
            bits[newest >= out, number // 64] &= ~np.uint64(1 << (number % 64))
        return serving(replace(matches, bits=bits))

    def final(self, matches: Matches) -> Matches:
        """Whole results that meet the deferred conditions too; those with a condition that raised are counted."""
        return self._conditions(matches, at_end(self.join), self.work.errors)

    def _verified(self, matches: Matches, hop: Hop) -> Matches:
        """Drop matches whose keys only share a hash, and those that differ in another key class."""
        same = np.ones(len(matches), dtype=np.bool_)
        pairs = [] if hop.source is None else [(hop.source, hop.key_class)]
        for source, key_class in [*pairs, *hop.checks]:
            assert key_class is not None
            tables = self.join.classes[key_class].positions
            ours, theirs = self.network.tables[tables[hop.position]], self.network.tables[tables[source]]
            if key_class != hop.key_class:
                same &= equal(matches.key(hop.position, ours.name), matches.key(source, theirs.name))
            for one, other in zip(ours.verify, theirs.verify, strict=True):
                same &= equal(matches.column(hop.position, one, None), matches.column(source, other, None))
        return matches if same.all() else matches.take(np.flatnonzero(same))

    def _conditions(
        self, matches: Matches, conditions: Sequence[Condition], errors: Counter[int] | None = None
    ) -> Matches:
        """Drop what the conditions refute; with `errors`, on whole results, also what they raised on."""
        if not conditions or len(matches) == 0:
            return matches

        def columns(rows: Ints) -> Lookup:
            part = matches if len(rows) == len(matches) else matches.take(rows)
            return lookup(self.network, self.join, part)

        bits = refuted(matches.bits, conditions, columns, errors)
        return matches if bits is matches.bits else serving(replace(matches, bits=bits))


def pairs_at_once(limits: Limits, positions: int) -> int:
    """How many pairs of composites with so many positions and rows may be in memory: references, times, and bits."""
    return max(LEAST_PAIRS, limits.work // (32 * (positions + 1)))


def _by_time(rows: Rows) -> tuple[Rows, Ints | None]:
    """The rows sorted by time as if all had one key, and their places; tables without a key are stored that way."""
    if len(rows) == 0 or (rows.key[0] == 0 and rows.key[-1] == 0):
        return rows, None
    order = np.argsort(rows.time, kind="stable")
    key = np.zeros(len(order), dtype=np.int64)
    return Rows(key, rows.time[order], rows.bits[order], rows.patterns, {}), order


def _reach(network: Network, join: Join, known: tuple[int, ...], target: int) -> Reach:
    """Cached in the network, which a worker keeps over many steps."""
    kept: dict[tuple[int, tuple[int, ...], int], Reach] = network.__dict__.setdefault("_reaches", {})
    place = (join.index, known, target)
    if place not in kept:
        kept[place] = build_reach(join, known, target)
    return kept[place]


def _search(network: Network, join: Join, known: tuple[int, ...], target: int) -> Search | None:
    """Cached in the network, which a worker keeps over many steps."""
    kept: dict[tuple[int, tuple[int, ...], int], Search | None] = network.__dict__.setdefault("_searches", {})
    place = (join.index, known, target)
    if place not in kept:
        kept[place] = build_search(join, target, known)
    return kept[place]
