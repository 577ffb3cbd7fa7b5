"""Queries by (a) and by (a, b) over one stream: a table for each, or partials by (a, b) rolled up to those by a?

One process with the engine's own mapper, deltas and kernels, without Spark; CPU time of a step, all tasks one after the
other. `apart`: a table for each. `at closing`: one by (a, b), with all of one a at one task, which assembles windows by
a from it. `of new partials`: the same rows at the same tasks, and partials by a, stored as usual, made from the new
ones by (a, b). `mapped apart`: mappers make partials of their rows and send these, for each table separately. `mapped
together`: they make those by a from those by (a, b), and each goes by its own key. These two are the engine's own; with
four queries, which select different rows, it does not roll up.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import exp
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import command, harness
from benchmarks.harness import Json, Report, median, say
from penstock.columns.hash import hash_bigint, whole_numbers
from penstock.columns.parcels import STORED, Rows, pack, unite, unpack
from penstock.kernels.aggregate.close import close_gathered, gather, merge, merged_anew
from penstock.kernels.aggregate.entries import patterns_of, with_patterns
from penstock.kernels.aggregate.forms import keep_rows
from penstock.kernels.aggregate.panes import closed_panes, pane_edge, window_counts
from penstock.kernels.aggregate.stored import received, served, to_rows
from penstock.kernels.delta import build_delta
from penstock.model import Column, Stream
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.network import Network, StandingQuery
from penstock.planner.state_table import StateTable
from penstock.planner.window_aggregate import WindowAggregate
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.state.run import Ints, encode_run
from penstock.state.run import Rows as Stored
from penstock.step.folding import pack_partials, unpack_partials
from penstock.step.keys import Valid, keys_of, received_keys
from penstock.step.mapper import Asked, Mapper
from penstock.storage.local import LocalStore

COLUMNS = ("at", "a", "b", "v")
STREAM = Stream("s", tuple(Column(c, "bigint") for c in COLUMNS), "at", 0, late="drop", bad="drop")
SLIDE, SLIDES, TASKS, MAPPERS = 1_000, 6, 2, 2
BUCKETS = BucketMap.even(TASKS)
WAYS = ("apart", "at closing", "of new partials", "mapped apart", "mapped together")
FUNCTIONS = "count(*) AS c, sum(v) AS d, max(v) AS e"
HIGH = np.uint64(0xFFFF_FFFF_0000_0000)


@dataclass(frozen=True)
class Case:
    """Rows of a step per group of (a, b) in it, groups of (a, b) per a, and the queries."""

    rows: int
    reduction: float
    ratio: int
    sliding: bool
    queries: int

    @property
    def name(self) -> str:
        window = f"{SLIDES} slides" if self.sliding else "tumbling"
        return f"{self.reduction:g} rows a group, 1:{self.ratio}, {window}, {self.queries} queries"

    @property
    def groups(self) -> int:
        """The number of groups with which the groups that occur in a step have the wanted number of rows each."""
        low, high, seen = 1.0, 1e9, self.rows / self.reduction
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if middle * (1 - exp(-self.rows / middle)) < seen else (low, middle)
        return max(1, round(high))

    def step(self, number: int) -> dict[str, pa.Array]:
        draw = np.random.default_rng([number, self.rows])
        group = draw.integers(0, self.groups, self.rows)
        if self.reduction <= 1:
            group = draw.permutation(np.arange(self.rows) + number * self.rows)
        at = np.sort(draw.integers(number * SLIDE, (number + 1) * SLIDE, self.rows))
        value = draw.integers(0, 1_000, self.rows)
        found = {"at": at, "a": group // self.ratio * 7919, "b": group % self.ratio, "v": value, "_ts": at}
        return {name: pa.array(values) for name, values in found.items()}

    def network(self, groups: Sequence[str]) -> Network:
        """The plan of the queries, each by its own groups: every other one of four or more selects only some rows."""
        window = f"RANGE {SLIDES * SLIDE} SLIDE {SLIDE}" if self.sliding else f"TUMBLING {SLIDE}"
        standing = []
        for n, by in enumerate(groups):
            where = f"WHERE v >= {300 + 100 * n}" if n % 2 and self.queries > 2 else ""
            text = f"SELECT {by}, {FUNCTIONS} FROM s [{window}] {where} GROUP BY {by}"
            standing.append(StandingQuery(n + 1, f"q{n}", parse_query(text, {"s": STREAM})))
        return build_network(standing, {"s": STREAM})


class Placing(Mapper):
    """The high half of a key is that of the hash of a: so all rows of one a are together, at one task."""

    def _keys(self, tables: tuple[StateTable, ...], columns: Mapping[str, pa.Array]) -> dict[str, tuple[Ints, Valid]]:
        (table,) = tables
        own, valid = keys_of(table, columns, columns["_ts"])
        coarse = hash_bigint(whole_numbers(columns["a"])).view(np.uint64)
        return {table.name: ((coarse & HIGH | own.view(np.uint64) & ~HIGH).view(np.int64), valid)}


@dataclass
class Cost:
    """CPU seconds of the parts of a step, and the amounts sent."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[part] += time.process_time() - started

    @property
    def ms(self) -> float:
        return 1_000 * sum(self.seconds.values())


