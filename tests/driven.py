"""Workloads step by step through the engine in one process; a test chooses what may not affect an answer.

That is: routes, chains, merges, the numbering of bits and tables, the hash of keys. All else is as in production.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from penstock.catalog.choices import Choices
from penstock.columns.hash import hash_bigint
from penstock.kernels.matches import Matches, Pick, extend
from penstock.kernels.probe import CHUNK, Words, probe
from penstock.model import Stream
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.counters import QueryCounters, TableCounters
from penstock.planner.network import Network, StandingQuery
from penstock.planner.routes import Routes
from penstock.planner.state_table import StateTable
from penstock.planner.unions import distribute
from penstock.reference import Row
from penstock.sql import parse_query
from penstock.state.compaction import Merge
from penstock.state.manifest import Entry, Manifest
from penstock.state.run import Ints, Rows, RunEntry
from penstock.step.keys import Valid, received_keys
from penstock.testing.engine import Engine
from tests.workloads import Workload, keys_of

AnyWorkload = TypeVar("AnyWorkload", bound=Workload)
KeyHash = Callable[[tuple[object, ...]], int]


def plain(key: tuple[object, ...]) -> int:
    """An integer is its own hash, so that most keys share a bucket and the extreme ones are the extreme hashes."""
    if len(key) == 1 and isinstance(key[0], int):
        return key[0]
    return (zlib.crc32(repr(key).encode()) * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63


def colliding(key: tuple[object, ...]) -> int:
    """One integer keeps a hash of its own, as it must; other keys share two hashes at the ends of the range."""
    if len(key) == 1 and isinstance(key[0], int):
        return plain(key)
    return (2**63 - 1, -(2**63))[zlib.crc32(repr(key).encode()) % 2]


KEY_HASHES: tuple[KeyHash | None, ...] = (None, plain, colliding)  # the first is the engine's


@dataclass(frozen=True)
class Step:
    """What one step has changed, and the state after it."""

    streams: Collection[str]
    record: Entry
    manifest: Manifest

    def table(self, name: str) -> TableCounters:
        return self.record.counters.table(name)

    @property
    def progress(self) -> dict[str, int]:
        """The progress of each stream after the step."""
        known = self.manifest.progress_values()
        return {name: known.get(name, NEVER) for name in self.streams}

    @property
    def compared(self) -> int:
        return sum(counts.compared for counts in self.record.counters.tables.values())

    @property
    def flows(self) -> Counter[tuple[str, int, int]]:
        """Composites by (join, start, positions as a set of bits)."""
        joins = self.record.counters.joins.items()
        return Counter({
            (name, start, bits): count
            for name, join in joins
            for start, own in join.flows.items()
            for bits, count in own.items()
        })  # fmt: skip


@dataclass
class Driven:
    """An engine on its way through a workload, with its steps so far. Query n of the workload is called `q<n>`."""

    engine: Engine
    steps: list[Step] = field(default_factory=list)

    @property
    def network(self) -> Network:
        run = self.engine.run or self.engine.ended
        assert run is not None
        return run.stepper.network

    @property
    def manifest(self) -> Manifest:
        return self.engine.manifest

    def answer(self, query: int, step: int | None = None) -> list[tuple[object, ...]]:
        """The results of a query, now or behind an earlier step; none before it was registered."""
        name = f"q{query}"
        if self.engine.catalog.registry.find(name, dropped=True) is None:
            return []
        return self.engine.results(name, None if step is None else self.steps[step].manifest)

    def counted(self, query: int) -> QueryCounters:
        return self.manifest.counters.query(self.engine.catalog.record(f"q{query}").id)

    def held(self, table: StateTable) -> list[Rows]:
        """The rows of a state table."""
        return [self.engine.rows(run) for run in self.manifest.runs_of(table.name)]


def stepwise(
    workload: Workload,
    *,
    tasks: int = 1,
    merge_every: int = 0,
    renumber: bool = False,
    chunk: int = CHUNK,
    key_hash: KeyHash | None = None,
    strategy: str = "state_slice",
    cuts: Sequence[int] = (),
    lifetimes: Sequence[tuple[int, int]] | None = None,
    routes: Callable[[Network, int], Routes] | None = None,
) -> Iterator[Driven]:
    """The engine after each batch of a workload.

    Query n lives from step `lifetimes[n][0]` to the step before `lifetimes[n][1]` (default: always). The chains of step
    n keep their k-th cut if bit k of `cuts[n]` is set, and always their last; steps beyond `cuts` start over, and
    without `cuts` all cuts stay. `routes` chooses the routes of each step. Every `merge_every` steps all runs of a
    table are merged; 0: as the engine chooses. With `renumber` streams change their order at every step, and a query
    before all others, or another one behind them, comes or goes: tables, bits and computed values are renumbered.
    """
    engine = Engine(tasks=tasks, choices=Choices(strategy=strategy, chain="mem_opt"))
    for stream in workload.streams.values():
        engine.stream(stream)
    spans = lifetimes or [(0, len(workload.batches))] * len(workload.queries)
    driven = Driven(engine)

    def declare(number: int) -> None:
        """Let queries come and go before a step."""
        if renumber:
            if number:
                registry = engine.catalog.registry
                streams = dict(reversed(registry.streams.items()))
                engine.catalog.registry = replace(registry, streams=streams)
            if number % 2 == 0:
                engine.query(bystander(workload), name="bystander")
            else:
                engine.drop("bystander")
        for query, (first, end) in enumerate(spans):
            if first == number < end:
                engine.query(workload.queries[query], name=f"q{query}")
            elif first < end == number:
                engine.drop(f"q{query}")

    with _patched(chunk, key_hash):
        for number, batch in enumerate(workload.batches):
            declare(number)
            if engine.run is None:
                engine.start()
            assert engine.run is not None
            if cuts:
                kept = cuts[number % len(cuts)]
                whole = engine.catalog.network()
                tables = tuple(replace(t, chain=_kept(t.chain, kept)) for t in whole.tables)
                engine.run.steer(replace(whole, tables=tables))
            if routes is not None:
                engine.run.steer(routes=routes(driven.network, number))
            with _merging(merge_every, number):
                engine.take(**batch)
            driven.steps.append(Step(workload.streams, engine.record(engine.manifest.step), engine.manifest))
            yield driven


def driven(workload: Workload, *, end: bool = False, **how: object) -> Driven:
    """The engine after all batches, see `stepwise`; with `end` the streams have ended."""
    *_, last = stepwise(workload, **how)
    if end:
        last.engine.stop(final=True)
    return last


def without_spark(workload: AnyWorkload) -> AnyWorkload:
    """The workload without the queries of which only Spark can compute a condition (decision 0012)."""
    found = []
    for sql in workload.queries:
        combined = distribute(parse_query(sql, workload.streams), workload.streams)
        network = build_network([StandingQuery(n, "", query) for n, query in enumerate(combined)], workload.streams)
        if all(column.term is not None for column in network.derived):
            found.append(sql)
    return workload if len(found) == len(workload.queries) else replace(workload, queries=tuple(found))


def bystander(workload: Workload) -> str:
    """A query with a predicate that no index can decide, over the first two streams."""
    (x, one), (y, _) = list(workload.streams.items())[:2]
    window = "[RANGE 7]" if one.integer_time else "[RANGE 7 SECONDS]"
    keys = " AND ".join(f"p.{k.name} = q.{k.name}" for k in keys_of(one))
    return (
        f"SELECT p.v0, q.v0 FROM {x} {window} AS p, {y} {window} AS q "
        f"WHERE {keys} AND (p.v0 IS NULL OR p.k0 IS NOT NULL)"
    )


def row_tuples(table: StateTable, stream: Stream, rows: Rows) -> list[tuple[object, ...]]:
    """Time and declared columns of stored rows, to compare with `stored_form`."""
    names = [c for c in table.columns if stream.column(c)]
    columns = [rows.columns[name].to_pylist() if name in rows.columns else [None] * len(rows) for name in names]
    return list(zip(rows.time.tolist(), *columns, strict=True))


def stored_form(table: StateTable, stream: Stream, rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """The stored form of these rows in a state table."""
    names = [stream.event_time, *(c for c in table.columns if stream.column(c))]
    return [tuple(row[name] for name in names) for row in rows]


@contextmanager
def _patched(chunk: int, key_hash: KeyHash | None) -> Iterator[None]:
    """The engine's code with this chunk of a probe and this hash of keys."""
    changed: dict[str, object] = {
        "penstock.kernels.walk.probe": partial(probe, chunk=chunk),
        "penstock.kernels.walk.extend": _extend_checked,
        "penstock.kernels.join.BLOCK": chunk,
    }
    if key_hash is not None:
        changed |= {
            "penstock.step.keys.hash_bigint": lambda values: _hashed(key_hash, [values.tolist()]),
            "penstock.step.keys.hash_columns": lambda parts, _: _hashed(key_hash, [p.to_pylist() for p in parts]),
            "penstock.step.keys.received_keys": _received_keys,
            "penstock.step.deltas.received_keys": _received_keys,
        }
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(patch(name, value))
        yield


