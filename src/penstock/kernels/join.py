"""The joins of one task in one step: each start position's delta along its own route, as pure functions.

By the telescoped delta rule a delta meets, at earlier positions, the rows of this step too, and at later positions
only older rows: every result is found exactly once, by its last row in the order (step, position).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.compare import Lookup
from penstock.kernels.conditions import Condition, at_end, at_hop, refuted
from penstock.kernels.links import count_probes, count_results, links_of
from penstock.kernels.probe import Counts, Reach, Words, build_reach, nearest, probe, to_words, word_count
from penstock.kernels.ranges import Search, build_search, find_ranges
from penstock.kernels.scan import pairs_by_time, scan
from penstock.model import Ref
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.network import Join, Network, key_column
from penstock.planner.routes import MOVED, WHOLE, Hop, Route
from penstock.state.run import Ints, Rows

Number = TypeVar("Number", np.int64, np.uint64)
Pick = tuple[Sequence[Rows], Ints | None, Ints]  # (runs, run of each row or None if all from the first, row in its run)


BLOCK = 1 << 17  # new rows that set out together: bounds the memory of what they find on the way
MANY = 1 << 12  # dictionaries of runs whose translation is kept
FEW = 1 << 13  # matches of one run that go on alone; fewer wait for those of the other runs


@dataclass
class Work:
    """What a task did: probes by state table of the start, raised expressions by query, composites by (join, start, positions).

    `links` has, by (state table, name of counter), what the links of its chain had to do.
    """

    counts: dict[int, Counts] = field(default_factory=dict)
    errors: Counter[int] = field(default_factory=Counter)
    flows: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    links: Counter[tuple[int, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class Slices:
    """The rows of the state tables as one task sees them: those it owns, and all of them; older rows, and this step's."""

    own: Mapping[int, Sequence[Rows]] = field(default_factory=dict)
    fresh: Mapping[int, Sequence[Rows]] = field(default_factory=dict)
    whole: Mapping[int, Sequence[Rows]] = field(default_factory=dict)
    every: Mapping[int, Sequence[Rows]] = field(default_factory=dict)

    def of(self, hop: Hop) -> list[Rows]:
        old, new = (self.whole, self.every) if hop.access == WHOLE else (self.own, self.fresh)
        return [*old.get(hop.table, ()), *(new.get(hop.table, ()) if hop.fresh else ())]


@dataclass(frozen=True)
class Matches:
    """Rows joined so far, all of one start position: per position the rows picked, their times, and bits of queries."""

    positions: tuple[int, ...]
    picks: tuple[Pick, ...]
    keys: Ints
    times: Ints
    bits: Words

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, index: Ints) -> Matches:
        picks = tuple((runs, None if run is None else run[index], row[index]) for runs, run, row in self.picks)
        return Matches(self.positions, picks, self.keys[index], _rows(self.times, index), _rows(self.bits, index))

    def led_by(self, position: int) -> tuple[Matches, Ints]:
        """The same matches with one of the positions first and in the order of its times; and which ones they are."""
        places = sorted(range(len(self.positions)), key=lambda place: self.positions[place] != position)
        order = np.argsort(self.times[:, places[0]], kind="stable")
        found = self.take(order)
        positions, picks = zip(*((found.positions[p], found.picks[p]) for p in places), strict=True)
        return Matches(positions, picks, found.keys, found.times[:, places], found.bits), order

    def column(self, position: int, name: str, event_time: pa.DataType | None) -> pa.Array:
        """A column of the rows at one position; with `event_time`, the row's time as a value of that type."""
        place = self.positions.index(position)
        if event_time is not None:
            return time_array(self.times[:, place], event_time)
        return gather(self.picks[place], name)

    def key(self, position: int, table: str) -> pa.Array:
        """The keys, in a state table of that name, of the rows at one position, wherever they were found."""
        runs, run, row = self.picks[self.positions.index(position)]
        column = key_column(table)
        if any(column in rows.columns for rows in runs):
            return gather((runs, run, row), column)
        return pa.array(_gather(runs, run, row, "key"))

    @property
    def result_time(self) -> Ints:
        newest = self.times[:, 0]
        for place in range(1, self.times.shape[1]):
            newest = np.maximum(newest, self.times[:, place])
        return np.ascontiguousarray(newest)