class Side:
    """One way to answer the queries, with the state of its tasks: by task and aggregate, partials with their step."""

    def __init__(self, case: Case, way: str, folder: Path) -> None:
        self.case, self.way, self.store = case, way, LocalStore(folder)
        self.held: dict[tuple[int, str], list[tuple[int, pa.Table]]] = defaultdict(list)
        half = case.queries // 2
        self.together = way in ("at closing", "of new partials")
        apart = case.network(["a"] * half + ["a, b"] * half)
        self.network = case.network(["a, b"] * case.queries) if self.together else apart
        self.tables = [(self.network.tables[a.home], a) for a in self.network.aggregates]
        self.coarse, self.fine = apart.aggregates[0], self.network.aggregates[-1]
        mapped = way.startswith("mapped")
        self.folded = frozenset(a.index for a in self.network.aggregates) if mapped else frozenset[int]()
        self.ups = {self.coarse.index: self.fine.index} if way == "mapped together" else {}
        self.kinds = [self.coarse, self.fine]

    def step(self, number: int, columns: dict[str, pa.Array]) -> tuple[Cost, list[int]]:
        cost, results = Cost(), [0] * (self.case.queries + 1)
        sent: dict[int, list[pa.Buffer]] = defaultdict(list)
        size = self.case.rows // MAPPERS
        for part in range(MAPPERS):
            own = {name: column.slice(part * size, size) for name, column in columns.items()}
            for task, parcels in (self.mapped if self.way.startswith("mapped") else self.sent)(number, own, cost):
                sent[task] += parcels
        cost.counts["bytes"] = sum(p.size for own in sent.values() for p in own)
        for task in range(TASKS):
            make = self.united if self.way.startswith("mapped") else self.made
            made = make(sent[task], cost)
            for name, table in made.items():
                self.keep(number, task, name, table, cost)
            for aggregate in self.kinds:
                tables = [t for _, t in self.held[task, aggregate.name]]
                if self.way == "at closing" and aggregate is self.coarse:
                    with cost.of("roll up"):
                        tables = [self.rolled(t) for _, t in self.held[task, self.fine.name]]
                if tables := [t for t in tables if len(t)]:
                    self.close(number, aggregate, tables, cost, results)
        return cost, results[1:]

    def mapper(self, number: int) -> Mapper:
        kind = Placing if self.together else Mapper
        names = {"s": {c: c for c in COLUMNS}}
        reached = {"s": number * SLIDE}
        asked = Asked(number, BUCKETS, self.store, reached, folded=self.folded, rolled=self.ups)
        return kind(self.network, names, {}, asked)

    def sent(self, number: int, columns: Mapping[str, pa.Array], cost: Cost) -> Iterator[tuple[int, list[pa.Buffer]]]:
        """Rows as parcels, by task."""
        with cost.of("map"):
            for task, rows in self.mapper(number).map_stream("s", columns, lambda places: places):
                cost.counts["sent"] += len(rows.masks)
                yield task, list(pack(rows))

    def made(self, parcels: Sequence[pa.Buffer], cost: Cost) -> dict[str, pa.Table]:
        """The partials of a task's new rows."""
        found: dict[str, pa.Table] = {}
        with cost.of("receive"):
            deltas = [
                (aggregate, self.delta(table, rows, place))
                for rows in unite(map(unpack, parcels)).values()
                for place, (table, aggregate) in enumerate(self.tables)
            ]
        with cost.of("fold"):
            for aggregate, delta in deltas:
                fresh = received(aggregate, aggregate.sources[0], served(aggregate, delta))
                for partials in keep_rows(aggregate.plan, fresh).tables:
                    found[aggregate.name] = partials
        if self.way == "of new partials" and found:
            with cost.of("roll up"):
                found[self.coarse.name] = self.rolled(found[self.fine.name])
        return found

    def delta(self, table: StateTable, rows: Rows, place: int) -> Stored:
        keys, valid = received_keys(table, rows.columns, rows.columns["_ts"])
        times = whole_numbers(rows.columns["_ts"])
        return build_delta(table, keys, valid, times, rows.columns, {}, rows.marked(place, STORED)).rows

    def mapped(self, number: int, columns: Mapping[str, pa.Array], cost: Cost) -> Iterator[tuple[int, list[pa.Buffer]]]:
        """Partials that a mapper makes of its rows, by task."""
        mapper = self.mapper(number)
        with cost.of("map"):
            sent = list(mapper.map_stream("s", columns, lambda places: places))
            assert not sent, "all rows become partials"
        with cost.of("fold"):
            partials = list(mapper.partials(rest=True))
        with cost.of("map"):
            for task, one in partials:
                cost.counts["sent"] += len(one.partials)
                yield task, list(pack_partials(one))

    def united(self, parcels: Sequence[pa.Buffer], cost: Cost) -> dict[str, pa.Table]:
        """The partials of all mappers as one table for each aggregate."""
        names = {table.index: aggregate.name for table, aggregate in self.tables}
        with cost.of("receive"):
            by_name: dict[str, list[pa.Table]] = defaultdict(list)
            for one in map(unpack_partials, parcels):
                by_name[names[one.table]].append(one.partials)
            merged = {a.name: merge(a.plan, by_name[a.name]) for a in self.kinds if by_name[a.name]}
            return {name: table for name, table in merged.items() if len(table)}

    def keep(self, number: int, task: int, name: str, table: pa.Table, cost: Cost) -> None:
        aggregate = next(a for a in self.kinds if a.name == name)
        with cost.of("store"):
            data = encode_run(to_rows(aggregate, table), name)
        cost.counts["stored"] += len(table)
        cost.counts["stored bytes"] += data.size
        last = number - (SLIDES if self.case.sliding else 1)
        kept = [*self.held[task, name], (number, table)]
        self.held[task, name] = [(n, t) for n, t in kept if n >= last]

    def rolled(self, table: pa.Table) -> pa.Table:
        """Partials by (a, b) as partials by a, for the queries by a."""
        a = table.column("g0").combine_chunks()
        columns = {"_key": pa.array(hash_bigint(whole_numbers(a))), "g0": a}
        columns |= {n: table.column(n) for n in table.column_names if n not in ("_key", "g0", "g1")}
        wanted = {q.selection for q in self.coarse.plan.queries}
        known: dict[tuple[int, ...], int] = {}
        patterns = patterns_of(table) or ()
        number = [known.setdefault(tuple(s for s in p if s in wanted), len(known)) for p in patterns]
        columns["_bits"] = pa.array(np.array(number, dtype=np.int32)[table.column("_bits").to_numpy()])
        return merged_anew(self.coarse.plan, [with_patterns(pa.table(columns), list(known))])

    def close(
        self, number: int, aggregate: WindowAggregate, tables: Sequence[pa.Table], cost: Cost, results: list[int]
    ) -> None:
        """Close the windows that the previous step has completed, and write their results as the engine does."""
        after, until = (number - 1) * SLIDE, number * SLIDE
        half = self.case.queries // 2
        mine = {q.query for q in aggregate.plan.queries if (q.query <= half) == (aggregate is self.coarse)}
        queries = [q for q in aggregate.plan.queries if q.query in mine]
        with cost.of("close"):
            if self.case.sliding:
                found = [closed_panes(aggregate.plan, tables, queries, after, pane_edge(queries, until))]
                counts = window_counts(aggregate.plan, tables, [(q, NEVER) for q in queries], after, until)
                for query, count in zip(queries, counts, strict=True):
                    results[query.query] += count
            elif (gathered := gather(aggregate.plan, tables)) is not None:
                others = {q.query for q in aggregate.plan.queries} - mine
                closed = close_gathered(gathered, after, until, newest=until + SLIDE, leave=others)
                found = [c.table for c in closed]
                for c in closed:
                    results[c.query] += len(c.table)
        with cost.of("write"):
            for table in found:
                pq.write_table(table, pa.BufferOutputStream(), compression="none")


