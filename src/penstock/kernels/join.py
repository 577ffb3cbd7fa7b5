"""The joins of one task in one step: each start position's delta along its own probe order, as pure functions.

By the telescoped delta rule a delta meets, at earlier positions, the rows of this step too, and at later positions
only older rows: every result is found exactly once, by its last row in the order (step, position).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.compare import holds
from penstock.kernels.probe import Counts, Reach, Words, build_reach, probe, to_words, word_count
from penstock.model import Ref
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.network import Join, Network
from penstock.state.run import Ints, Rows

Pick = tuple[Sequence[Rows], Ints | None, Ints]  # (runs, run of each row or None if all from the first, row in its run)


MANY = 1 << 12  # dictionaries of runs whose translation is kept
FEW = 1 << 13  # matches of one run that go on alone; fewer wait for those of the other runs


@dataclass
class Work:
    """What a task did: probes by state table of the start, and raised expressions by query."""

    counts: dict[int, Counts] = field(default_factory=dict)
    errors: Counter[int] = field(default_factory=Counter)


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
        return Matches(self.positions, picks, self.keys[index], self.times[index], self.bits[index])

    def column(self, position: int, name: str, event_time: pa.DataType | None) -> pa.Array:
        """A column of the rows at one position; with `event_time`, the row's time as a value of that type."""
        place = self.positions.index(position)
        if event_time is not None:
            return time_array(self.times[:, place], event_time)
        return gather(self.picks[place], name)

    @property
    def result_time(self) -> Ints:
        return np.asarray(self.times.max(axis=1), dtype=np.int64)


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
    order = np.argsort(run, kind="stable")
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
    deltas: Mapping[int, Rows],
    state: Mapping[int, Sequence[Rows]],
    work: Work,
    suspended: Collection[int] = (),
) -> Iterator[Matches]:
    """All new results of one join, in pieces; `deltas` and `state` are by table. Suspended queries get none."""
    served = _served(network, join, frozenset(suspended))
    for start, order in enumerate(join.orders):
        delta = deltas.get(join.tables[start])
        if delta is None or len(delta) == 0:
            continue
        bits = served.words(delta, start)[delta.bits]
        wanted = np.flatnonzero(bits.any(axis=1))
        if len(wanted) == 0:
            continue
        composite = Matches(
            (start,), (([delta], None, wanted),), delta.key[wanted], delta.time[wanted, None], bits[wanted]
        )
        hops = []
        for number, hop in enumerate(order):
            known = (start, *(h.position for h in order[:number]))
            runs = [*state.get(hop.table, ())]
            if hop.fresh and hop.table in deltas:
                runs.append(deltas[hop.table])
            hops.append((hop.position, runs, build_reach(join, known, hop.position)))
        yield from _expand(
            network, join, composite, hops, served, work, work.counts.setdefault(join.tables[start], Counts())
        )


def _expand(
    network: Network,
    join: Join,
    composite: Matches,
    hops: Sequence[tuple[int, Sequence[Rows], Reach]],
    served: _Served,
    work: Work,
    counts: Counts,
) -> Iterator[Matches]:
    if not hops:
        done = _filter(network, join, _verified(network, join, composite), work)
        if len(done):
            yield done
        return
    (position, runs, reach), rest = hops[0], hops[1:]
    counts.probed += len(composite)
    found: list[tuple[int, Ints, Ints, Words]] = []
    for number, rows in enumerate(runs):
        pieces = probe(
            composite.keys, composite.times, composite.bits, rows, served.words(rows, position), reach, counts
        )
        for left, right, bits in pieces:
            if not rest and len(left) >= FEW:
                extended = _extend(composite, position, ([rows], None, right), left, bits)
                yield from _expand(network, join, extended, rest, served, work, counts)
            else:
                found.append((number, left, right, bits))
    if found:
        # A next hop needs the composites in their own order again: matches of several runs are interleaved.
        left = np.concatenate([f[1] for f in found])
        order = np.argsort(left, kind="stable")
        run = np.concatenate([np.full(len(f[1]), f[0], dtype=np.int64) for f in found])[order]
        row = np.concatenate([f[2] for f in found])[order]
        bits = np.concatenate([f[3] for f in found])[order]
        extended = _extend(composite, position, (runs, run, row), left[order], bits)
        yield from _expand(network, join, extended, rest, served, work, counts)


def _extend(composite: Matches, position: int, pick: Pick, left: Ints, bits: Words) -> Matches:
    runs, run, row = pick
    if run is None:
        times = runs[0].time[row]
    else:
        times = np.empty(len(row), dtype=np.int64)
        for number, rows in enumerate(runs):
            chosen = run == number
            times[chosen] = rows.time[row[chosen]]
    base = composite.take(left)
    return Matches(
        (*base.positions, position), (*base.picks, pick), base.keys, np.column_stack([base.times, times]), bits
    )


def _verified(network: Network, join: Join, matches: Matches) -> Matches:
    """Drop matches whose keys only share a hash: the real values of every position must equal the start's."""
    first = network.tables[join.tables[matches.positions[0]]]
    if not first.verify or len(matches) == 0:
        return matches
    same = np.ones(len(matches), dtype=np.bool_)
    for part, name in enumerate(first.verify):
        ours = _bitwise(gather(matches.picks[0], name))
        for place, position in enumerate(matches.positions[1:], start=1):
            other = network.tables[join.tables[position]].verify[part]
            theirs = _bitwise(gather(matches.picks[place], other))
            same &= pc.fill_null(pc.equal(ours, theirs), False).to_numpy(zero_copy_only=False)
    return matches if same.all() else matches.take(np.flatnonzero(same))


def _bitwise(array: pa.Array) -> pa.Array:
    """Doubles as their bits, of which NaN has many (a sum of infinities has others than a parsed NaN)."""
    if not pa.types.is_float64(array.type):
        return array
    return pc.if_else(pc.is_nan(array), np.nan, array).view(pa.int64())


def _filter(network: Network, join: Join, matches: Matches, work: Work) -> Matches:
    """Clear the bits of queries whose cross-stream predicates (of the kernel subset) are not TRUE."""
    changed = False
    bits = matches.bits
    for member in join.leads:
        for residual in member.residuals:
            if residual.term is None:
                continue
            word, bit = member.bit // 64, np.uint64(1 << (member.bit % 64))
            wanted = np.flatnonzero(bits[:, word] & bit)
            if len(wanted) == 0:
                continue
            if not changed:
                bits, changed = bits.copy(), True
            part = matches.take(wanted)
            true, raised = holds(residual.term, lookup(network, join, part), len(wanted))
            work.errors[member.id] += int(raised.sum())
            bits[wanted[~true], word] &= ~bit
    if not changed:
        return matches
    kept = Matches(matches.positions, matches.picks, matches.keys, matches.times, bits)
    alive = bits.any(axis=1)
    return kept if alive.all() else kept.take(np.flatnonzero(alive))


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
        for table in {join.tables[p] for p in range(len(join.tables))}:
            for entry in network.tables[table].entries:
                if entry.join == join.index:
                    served = 0 if entry.query in suspended else 1 << bit[entry.query]
                    self.masks.setdefault(entry.position, {})[entry.id] = served

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