def time_array(times: Ints, kind: pa.DataType) -> pa.Array:
    """Times in the engine's unit as values of an event-time column."""
    if pa.types.is_date(kind):
        return pa.array((times // 86_400_000_000).astype(np.int32)).cast(kind)
    return pa.array(times).cast(kind)


def gather(pick: Pick, name: str) -> pa.Array:
    """A column of picked rows, which may lie in several runs."""
    runs, run, row = pick
    if run is None:
        return _take(runs[0], name, row)
    # NumPy sorts numbers of 16 bits several times as fast as wider ones.
    order = np.argsort(run.astype(np.int16) if len(runs) < 1 << 15 else run, kind="stable")
    pieces = [_take(runs[number], name, row[order[start:stop]]) for number, start, stop in _groups(run[order])]
    kind = next((p.type for p in pieces if not pa.types.is_null(p.type)), pa.null())
    pieces = [p.cast(kind) for p in pieces]
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))


def _take(rows: Rows, name: str, row: Ints) -> pa.Array:
    # A run from before a query asked for the column lacks it; none of its rows serves that query.
    column = rows.columns.get(name)
    return pa.nulls(len(row)) if column is None else column.take(pa.array(row))


def join_deltas(
    network: Network,
    join: Join,
    routes: Sequence[Route],
    slices: Slices,
    work: Work,
    suspended: Collection[int] = (),
) -> Iterator[tuple[Route, int, Matches]]:
    """What this step's rows find, in pieces: (route, hops done, matches). Matches with hops left wait for an exchange.

    Suspended queries get no results.
    """
    served = _served(network, join, frozenset(suspended))
    for route in routes:
        walk = _Walk(network, join, route, slices, served, work)
        if route.everywhere:  # every task starts from all new rows, and counts those that came to it
            for rows in slices.fresh.get(route.table, ()):
                walk.came(len(served.at(rows, route.start)[1]))
        for delta in (slices.every if route.everywhere else slices.fresh).get(route.table, ()):
            bits, wanted = served.at(delta, route.start)
            if not route.everywhere:
                walk.came(len(wanted))
            for first in range(0, len(wanted), BLOCK):
                some = wanted[first : first + BLOCK]
                pick = ([delta], None, some)
                composite = Matches((route.start,), (pick,), delta.key[some], delta.time[some, None], _rows(bits, some))
                whole = walk.counted(composite) if route.hops else walk.settled(walk.counted(composite))
                if len(whole):
                    yield from walk.go(whole, 0)


def resume(
    network: Network,
    join: Join,
    route: Route,
    done: int,
    pieces: Sequence[Matches],
    slices: Slices,
    work: Work,
    suspended: Collection[int] = (),
) -> Iterator[tuple[Route, int, Matches]]:
    """Go on with composites that came through an exchange, after `done` hops."""
    walk = _Walk(network, join, route, slices, _served(network, join, frozenset(suspended)), work)
    for matches in pieces:
        if done < len(route.hops):
            order = np.lexsort((matches.times[:, 0], matches.keys))
            yield from walk.go(matches.take(order), done, arrived=True)
        else:
            yield route, done, matches