def measure(case: Case, steps: int) -> tuple[bool, Json]:
    """The cheapest step of each way after the first ones; and whether all ways had as many results."""
    with TemporaryDirectory() as folder:
        sides = {way: Side(case, way, Path(folder) / way) for way in WAYS}
        costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
        equal, warm = True, SLIDES if case.sliding else 2
        for number in range(warm + steps):
            columns = case.step(number)
            found = {}
            for way, side in sides.items():
                cost, found[way] = side.step(number, columns)
                if number >= warm:
                    costs[way].append(cost)
            equal &= all(own == found["apart"] for own in found.values())
    best = {way: min(own, key=lambda c: c.ms) for way, own in costs.items()}
    figures = {
        way: {"ms": round(c.ms, 1), "parts": {k: round(1_000 * s, 1) for k, s in c.seconds.items()}, **c.counts}
        for way, c in best.items()
    }
    say(f"  {case.name}: " + ", ".join(f"{way} {c.ms:.0f} ms" for way, c in best.items()))
    return equal, figures


def cases(rows: int, everything: bool) -> list[Case]:
    """Windows of one slide and of six, with increasing numbers of rows per group of (a, b)."""
    queries, ratios = ((2, 4), (2, 10, 100)) if everything else ((2,), (10,))
    grid = product((False, True), queries, (1.0, 1.5, 3.0, 10.0), ratios)
    return [Case(rows, reduction, ratio, sliding, count) for sliding, count, reduction, ratio in grid]


def measured(options: Namespace) -> Report:
    load = harness.load()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    equal, figures, saved = True, {}, defaultdict(list)
    for case in cases(options.rows, options.all):
        same, figures[case.name] = measure(case, options.steps)
        equal &= same
        for way in WAYS[1:]:
            saved[way].append(figures[case.name]["apart"]["ms"] / figures[case.name][way]["ms"])
    ratios = {way: median(own) for way, own in saved.items()}
    return Report("grouping", equal, ratios, {**figures, "machine": harness.machine(load)})


def describe(report: Report) -> str:
    rows = []
    for name, ways in report.figures.items():
        if name != "machine":
            base = ways["apart"]["ms"]
            rows.append(
                [name, f"{base:.0f}", *(f"{ways[w]['ms']:.0f} ({ways[w]['ms'] / base - 1:+.0%})" for w in WAYS[1:])]
            )
    return harness.table(["case", *(f"{way}, ms" for way in WAYS)], rows)


SIZES = {
    "rows": (200_000, "rows of a step"),
    "steps": (4, "steps that are counted, of which the cheapest stands for all"),
}


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "grouping", __doc__, measured, everything="four queries and other ratios of groups too", sizes=SIZES,
        describe=describe, arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