def _hashed(key_hash: KeyHash, parts: Sequence[Sequence[object]]) -> Ints:
    keys = (tuple(0.0 if p == 0 and isinstance(p, float) else p for p in key) for key in zip(*parts, strict=True))
    return np.array([key_hash(key) for key in keys], dtype=np.int64)


def _received_keys(table: StateTable, columns: Mapping[str, pa.Array], times: pa.Array) -> tuple[Ints, Valid]:
    """Rows without a key are still spread over all tasks."""
    if table.key:
        return received_keys(table, columns, times)
    with patch("penstock.step.keys.hash_bigint", hash_bigint):
        return received_keys(table, columns, times)


def _extend_checked(composite: Matches, position: int, pick: Pick, left: Ints, bits: Words) -> Matches:
    """An extended composite serves no query that it did not serve before."""
    assert not (bits & ~composite.bits[left]).any()
    return extend(composite, position, pick, left, bits)


def _merging(merge_every: int, number: int) -> AbstractContextManager[object]:
    """Every so many steps all runs of a table are merged; without a number as the engine chooses."""
    if not merge_every:
        return nullcontext()

    def merges(table: str, runs: Sequence[RunEntry], *_: object, **__: object) -> list[Merge]:
        due = number % merge_every == merge_every - 1 and runs
        return [Merge(table, tuple(run.name for run in runs), 1)] if due else []

    return patch("penstock.step.compose.choose_merges", merges)


def _kept(chain: Sequence[int], bits: int) -> tuple[int, ...]:
    return tuple(cut for k, cut in enumerate(chain) if bits >> k & 1 or cut == chain[-1])