@dataclass(frozen=True)
class _Walk:
    """The walk of composites along one route."""

    network: Network
    join: Join
    route: Route
    slices: Slices
    served: _Served
    work: Work

    def came(self, rows: int) -> None:
        """Count new rows of the start. What they look for and do not find is counted as none, or a set that has become rare would seem forgotten."""
        start, order = self.route.start, self.route.order
        if not order:
            return
        self.work.flows[self.join.index, start, (start,)] += rows
        for k in range(1, len(order) + 1 if rows else 1):
            self.work.flows[self.join.index, start, tuple(sorted((start, *order[:k])))] += 0

    def go(self, composite: Matches, done: int, *, arrived: bool = False) -> Iterator[tuple[Route, int, Matches]]:
        """From after `done` hops to the end, or to the next exchange; `arrived` if the exchange before this hop is behind."""
        if done == len(self.route.hops):
            for links in links_of(self.network, self.join).values():
                own = composite.times[:, composite.positions.index(links.position)]
                count_results(links, composite.result_time - own, self.work.links)
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
        """The composites with the key of the next lookup, and in its order; those without a key find nothing."""
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
        counts = self.work.counts.setdefault(self.join.tables[self.route.start], Counts())
        counts.probed += len(composite)
        links = links_of(self.network, self.join).get((hop.position, hop.table))
        if links is not None:
            count_probes(links, composite.bits, self.work.links)
        turned, places = composite, None
        if hop.source is None:
            lead = nearest(self.join, composite.positions, hop.position)
            turned, places = (composite, None) if lead == composite.positions[0] else composite.led_by(lead)
        reach = _reach(self.network, self.join, turned.positions, hop.position)
        runs = self.slices.of(hop)
        found: list[tuple[int, Ints, Ints, Words]] = []
        for number, rows in enumerate(runs):
            words = self.served.words(rows, hop.position)
            if hop.source is not None:
                pieces = probe(composite.keys, composite.times, composite.bits, rows, words, reach, counts)
            else:
                pieces = self._scan(turned, hop.position, rows, words, reach, counts)
            for turned_left, right, bits in pieces:
                left = turned_left if places is None else places[turned_left]
                if last and len(left) >= FEW:
                    whole = _extend(composite, hop.position, ([rows], None, right), left, bits)
                    yield from self._checked(whole, hop, last=last)
                else:
                    found.append((number, left, right, bits))
        if found:
            # A next hop needs the composites in their own order again: matches of several runs are interleaved.
            left = np.concatenate([f[1] for f in found])
            order = np.argsort(left, kind="stable")
            run = np.concatenate([np.full(len(f[1]), f[0], dtype=np.int64) for f in found])[order]
            row = np.concatenate([f[2] for f in found])[order]
            bits = np.concatenate([f[3] for f in found])[order]
            longer = _extend(composite, hop.position, (runs, run, row), left[order], bits)
            yield from self._checked(longer, hop, last=last)

    def _scan(
        self, composite: Matches, position: int, rows: Rows, words: Words, reach: Reach, counts: Counts
    ) -> Iterator[tuple[Ints, Ints, Words]]:
        """Pairs without an equality: by an inequality through sorted values, or by time, whichever leaves fewer."""
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
        """Only matches whose keys are really equal, and whose conditions hold as far as they can be decided."""
        matches = self.counted(self._verified(extended, hop))
        matches = self._conditions(matches, at_hop(self.join, hop.position, extended.positions, last=last))
        matches = self.settled(matches) if last else matches
        self.work.flows[self.join.index, self.route.start, tuple(sorted(matches.positions))] += len(matches)
        if len(matches):
            yield matches

    def counted(self, matches: Matches) -> Matches:
        """Clear the bits of queries of which a row has left its window, since so many rows came after it."""
        outs = [(m.bit, p, out) for m in self.join.leads for p, out in m.outs if p in matches.positions]
        if not outs or len(matches) == 0:
            return matches
        bits, newest = matches.bits.copy(), matches.result_time
        for number, position, column in outs:
            out = matches.column(position, column, None).to_numpy(zero_copy_only=False)
            bits[newest >= out, number // 64] &= ~np.uint64(1 << (number % 64))
        return _serving(replace(matches, bits=bits))

    def settled(self, matches: Matches) -> Matches:
        """Whole results that also meet the conditions that had to wait; those on which one raised are counted."""
        return self._conditions(matches, at_end(self.join), self.work.errors)

    def _verified(self, matches: Matches, hop: Hop) -> Matches:
        """Drop matches whose keys only share a hash, and those that are unequal by another key class."""
        same = np.ones(len(matches), dtype=np.bool_)
        pairs = [] if hop.source is None else [(hop.source, hop.key_class)]
        for source, key_class in [*pairs, *hop.checks]:
            assert key_class is not None
            tables = self.join.classes[key_class].positions
            ours, theirs = self.network.tables[tables[hop.position]], self.network.tables[tables[source]]
            if key_class != hop.key_class:
                same &= _equal(matches.key(hop.position, ours.name), matches.key(source, theirs.name))
            for one, other in zip(ours.verify, theirs.verify, strict=True):
                same &= _equal(matches.column(hop.position, one, None), matches.column(source, other, None))
        return matches if same.all() else matches.take(np.flatnonzero(same))

    def _conditions(
        self, matches: Matches, conditions: Sequence[Condition], errors: Counter[int] | None = None
    ) -> Matches:
        """Without what the conditions refute; with `errors`, of whole results, also without what they raised on."""
        if not conditions or len(matches) == 0:
            return matches

        def columns(rows: Ints) -> Lookup:
            part = matches if len(rows) == len(matches) else matches.take(rows)
            return lookup(self.network, self.join, part)

        bits = refuted(matches.bits, conditions, columns, errors)
        return matches if bits is matches.bits else _serving(replace(matches, bits=bits))


def _by_time(rows: Rows) -> tuple[Rows, Ints | None]:
    """The rows in the order of time as if all had one key, and their places; tables without a key are stored so."""
    if len(rows) == 0 or (rows.key[0] == 0 and rows.key[-1] == 0):
        return rows, None
    order = np.argsort(rows.time, kind="stable")
    key = np.zeros(len(order), dtype=np.int64)
    return Rows(key, rows.time[order], rows.bits[order], rows.patterns, {}), order


def _reach(network: Network, join: Join, known: tuple[int, ...], target: int) -> Reach:
    """Kept with the network, which a worker holds over many steps."""
    kept: dict[tuple[int, tuple[int, ...], int], Reach] = network.__dict__.setdefault("_reaches", {})
    place = (join.index, known, target)
    if place not in kept:
        kept[place] = build_reach(join, known, target)
    return kept[place]


def _search(network: Network, join: Join, known: tuple[int, ...], target: int) -> Search | None:
    """Kept with the network, which a worker holds over many steps."""
    kept: dict[tuple[int, tuple[int, ...], int], Search | None] = network.__dict__.setdefault("_searches", {})
    place = (join.index, known, target)
    if place not in kept:
        kept[place] = build_search(join, target, known)
    return kept[place]


def _extend(composite: Matches, position: int, pick: Pick, left: Ints, bits: Words) -> Matches:
    picks = [(runs, None if run is None else run[left], row[left]) for runs, run, row in composite.picks]
    times = np.empty((len(left), len(picks) + 1), dtype=np.int64, order="F")
    for place in range(len(picks)):
        times[:, place] = composite.times[:, place][left]
    times[:, -1] = _gather(*pick, "time")
    return Matches((*composite.positions, position), (*picks, pick), composite.keys[left], times, bits)


def _rows(values: npt.NDArray[Number], index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Number]:
    """Some rows of a table of few columns, which lie one after the other: along so short an axis NumPy's own ways are slow."""
    found = np.empty((len(index), values.shape[1]), dtype=values.dtype, order="F")
    for column in range(values.shape[1]):
        found[:, column] = values[:, column][index]
    return found


def _serving(matches: Matches) -> Matches:
    """Only the matches that serve any query."""
    alive = _alive(matches.bits)
    return matches if alive.all() else matches.take(np.flatnonzero(alive))


def _alive(bits: Words) -> npt.NDArray[np.bool_]:
    """The rows that serve any query."""
    alive = bits[:, 0] != 0
    for word in range(1, bits.shape[1]):
        alive |= bits[:, word] != 0
    return np.asarray(alive)


def _gather(runs: Sequence[Rows], run: Ints | None, row: Ints, name: str) -> Ints:
    """Keys or times of picked rows."""
    if run is None:
        return np.asarray(getattr(runs[0], name)[row])
    values = np.empty(len(row), dtype=np.int64)
    for number, rows in enumerate(runs):
        chosen = run == number
        values[chosen] = getattr(rows, name)[row[chosen]]
    return values


def _equal(ours: pa.Array, theirs: pa.Array) -> npt.NDArray[np.bool_]:
    same = pc.fill_null(pc.equal(_bitwise(ours), _bitwise(theirs)), False)
    return np.asarray(same.to_numpy(zero_copy_only=False))


def _bitwise(array: pa.Array) -> pa.Array:
    """Doubles as their bits, of which NaN has many (a sum of infinities has others than a parsed NaN)."""
    if not pa.types.is_float64(array.type):
        return array
    return pc.if_else(pc.is_nan(array), np.nan, array).view(pa.int64())


class lookup:  # noqa: N801  (used as a function: the columns of matches by reference)
    """Columns of matches for the evaluation of terms."""

    def __init__(self, network: Network, join: Join, matches: Matches) -> None:
        self.network, self.join, self.matches = network, join, matches

    def __call__(self, ref: Ref) -> pa.Array:
        if ref.role == PSEUDO_ROLE:
            return pa.array(self.matches.result_time)
        stream = self.network.streams[self.network.tables[self.join.tables[ref.role]].stream]
        if ref.column == stream.event_time:
            return self.matches.column(ref.role, ref.column, pa.int64())
        return self.matches.column(ref.role, ref.column, None)


class _Served:
    """Translates the permanent role ids of a run's dictionary to the bits of this join's queries."""

    def __init__(self, network: Network, join: Join, suspended: frozenset[int]) -> None:
        self.width = word_count(len(join.leads))
        bit = {m.share: m.bit for m in join.leads}
        self.masks: dict[int, dict[int, int]] = {}
        self.known: dict[tuple[int, int], tuple[object, Words]] = {}
        for table in {table for _, table in join.places}:
            for entry in network.tables[table].entries:
                if entry.join == join.index and not entry.counting:
                    served = 0 if entry.query in suspended else 1 << bit[entry.query]
                    self.masks.setdefault(entry.position, {})[entry.id] = served

    def at(self, rows: Rows, position: int) -> tuple[Words, Ints]:
        """The queries that each row can serve at a position, and the rows that serve any."""
        bits = _rows(self.words(rows, position), rows.bits)
        return bits, np.flatnonzero(_alive(bits))

    def words(self, rows: Rows, position: int) -> Words:
        """The queries that a row of each bits id can serve at a position. A run is probed in many steps: what was found is kept."""
        place = (id(rows.patterns), position)
        if place not in self.known:
            masks = self.masks[position]
            found = [to_words(sum(masks.get(role, 0) for role in pattern), self.width) for pattern in rows.patterns]
            if len(self.known) > MANY:
                self.known.clear()
            # With the patterns themselves, so that no others can get their id.
            self.known[place] = (rows.patterns, np.array(found, dtype=np.uint64).reshape(len(found), self.width))
        return self.known[place][1]


def _served(network: Network, join: Join, suspended: frozenset[int]) -> _Served:
    """Kept with the network, which a worker holds over many steps."""
    kept: dict[tuple[int, frozenset[int]], _Served] = network.__dict__.setdefault("_served", {})
    place = (join.index, suspended)
    if place not in kept:
        kept[place] = _Served(network, join, suspended)
    return kept[place]


def _groups(sorted_values: Ints) -> Iterator[tuple[int, int, int]]:
    edges = np.flatnonzero(np.diff(sorted_values)) + 1
    starts = [0, *edges.tolist()]
    for start, stop in zip(starts, [*edges.tolist(), len(sorted_values)], strict=True):
        yield int(sorted_values[start]), start, stop
