"""The engine without Spark: steps of a workload through plan, delta, probe, runs and expiry, in one process.

What Spark would compute before the exchange (key hashes, normalized keys, computed predicates) is computed here row by
row with the reference's evaluation; everything after the exchange is the engine's code. Runs are encoded and decoded
with checksums, so that a step reads what a file would contain.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from penstock.kernels import join as join_kernel
from penstock.kernels import walk as walk_kernel
from penstock.kernels.compare import values
from penstock.kernels.delta import alive, build_delta, select
from penstock.kernels.join import join_deltas, resume
from penstock.kernels.matches import Matches, Pick, extend, lookup
from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.kernels.parcel import pack, unpack
from penstock.kernels.probe import CHUNK, Counts, Words, probe
from penstock.kernels.ranks import closed, rank
from penstock.kernels.walk import Slices, Work
from penstock.model import And, Expression, Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import build_network
from penstock.planner.join import Join
from penstock.planner.network import Network, StandingQuery
from penstock.planner.reached import Closing
from penstock.planner.remap import remap_expression
from penstock.planner.routes import Route, Routes, build_routes
from penstock.planner.state_table import StateTable
from penstock.reference import Row, admit
from penstock.reference.evaluate import holds, value_of
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.state.run import Ints, Rows, RunEntry, checksum, decode_run, encode_run, expiry, fading
from tests.oracle import naive_type
from tests.workloads import Workload, keys_of

FIRST_ID = 5  # lower ids are for queries that come and go
BYSTANDER = 3

KeyHash = Callable[[tuple[object, ...]], int]


def spread(key: tuple[object, ...]) -> int:
    """A hash without collisions for one integer, all over the buckets; any other key by its text."""
    number = key[0] if len(key) == 1 and isinstance(key[0], int) else zlib.crc32(repr(key).encode())
    assert isinstance(number, int)
    return _signed(number * 0x9E3779B97F4A7C15)


def plain(key: tuple[object, ...]) -> int:
    """An integer is its own hash, so that most keys share a bucket and the extreme ones are the extreme hashes."""
    return key[0] if len(key) == 1 and isinstance(key[0], int) else spread(key)


def colliding(key: tuple[object, ...]) -> int:
    """One integer keeps a hash of its own, as it must; other keys share two hashes at the ends of the range."""
    if len(key) == 1 and isinstance(key[0], int):
        return plain(key)
    return (2**63 - 1, -(2**63))[zlib.crc32(repr(key).encode()) % 2]


@dataclass
class Step:
    """The effects of one step.

    Counts of rows and of work by name, composites by (join, start, positions), progress after it, the remaining runs,
    and results so far by query.
    """

    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    tables: dict[str, Counter[str]] = field(default_factory=dict)
    flows: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    progress: dict[str, int] = field(default_factory=dict)
    files: int = 0
    runs: tuple[RunEntry, ...] = ()
    answered: tuple[int, ...] = ()

    @property
    def compared(self) -> int:
        return sum(counts["compared"] for counts in self.tables.values())


@dataclass
class Simulation:
    """The engine's state, and the effects of each step of a workload: the answer of query n is `results[n]`.

    `progress` also has, under separate names, what the last step has closed of windows that count rows.
    """

    workload: Workload
    network: Network
    tasks: int
    merge_every: int
    key_hash: KeyHash
    results: list[list[tuple[object, ...]]]
    steps: list[Step] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    files: dict[str, pa.Buffer] = field(default_factory=dict)
    runs: dict[str, RunEntry] = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=dict)
    choose_routes: Callable[[Network, int], Routes] = lambda network, step: build_routes(network)

    def held(self, table: StateTable, runs: Sequence[RunEntry] | None = None) -> list[Rows]:
        """The rows of a state table, from its files."""
        entries = self.runs.values() if runs is None else runs
        return [self._open(e) for e in entries if e.table == table.name]

    def _open(self, entry: RunEntry) -> Rows:
        return decode_run(self.files[entry.name], entry)

    def run_step(self, network: Network, batch: Mapping[str, tuple[list[Row], dict[str, int], int]]) -> None:
        """One step: `batch` has, by stream, accepted rows, counts of rows, and progress after it."""
        self.network = network
        step = Step(streams={name: counts for name, (_, counts, _) in batch.items()})
        number = len(self.steps)
        known = {t.name for t in network.tables}
        live = [r for r in self.runs.values() if r.table in known and not r.expired(self.progress)]
        merging = self.merge_every > 0 and number % self.merge_every == self.merge_every - 1
        written: list[RunEntry] = []
        arrived = {t.index: _Arrived(network, t, batch[t.stream][0], self.key_hash) for t in network.tables}
        routes = self.choose_routes(network, number)
        shares = [self._slices(network, routes, arrived, live, task, step) for task in range(self.tasks)]
        self._join(network, routes, shares, step)
        for slices in shares:
            for index, (rows,) in slices.fresh.items():
                written += self._store(network.tables[index], rows, number, step.tables[network.tables[index].name])
            if merging:
                for table in network.tables:
                    merged = merge_runs(table, slices.own[table.index], self.progress)
                    pieces = [] if merged is None else lay_out(table, merged)
                    written += [self._write(table, rows, number, 1, life) for life, rows in pieces]
        self.runs = {} if merging else {r.name: r for r in live}
        self.runs.update((r.name, r) for r in written)
        self.files = {name: self.files[name] for name in self.runs}
        self.progress.update((Closing(s), self.progress.get(s, NEVER)) for s in network.closes)
        for name, (_, _, progress) in batch.items():
            if progress > NEVER:
                self.progress[name] = progress
        step.progress = {name: self.progress.get(name, NEVER) for name in batch}
        step.files, step.runs = len(written), tuple(self.runs.values())
        step.answered = tuple(len(found) for found in self.results)
        self.steps.append(step)

    def end(self) -> None:
        """All streams have ended: a step without rows emits the delayed results of windows that count rows."""
        streams = self.network.streams
        self.progress.update(dict.fromkeys(streams, FOREVER))
        self.run_step(self.network, {name: ([], {}, FOREVER) for name in streams})

    def _slices(
        self,
        network: Network,
        routes: Routes,
        arrived: Mapping[int, _Arrived],
        live: Sequence[RunEntry],
        task: int,
        step: Step,
    ) -> Slices:
        """One task's share of the state and of new rows."""
        low, high = BucketMap.even(self.tasks).ranges[task]
        slices = Slices({}, {}, {}, {})
        for table in network.tables:
            counts = step.tables.setdefault(table.name, Counter())
            part = arrived[table.index].between(low, high)
            if len(part.keys):
                delta = part.delta()
                counts["unwanted"] += delta.unwanted
                slices.fresh[table.index] = [delta.rows]
            if table.index in routes.replicated and arrived[table.index].rows:
                slices.every[table.index] = [arrived[table.index].delta().rows]
            runs = [self._open(r) for r in live if r.table == table.name]
            runs = rank(table, runs) if table.counted else runs
            if table.timed:
                cuts = _time_cuts(runs, self.tasks)
                own = [run.since(cuts[task], cuts[task + 1]) for run in runs]
            else:
                own = [run.between(low, high) for run in runs]
            slices.own[table.index] = [s for s in own if len(s)]
            if table.index in routes.whole or (network.closes and table.index in routes.replicated):
                slices.whole[table.index] = runs
        return slices

    def _join(self, network: Network, routes: Routes, shares: Sequence[Slices], step: Step) -> None:
        """All stages of the step: parcels go from task to task as through an exchange."""
        posted: list[tuple[int, Join, Route, int, bytes]] = []

        def handle(join: Join, found: Iterator[tuple[Route, int, Matches]], work: Work) -> None:
            for route, done, matches in found:
                if done == len(route.hops):
                    self._collect(network, join, matches, work)
                else:
                    parcels = pack(network, join, route, done, matches, BucketMap.even(self.tasks))
                    posted.extend((to, join, route, done, body) for to, body in parcels)

        for stage in range(routes.exchanges + 1):
            received, posted[:] = list(posted), []
            for task, slices in enumerate(shares):
                work = Work()
                if stage == 0:
                    for join in network.joins:
                        seen = self._seen(join, slices)
                        handle(join, join_deltas(network, join, routes.joins[join.index], seen, work), work)
                for to, join, route, done, body in received:
                    if to == task:
                        pieces = [unpack(body, (route.start, *route.order[:done]))]
                        seen = self._seen(join, slices)
                        handle(join, resume(network, join, route, done, pieces, seen, work), work)
                self.errors.update(work.errors)
                step.flows.update(work.flows)
                for index, counts in work.counts.items():
                    self._count(step.tables[network.tables[index].name], counts)
                for kind, counted in (("probes", work.probes), ("results", work.results)):
                    for (index, (begin, end)), number in counted.items():
                        step.tables[network.tables[index].name][f"{kind}:{begin}-{end}"] += number
        assert not posted

    def _seen(self, join: Join, slices: Slices) -> Slices:
        return closed(slices, *join.closed(self.progress)) if join.closes else slices

    def _store(self, table: StateTable, rows: Rows, step: int, counts: Counter[str]) -> list[RunEntry]:
        if table.stateless:
            counts["unwanted"] += len(rows)
            return []
        kept = select(rows, alive(table, rows, self.progress))
        counts["out_of_reach"] += len(rows) - len(kept)
        counts["stored"] += len(kept)
        return (
            [self._write(table, piece, step, 0, life) for life, piece in fresh_runs(table, kept)] if len(kept) else []
        )

    def _write(self, table: StateTable, rows: Rows, step: int, level: int, life: int) -> RunEntry:
        data = encode_run(rows, table.name)
        name = f"runs/{step}-{len(self.files)}-{len(self.runs)}-{checksum(data)}.arrow"
        assert name not in self.files
        lives = {entry.id: entry.lives for entry in table.entries}
        entry = RunEntry(
            name=name,
            table=table.name,
            level=level,
            step=step,
            rows=len(rows),
            bytes=data.size,
            min_time=int(rows.time.min()),
            max_time=int(rows.time.max()),
            min_key=int(rows.key[0]),
            max_key=int(rows.key[-1]),
            life=life,
            until=tuple(expiry(rows, lives, FOREVER, table.pieces).items()),
            fades=fading(rows, lives, FOREVER),
            version=self.network.version,
            checksum=checksum(data),
        )
        self.files[name] = data
        return msgspec.json.decode(msgspec.json.encode(entry), type=RunEntry)

    def _collect(self, network: Network, join: Join, matches: Matches, work: Work) -> None:
        """Add the select lists of the queries that each match serves."""
        find = lookup(network, join, matches)
        for member in join.members:
            if member.id < FIRST_ID:
                continue
            hit = np.flatnonzero(matches.bits[:, member.bit // 64] >> np.uint64(member.bit % 64) & np.uint64(1))
            position = {role: p for p, role in enumerate(member.roles)} | {PSEUDO_ROLE: PSEUDO_ROLE}
            query = next(q.query for q in network.queries if q.id == member.id)
            computed = dict(member.computed)
            items = [remap_expression(item.expression, position) for item in query.items]
            columns = {ref: find(ref).to_pylist() for e in items for ref in e.refs}
            done = {n: values(e.term, find, len(matches))[0].to_pylist() for n, e in computed.items()}
            for row in hit.tolist():
                by_ref = {ref: column[row] for ref, column in columns.items()}
                self.results[member.id - FIRST_ID].append(
                    tuple(done[n][row] if n in done else value_of(e, by_ref.__getitem__) for n, e in enumerate(items))
                )

    @staticmethod
    def _count(total: Counter[str], counts: Counts) -> None:
        total.update(probed=counts.probed, candidates=counts.candidates, compared=counts.compared)


def simulate(
    workload: Workload,
    *,
    tasks: int = 1,
    merge_every: int = 0,
    renumber: bool = False,
    chunk: int = CHUNK,
    key_hash: KeyHash = spread,
    strategy: str = "state_slice",
    cuts: Sequence[int] = (),
    lifetimes: Sequence[tuple[int, int]] | None = None,
    routes: Callable[[Network, int], Routes] = lambda network, step: build_routes(network),
) -> Simulation:
    """Run all batches of a workload.

    Query n lives from step `lifetimes[n][0]` to the step before `lifetimes[n][1]` (default: always). The chains of step
    n keep their k-th cut if bit k of `cuts[n]` is set, and always their last; steps beyond `cuts` start over, and
    without `cuts` all cuts stay. `routes` chooses the routes of each step.
    Every `merge_every` steps all runs of a table are merged. With `renumber` the network is rebuilt for each step from
    streams in another order, sometimes with one more query, so that tables, bits and computed values are renumbered.
    """
    queries = [StandingQuery(FIRST_ID + n, f"q{n}", query) for n, query in enumerate(workload.parsed)]
    always = [(0, len(workload.batches))] * len(queries)
    network = build_network(queries, workload.streams, strategy=strategy)
    simulation = Simulation(workload, network, tasks, merge_every, key_hash, [[] for _ in queries])
    simulation.choose_routes = routes
    verdicts = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    with _probing_in_chunks_of(chunk):
        for number in range(len(workload.batches)):
            streams = dict(sorted(workload.streams.items(), reverse=number % 2 == 0)) if renumber else workload.streams
            extra = [StandingQuery(BYSTANDER, "bystander", bystander(workload))] if renumber and number % 3 == 1 else []
            live = [q for q, (first, end) in zip(queries, lifetimes or always, strict=True) if first <= number < end]
            network = build_network([*live, *extra], streams, number, strategy)
            if cuts:
                kept = cuts[number % len(cuts)]
                tables = [replace(t, chain=_kept(t.chain, kept)) for t in network.tables]
                network = replace(network, tables=tuple(tables))
            batch = {}
            for name, steps in verdicts.items():
                judged = steps[number]
                counts = {kind: len(getattr(judged, kind)) for kind in ("accepted", "late", "bad")}
                counts["rows"] = len(workload.batches[number].get(name, []))
                batch[name] = (judged.accepted, counts, judged.progress)
            simulation.run_step(network, batch)
        if network.closes:
            simulation.end()
    return simulation


def bystander(workload: Workload) -> Query:
    """A query with a predicate that no index can decide, over the first two streams."""
    (x, one), (y, _) = list(workload.streams.items())[:2]
    window = "[RANGE 7]" if one.integer_time else "[RANGE 7 SECONDS]"
    keys = " AND ".join(f"p.{k.name} = q.{k.name}" for k in keys_of(one))
    text = (
        f"SELECT p.v0, q.v0 FROM {x} {window} AS p, {y} {window} AS q "
        f"WHERE {keys} AND (p.v0 IS NULL OR p.k0 IS NOT NULL)"
    )
    return parse_query(text, workload.streams)


def row_tuples(table: StateTable, stream: Stream, rows: Rows) -> list[tuple[object, ...]]:
    """Time and declared columns of stored rows, to compare with `stored_form`."""
    names = [c for c in table.columns if stream.column(c)]
    columns = [rows.columns[name].to_pylist() if name in rows.columns else [None] * len(rows) for name in names]
    return list(zip(rows.time.tolist(), *columns, strict=True))


def stored_form(table: StateTable, stream: Stream, rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """The stored form of these rows in a state table."""
    names = [stream.event_time, *(c for c in table.columns if stream.column(c))]
    return [tuple(row[name] for name in names) for row in rows]


@dataclass(frozen=True)
class _Arrived:
    """Accepted rows on their way to one state table, with what Spark computes for them before the exchange."""

    network: Network
    table: StateTable
    rows: Sequence[Row]
    key_hash: KeyHash

    @property
    def keys(self) -> list[tuple[object, ...] | None]:
        return [self._key(row) for row in self.rows]

    def hashes(self) -> list[int]:
        if not self.table.key:
            stream = self.network.streams[self.table.stream]
            return [spread((row[stream.event_time],)) for row in self.rows]
        return [0 if key is None else self.key_hash(key) for key in self.keys]

    def between(self, low: int, high: int | None) -> _Arrived:
        own = [r for r, h in zip(self.rows, self.hashes(), strict=True) if low <= h and (high is None or h < high)]
        return _Arrived(self.network, self.table, own, self.key_hash)

    def delta(self):
        table, stream = self.table, self.network.streams[self.table.stream]
        declared = {*table.columns, *(i.column for i in table.indexes), *table.verify}
        columns = {c.name: self._array(c.name, c.type) for c in stream.columns if c.name in declared}
        for part, name in enumerate(table.verify):
            if stream.column(name) is None:
                columns[name] = self._part(part)
        truths = {}
        for column, other in table.others:
            there = _Arrived(self.network, _table(self.network, other), self.rows, self.key_hash)
            hashes = zip(there.keys, there.hashes(), strict=True)
            columns[column] = pa.array([None if key is None else h for key, h in hashes], pa.int64())
            for part, name in enumerate(there.table.verify):
                if name in table.columns and stream.column(name) is None:
                    columns[name] = there._part(part)
        for name, _ in table.truths:
            predicate = _predicate(self.network, name)
            truths[name] = np.array([holds(predicate, _lookup(row)) for row in self.rows], dtype=np.bool_)
        has_key = np.array([key is not None for key in self.keys], dtype=np.bool_)
        time = np.array([row[stream.event_time] for row in self.rows], dtype=np.int64)
        hashes = np.array(self.hashes(), dtype=np.int64)
        return build_delta(table, hashes, has_key, time, columns, truths)

    def _piece(self, part: tuple[str | Ref, ...], row: Row) -> int:
        """The number of the piece of time of a row of a tumbling window."""
        text = "".join(p if isinstance(p, str) else p.column for p in part)
        found = re.fullmatch(r"\(\(_ts - (-?\d+)L\) - pmod\(_ts - -?\d+L, (\d+)L\)\) DIV \d+L", text)
        assert found
        time = row[self.network.streams[self.table.stream].event_time]
        assert isinstance(time, int)
        return (time - int(found[1])) // int(found[2])

    def _part(self, number: int) -> pa.Array:
        return pa.array([self._parts(row)[number] for row in self.rows], naive_type(self.table.key_types[number]))

    def _array(self, name: str, kind: str) -> pa.Array:
        return pa.array([row[name] for row in self.rows], naive_type(kind))

    def _key(self, row: Row) -> tuple[object, ...] | None:
        """The key in its common types; None if a part is NULL."""
        parts = self._parts(row)
        return None if any(part is None for part in parts) else parts

    def _parts(self, row: Row) -> tuple[object, ...]:
        """The parts of the key, -0.0 as 0.0."""
        parts = []
        for part in self.table.key:
            column = next(p.column for p in part if isinstance(p, Ref))
            value = row[column] if column != "_ts" else self._piece(part, row)
            parts.append(0.0 if value == 0 and isinstance(value, float) else value)
        return tuple(parts)


def _table(network: Network, name: str) -> StateTable:
    return next(t for t in network.tables if t.name == name)


def _time_cuts(runs: Sequence[Rows], tasks: int) -> list[int]:
    """Where each task's share of time begins, by rows; and the end of time."""
    times = np.sort(np.concatenate([run.time for run in runs])) if runs else np.zeros(1, dtype=np.int64)
    return [NEVER, *(int(times[len(times) * t // tasks]) for t in range(1, tasks)), FOREVER]


def _predicate(network: Network, name: str) -> Expression:
    """The condition of a computed predicate, found by its text in the queries."""
    wanted = next(d for d in network.derived if d.name == name)
    for standing in network.queries:
        query = standing.query
        for role, of in enumerate(query.roles):
            if of.stream != wanted.stream:
                continue
            own = [remap_expression(p, {role: 0}) for p in query.predicates if p.roles in ((role,), ())]
            guarded = sorted(own, key=lambda p: not p.total)
            text = "".join(p if isinstance(p, str) else p.column for p in wanted.parts)
            whole = " AND ".join(f"({p.sql(lambda ref: ref.column)})" for p in guarded)
            if wanted.risky and text == whole:
                return Expression(wanted.parts, And(tuple(p.term for p in guarded)), total=False)
            found = next((p for p in own if not wanted.risky and p.parts == wanted.parts), None)
            if found is not None:
                return found
    msg = f"no query has the predicate {name}"
    raise AssertionError(msg)


def _lookup(row: Row) -> Callable[[Ref], object]:
    return lambda ref: row[ref.column]


def _kept(chain: Sequence[int], bits: int) -> tuple[int, ...]:
    return tuple(cut for k, cut in enumerate(chain) if bits >> k & 1 or cut == chain[-1])


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _extend_checked(composite: Matches, position: int, pick: Pick, left: Ints, bits: Words) -> Matches:
    """An extended composite serves no query that it did not serve before."""
    assert not (bits & ~composite.bits[left]).any()
    return extend(composite, position, pick, left, bits)


@contextmanager
def _probing_in_chunks_of(chunk: int) -> Iterator[None]:
    block = join_kernel.BLOCK
    walk_kernel.probe, walk_kernel.extend, join_kernel.BLOCK = partial(probe, chunk=chunk), _extend_checked, chunk
    try:
        yield
    finally:
        walk_kernel.probe, walk_kernel.extend, join_kernel.BLOCK = probe, extend, block
