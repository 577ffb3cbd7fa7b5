"""One task of a step, in a Python worker: receive rows, probe, write results and runs, report.

A task is a pure function of (rows, runs, plan): files get globally unique names and count only once the manifest names
them, so a retried or speculative attempt changes nothing. Its only output is one report.

Routes that change the key need further stages in the same job. Between two stages travel parcels of composites, the names of the
runs just written (those of the winning attempts, since the exchange takes them from there), and the report so far.
"""

from __future__ import annotations

import json
import time as clock
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.kernels.adopt import adopt
from penstock.kernels.aggregate.close import close, partials
from penstock.kernels.aggregate.keep import needed_until, settle
from penstock.kernels.aggregate.stored import from_rows, received, to_rows
from penstock.kernels.delta import build_delta, select
from penstock.kernels.groups import Closed, alive_by_key
from penstock.kernels.hash import hash_bigint
from penstock.kernels.join import Matches, Slices, Work, join_deltas, resume
from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.kernels.parcel import pack, unpack
from penstock.kernels.ranks import closed, rank
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Join, Network, StateTable, WindowAggregate, closing
from penstock.planner.routes import Route, Routes
from penstock.runtime.admission import ACCEPTED, PUNCTUATION, SIDES, VERDICTS, of_verdicts, reasons, saw
from penstock.runtime.handover import candidates, report_row
from penstock.runtime.scan import Unreadable, in_range, read_rows
from penstock.runtime.windows import write_windows
from penstock.runtime.write import ResultWriter, file_name, result_table
from penstock.state.compaction import Merge
from penstock.state.run import Ints, Rows, RunEntry, checksum, decode_run, encode_run, expiry, key_ranges
from penstock.state.store import LocalStore

FEW_ROLES, SAMPLE_EVERY = 64, 16  # a table with more roles than a few counts its rows by role only now and then


@dataclass(frozen=True)
class Plan:
    """What stays the same over many steps, sent to the workers once."""

    network: Network
    names: Mapping[str, Mapping[str, str]]  # stream -> declared column -> exchange column
    truths: Mapping[str, tuple[int, int]]  # computed predicate -> (word, shift)
    types: Mapping[str, Mapping[str, pa.DataType]]  # stream -> declared column -> type
    handover: pa.Schema | None = None  # rows for Spark to finish; None if no query needs that


@dataclass(frozen=True)
class Task:
    """What one step asks of every task."""

    step: int
    tasks: int
    store: LocalStore
    progress: Mapping[str, int]  # and under names of their own what the step before has closed
    runs: Mapping[int, tuple[RunEntry, ...]]
    routes: Routes
    segments: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # timed table -> where each task's share of time begins
    merges: tuple[Merge, ...] = ()
    suspended: frozenset[int] = frozenset()
    closed: Mapping[int, Closed] = field(default_factory=dict)  # by table: keys that other streams have done with
    newest: Mapping[str, int] = field(default_factory=dict)  # the newest time of each stream, where aggregates read it
    taking_over: frozenset[int] = frozenset()  # queries that take over the rows held; then there are no rows to receive
    files: Mapping[str, tuple[str, ...]] | None = None  # stream -> what to read; None: rows come through the exchange


@dataclass
class Report:
    """What a task did: the files it wrote, and counts by stream, table and query."""

    partition: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    sides: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    saw: dict[str, dict[str, Any]] = field(default_factory=dict)  # what rows say about the progress of their stream
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    queries: dict[str, dict[str, int]] = field(default_factory=dict)
    joins: dict[str, dict[str, int]] = field(default_factory=dict)  # composites as 'start:positions'
    errors: dict[str, str] = field(default_factory=dict)
    wants_sides: bool = (
        False  # late or bad rows have to be kept, and came without their text: the step must be repeated
    )
    unreadable: str = ""  # why files have to be read by Spark after all: the step must be repeated
    phases: dict[str, float] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()


_opened: dict[str, Rows] = {}  # mapped runs of this process; mapping and verifying a file once is enough


PARCEL_SCHEMA = "_to int, _kind int, _join int, _start int, _done int, _body binary"
_PARCEL = pa.schema([
    *(pa.field(name, pa.int32()) for name in ("_to", "_kind", "_join", "_start", "_done")), pa.field("_body", pa.binary()),
])  # fmt: skip
REPORT, FRESH, COMPOSITES = 0, 1, 2


def run_task(
    batches: Iterator[pa.RecordBatch], plan: Plan, task: Task, partition: int, stage: int = 0
) -> Iterator[pa.RecordBatch]:
    """Do one stage of the task. Yields parcels for the next stage; the last one yields rows that Spark has to finish, and the report."""
    worker = _Worker(plan, task, partition, stage)
    yield from worker.run(batches) if stage == 0 else worker.go_on(batches)


def report_batch(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], ["report"])


def _parcel(to: int, kind: int, body: bytes, join: int = 0, start: int = 0, done: int = 0) -> pa.RecordBatch:
    values = [[to], [kind], [join], [start], [done], [body]]
    return pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, _PARCEL, strict=True)], schema=_PARCEL
    )


class _Worker:
    def __init__(self, plan: Plan, task: Task, partition: int, stage: int) -> None:
        self.plan, self.task, self.network = plan, task, plan.network
        self.partition, self.last = partition, stage == task.routes.exchanges
        self.report = Report(partition)
        self.low, self.high = key_ranges(task.tasks)[partition]
        self.work = Work()
        self.writers: dict[int, ResultWriter] = {}
        self.fresh: list[RunEntry] = []  # written here, and looked up in later stages
        self.ranked: dict[
            str, Rows
        ] = {}  # runs of tables whose rows are counted, with the times at which rows leave windows

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watch = _Watch(self.report.phases)
        received = self._receive(batches)
        watch.lap("receive")
        if self.task.taking_over:
            yield from self._take_over(watch)
        else:
            fresh, every = self._deltas(received)
            watch.lap("prepare")
            # Rows that wait for progress may start anywhere, so every task needs those that all tasks start from.
            waits = any(join.closes for join in self.network.joins)
            own, whole = self._open_runs(every=self.task.routes.replicated if waits else ())
            watch.lap("open")
            yield from self._join(Slices(own, _each(fresh), whole, _each(every)), self.task.suspended, watch)
            for index, rows in fresh.items():
                if not self.network.tables[index].grouped:
                    self._store(self.network.tables[index], rows)
            watch.lap("store")
            for aggregate in self.network.aggregates:
                self._aggregate(aggregate, fresh)
            watch.lap("aggregate")
            for merge in self.task.merges:
                self._merge(merge)
            watch.lap("merge")
        for entry in self.fresh:
            body = json.dumps(entry.to_json()).encode()
            index = next(t.index for t in self.network.tables if t.name == entry.table)
            everywhere = range(self.task.tasks) if index in self.task.routes.whole else [self.partition]
            for to in everywhere:
                yield _parcel(to, FRESH, body, start=self.partition)
        yield self._finish(watch)

    def go_on(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A later stage: the composites that came through the exchange, with the runs that the first stage wrote."""
        parcels: dict[tuple[int, int, int], list[bytes]] = {}
        fresh: dict[int, list[Rows]] = {}
        every: dict[int, list[Rows]] = {}
        number = {t.name: t.index for t in self.network.tables}
        passed = []
        for batch in batches:
            for _, kind, join, start, done, body in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if kind == REPORT:
                    self.report = Report(**json.loads(body))
                elif kind == FRESH:
                    entry = RunEntry.from_json(json.loads(body))
                    rows = self._open(entry)
                    every.setdefault(number[entry.table], []).append(rows)
                    if start == self.partition:
                        fresh.setdefault(number[entry.table], []).append(rows)
                    if not self.last:
                        passed.append(_parcel(self.partition, FRESH, body, start=start))
                else:
                    parcels.setdefault((join, start, done), []).append(body)
        watch = _Watch(self.report.phases)
        own, whole = self._open_runs()
        slices = Slices(own, fresh, whole, every)
        watch.lap("open")
        suspended = self._suspended()
        for (join, start, done), bodies in parcels.items():
            of = self.network.joins[join]
            route = self.task.routes.joins[join][start]
            pieces = [unpack(body, (start, *route.order[:done])) for body in bodies]
            found = resume(self.network, of, route, done, pieces, self._seen(of, slices), self.work, suspended)
            yield from self._handle(of, found, watch)
        yield from passed
        yield self._finish(watch)

    def _finish(self, watch: _Watch) -> pa.RecordBatch:
        for writer in self.writers.values():
            writer.close(self.report)
        watch.lap("write")
        self._count_work()
        if not self.last:
            return _parcel(self.partition, REPORT, self.report.encode())
        handover = self.plan.handover
        return report_batch(self.report) if handover is None else report_row(self.report, handover)

    def _suspended(self) -> frozenset[int]:
        """Queries that get no results in this step: when new ones take over rows, all others."""
        shares = self.task.taking_over
        if not shares:
            return self.task.suspended
        others = {entry.query for table in self.network.tables for entry in table.entries} - shares
        return frozenset(others | self.task.suspended)

    def _join(self, slices: Slices, suspended: Collection[int], watch: _Watch) -> Iterator[pa.RecordBatch]:
        for join in self.network.joins:
            routes = self.task.routes.joins[join.index]
            found = join_deltas(self.network, join, routes, self._seen(join, slices), self.work, suspended)
            yield from self._handle(join, found, watch)

    def _seen(self, join: Join, slices: Slices) -> Slices:
        """What a join sees: all rows, or what progress has closed; nothing if it only stands by while others take over rows."""
        if not join.closes:
            return slices
        return Slices() if self.task.taking_over else closed(slices, *join.closed(self.task.progress))

    def _handle(
        self, join: Join, found: Iterator[tuple[Route, int, Matches]], watch: _Watch
    ) -> Iterator[pa.RecordBatch]:
        """Write results; yields composites that wait for the next stage, and results that Spark has to finish (in the last one)."""
        for route, done, matches in found:
            watch.lap("probe")
            complete = done == len(route.hops)
            if not complete or (join.finished_by_spark and not self.last):
                # Complete matches stay with this task, to be finished behind its last stage.
                keys = np.full(len(matches), self.low, dtype=np.int64) if complete else matches.keys
                sent = replace(matches, keys=keys)
                for to, body in pack(self.network, join, route, done, sent, self.task.tasks):
                    yield _parcel(to, COMPOSITES, body, join.index, route.start, done)
                watch.lap("ship")
                continue
            table = result_table(self.network, join, matches, self.plan.types, self.work, self.task.step)
            if join.finished_by_spark:
                assert self.plan.handover is not None
                yield from candidates(join, table, self.plan.handover)
                watch.lap("hand over")
            else:
                if join.index not in self.writers:
                    self.writers[join.index] = ResultWriter(self.network, join, self.task)
                self.writers[join.index].write(table, matches.bits)
                watch.lap("write")
        watch.lap("probe")

    def _take_over(self, watch: _Watch) -> Iterator[pa.RecordBatch]:
        """Give the rows held the bits of new queries, and find the new queries' results among them."""
        shares = self.task.taking_over
        own, whole = self._open_runs(every=self.task.routes.replicated)
        held, every = {}, {}
        for table in self.network.tables:
            if any(entry.query in shares for entry in table.entries):
                merged = self._adopted(table, own.get(table.index, ()))
                if merged is not None:
                    held[table.index] = merged
                    for life, rows in lay_out(table, merged):
                        self._keep_fresh(table, self._write_run(table, rows, 1, life))
                if table.index in self.task.routes.replicated:
                    all_rows = self._adopted(table, whole.get(table.index, ()))
                    if all_rows is not None:
                        every[table.index] = all_rows
        watch.lap("store")
        yield from self._join(Slices({}, _each(held), {}, _each(every)), self._suspended(), watch)

    def _adopted(self, table: StateTable, runs: Sequence[Rows]) -> Rows | None:
        return merge_runs(table, [adopt(table, rows, self.task.taking_over) for rows in runs], self.task.progress)

    def _receive(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        """The rows of this step, from the exchange or from the files themselves."""
        # Read to the end in any case: Spark waits for it. A tick brings no rows of streams.
        received = [batch for batch in batches if batch.num_rows and "_table" in batch.schema.names]
        if self.task.files is None:
            return pa.Table.from_batches(received) if received else pa.table({})
        try:
            return read_rows(self.plan, self.task, self.low, self.high)
        except Unreadable as reason:
            self.report.unreadable = str(reason)
            return pa.table({})

    def _deltas(self, received: pa.Table) -> tuple[dict[int, Rows], dict[int, Rows]]:
        """The rows of this step by table: those that this task owns, and all of them where every task has them."""
        if len(received) == 0:
            return {}, {}
        columns = {name: _flat(received.column(name)) for name in received.column_names}
        target, verdict = np.divmod(columns["_table"].to_numpy(zero_copy_only=False), VERDICTS)
        fresh, every = {}, {}
        for state_table in self.network.tables:
            of_table = target == state_table.index
            replicated = state_table.index in self.task.routes.replicated
            owned = of_table & in_range(columns["_key"], self.low, self.high) if replicated else of_table
            if self.network.tables_of(state_table.stream)[0] is state_table:
                self._admit(state_table.stream, owned, verdict, columns)
            accepted = np.flatnonzero(owned & (verdict == ACCEPTED))
            if len(accepted):
                fresh[state_table.index] = self._delta(state_table, accepted, columns)
            accepted = np.flatnonzero(of_table & (verdict == ACCEPTED)) if replicated else accepted[:0]
            if len(accepted):
                every[state_table.index] = self._delta(state_table, accepted, columns, count=False)
        return fresh, every

    def _admit(self, stream: str, of_stream: Any, verdict: Any, columns: Mapping[str, pa.Array]) -> None:
        """Count the stream's rows, see what they say about its progress, and put late and bad rows aside."""
        rows = int(of_stream.sum())
        if rows == 0:
            return
        declared = self.network.streams[stream]
        self.report.saw[stream] = saw(declared, of_stream, verdict, columns)
        counts = {"rows": rows}
        if declared.punctuated:
            counts["punctuations"] = int(of_verdicts(of_stream, verdict, (PUNCTUATION,)).sum())
        for reason, codes in SIDES.items():
            chosen = np.flatnonzero(of_verdicts(of_stream, verdict, codes))
            counts[reason] = len(chosen)
            policy = declared.late if reason == "late" else declared.bad
            if len(chosen) == 0 or policy == "drop":
                continue
            if "_side" not in columns:
                self.report.wants_sides = True
                continue
            rows_json = columns["_side"].take(pa.array(chosen))
            if policy == "error":
                self.report.errors.setdefault(stream, f"{reason}: {rows_json[0].as_py()}")
            else:
                why = reasons(verdict[chosen], columns["_ts"].take(pa.array(chosen)))
                self._write_side(stream, reason, rows_json, why)
        counts["accepted"] = rows - counts["late"] - counts["bad"] - counts.get("punctuations", 0)
        self.report.streams[stream] = counts

    def _write_side(self, stream: str, reason: str, rows: pa.Array, why: pa.Array) -> None:
        step = pa.array(np.full(len(rows), self.task.step, dtype=np.int64))
        progress = pa.array(np.full(len(rows), self.task.progress.get(stream, 0), dtype=np.int64))
        table = pa.table({"_row": rows, "_step": step, "_reason": why, "_progress": progress})
        name = file_name("sides", self.task.step, "parquet")
        with self.task.store.create(name) as file:
            pq.write_table(table, file, write_page_checksum=True)
        size = self.task.store.size(name)
        entry = {
            "name": name,
            "stream": stream,
            "reason": reason,
            "step": self.task.step,
            "rows": len(rows),
            "bytes": size,
        }
        self.report.sides.append(entry)

    def _delta(self, table: StateTable, accepted: Any, columns: Mapping[str, pa.Array], *, count: bool = True) -> Rows:
        names = self.plan.names[table.stream]
        picked = pa.array(accepted)
        own = {c: columns[names.get(c, c)].take(picked) for c in table.needed}
        truths = {}
        for name, entries in table.truths:
            word, shift = self.plan.truths[name]
            bits = columns[f"_t{word}"].take(picked).to_numpy(zero_copy_only=False)
            truths[name] = np.ones(len(bits), dtype=np.bool_) if name in table.watched else (bits >> shift) & 1 == 1
            raised = int(((bits >> shift) & 2 == 2).sum())
            if raised and count:
                for entry in entries:
                    if table.entries[entry].query not in self.task.suspended:
                        self.work.errors[table.entries[entry].query] += raised
        keys, has_key = _keys(table, columns, own, picked)
        times = columns["_ts"].take(picked).to_numpy(zero_copy_only=False)
        delta = build_delta(table, keys, has_key, times, own, truths)
        if not count:
            return delta.rows
        self.report.tables[table.name] = {"shipped": len(accepted), "unwanted": delta.unwanted}
        if not (table.stateless or table.grouped) and (
            len(table.entries) <= FEW_ROLES or self.task.step % SAMPLE_EVERY == 0
        ):
            self.report.tables[table.name] |= {"sampled": len(accepted), **_statistics(table, delta.rows)}
        return delta.rows

    def _open_runs(self, every: Collection[int] = ()) -> tuple[dict[int, list[Rows]], dict[int, list[Rows]]]:
        """The slices of each table that this task serves, and the whole runs of tables that it looks at whole (or of `every`)."""
        wanted = {entry.name for entries in self.task.runs.values() for entry in entries}
        for name in [n for n in _opened if n not in wanted]:
            del _opened[name]
        own: dict[int, list[Rows]] = {}
        whole: dict[int, list[Rows]] = {}
        for index, entries in self.task.runs.items():
            table = self.network.tables[index]
            if table.grouped:
                continue
            if table.counted:
                self.ranked.update(
                    zip((e.name for e in entries), rank(table, [self._open(e) for e in entries]), strict=True)
                )
            all_rows = index in self.task.routes.whole or index in every
            for entry in entries:
                if all_rows:
                    whole.setdefault(index, []).append(self._open(entry))
                rows = self._own(table, entry)
                if rows is not None and len(rows):
                    own.setdefault(index, []).append(rows)
        return own, whole

    def _own(self, table: StateTable, entry: RunEntry) -> Rows | None:
        """The task's share of a run: by key, or by time if there is none."""
        if table.timed:
            starts = self.task.segments.get(table.index, (NEVER,) + (FOREVER,) * (self.task.tasks - 1))
            low, high = (*starts, FOREVER)[self.partition : self.partition + 2]
            return None if entry.min_time >= high or entry.max_time < low else self._open(entry).since(low, high)
        if (self.high is not None and entry.min_key >= self.high) or entry.max_key < self.low:
            return None
        return self._open(entry).between(self.low, self.high)

    def _open(self, entry: RunEntry) -> Rows:
        if entry.name in self.ranked:
            return self.ranked[entry.name]
        if entry.name not in _opened:
            _opened[entry.name] = decode_run(self.task.store.map(entry.name), entry)
        return _opened[entry.name]

    def _store(self, table: StateTable, rows: Rows) -> None:
        counts = self.report.tables.setdefault(table.name, {})
        if table.stateless:
            counts["unwanted"] = counts.get("unwanted", 0) + len(rows)
            return
        in_reach = self._in_reach(table, rows)
        kept = select(rows, in_reach)
        counts["out_of_reach"] = len(rows) - len(kept)
        counts["stored"] = len(kept)
        if len(kept):
            for life, piece in fresh_runs(table, kept):
                self._keep_fresh(table, self._write_run(table, piece, 0, life))
        if len(kept) < len(rows) and table.index in self.task.routes.later:
            # Rows that are out of reach for later steps may still meet rows of this one; no manifest names their run.
            gone = select(rows, ~in_reach)
            self._keep_fresh(table, self._write_run(table, gone, 0, 0, named=False))

    def _aggregate(self, aggregate: WindowAggregate, fresh: Mapping[int, Rows]) -> None:
        """Put new rows into partials, close the windows that progress has passed, and store the partials."""
        added = []
        for source in aggregate.sources:
            rows = fresh.get(source.table, ())
            if isinstance(rows, Rows) and len(rows):
                added.append(partials(aggregate.plan, received(aggregate, source, rows)))
                self.report.tables[self.network.tables[source.table].name]["aggregated"] = len(rows)
        before, now = aggregate.closed(self.task.progress)
        if aggregate.closes(before, now):
            tables = [*self._held(aggregate, self.task.runs.get(aggregate.home, ())), *added]
            newest = max(self.task.newest.get(stream, NEVER) for stream in aggregate.streams)
            found = close(aggregate.plan, tables, before, now, newest=newest)
            write_windows(aggregate, found, self.task, self.network.version, self.report)
        for table in added:
            counts = self.report.tables.setdefault(aggregate.name, {})
            counts["stored"] = counts.get("stored", 0) + len(table)
            self._write_partials(aggregate, table, 0)

    def _held(self, aggregate: WindowAggregate, entries: Sequence[RunEntry]) -> list[pa.Table]:
        """The partials (or rows) that this task serves."""
        shares = [self._own(self.network.tables[aggregate.home], entry) for entry in entries]
        return [from_rows(aggregate, rows) for rows in shares if rows is not None and len(rows)]

    def _write_partials(self, aggregate: WindowAggregate, table: pa.Table, level: int) -> None:
        rows = to_rows(aggregate, table)
        until = dict.fromkeys(map(closing, aggregate.streams), needed_until(aggregate.plan, int(rows.time.max())))
        table = replace(self.network.tables[aggregate.home], name=aggregate.name)
        self._write_run(table, rows, level, FOREVER, until=until)

    def _settle(self, aggregate: WindowAggregate, merge: Merge) -> None:
        """Merge partials, and give up what no window needs that this step leaves open."""
        names = set(merge.runs)
        held = self._held(aggregate, [e for e in self.task.runs[aggregate.home] if e.name in names])
        kept = settle(aggregate.plan, held, aggregate.closed(self.task.progress)[1])
        if kept is not None and len(kept):
            self._write_partials(aggregate, kept, merge.level)

    def _in_reach(self, table: StateTable, rows: Rows) -> npt.NDArray[np.bool_]:
        return alive_by_key(table, rows, self.task.progress, self.task.closed.get(table.index, ()))

    def _keep_fresh(self, table: StateTable, entry: RunEntry) -> None:
        if table.index in self.task.routes.later:
            self.fresh.append(entry)

    def _write_run(
        self,
        table: StateTable,
        rows: Rows,
        level: int,
        life: int,
        *,
        named: bool = True,
        until: Mapping[str, int] | None = None,
    ) -> RunEntry:
        data = encode_run(rows, table.name)
        name = file_name("runs", self.task.step, "arrow")
        self.task.store.write(name, data)
        if until is None:
            until = expiry(rows, {entry.id: entry.lives for entry in table.entries}, FOREVER, table.pieces)
        run = RunEntry(
            name, table.name, level, self.task.step, len(rows), data.size, int(rows.time.min()), int(rows.time.max()),
            int(rows.key[0]), int(rows.key[-1]), life, tuple(until.items()), self.network.version, checksum(data),
        )  # fmt: skip
        if named:
            self.report.runs.append(run.to_json())
        counts = self.report.tables.setdefault(table.name, {})
        counts["files"] = counts.get("files", 0) + 1
        counts["bytes_written"] = counts.get("bytes_written", 0) + data.size
        return run

    def _merge(self, merge: Merge) -> None:
        """Merge this task's share of the runs; together the tasks replace them whole."""
        aggregate = next((a for a in self.network.aggregates if a.name == merge.table), None)
        if aggregate is not None:
            self._settle(aggregate, merge)
            return
        table = next(t for t in self.network.tables if t.name == merge.table)
        names = set(merge.runs)
        entries = [e for e in self.task.runs[table.index] if e.name in names]
        shares = [self._open(e).between(self.low, self.high) for e in entries]
        if table.index in self.task.closed:
            shares = [select(s, self._in_reach(table, s)) for s in shares if len(s)]
        merged = merge_runs(table, [s for s in shares if len(s)], self.task.progress)
        if merged is not None:
            for life, rows in lay_out(table, merged, merge.life):
                self._write_run(table, rows, merge.level, life)

    def _count_work(self) -> None:
        for index, counts in self.work.counts.items():
            table = self.report.tables.setdefault(self.network.tables[index].name, {})
            for name, value in asdict(counts).items():
                table[name] = table.get(name, 0) + value
        for (index, name), value in self.work.links.items():
            table = self.report.tables.setdefault(self.network.tables[index].name, {})
            table[name] = table.get(name, 0) + value
        for query, errors in self.work.errors.items():
            if errors:
                own = self.report.queries.setdefault(str(query), {})
                own["errors"] = own.get("errors", 0) + errors
        for (join, start, positions), count in self.work.flows.items():
            flows = self.report.joins.setdefault(self.network.joins[join].name, {})
            name = f"{start}:{','.join(map(str, positions))}"
            flows[name] = flows.get(name, 0) + count


def _statistics(table: StateTable, rows: Rows) -> dict[str, int]:
    """The rows by role, and by their own life: what the planner chooses chains from."""
    life = {entry.id: entry.life for entry in table.entries}
    found: Counter[str] = Counter()
    for pattern, count in zip(
        rows.patterns, np.bincount(rows.bits, minlength=len(rows.patterns)).tolist(), strict=True
    ):
        if count:
            found[f"life:{max(life[role] for role in pattern)}"] += count
            found.update({f"role:{role}": count for role in pattern})
    return dict(found)


def _each(rows: Mapping[int, Rows]) -> dict[int, list[Rows]]:
    return {index: [own] for index, own in rows.items()}


class _Watch:
    """Adds up the seconds of each phase."""

    def __init__(self, phases: dict[str, float]) -> None:
        self.phases, self.last = phases, clock.perf_counter()

    def lap(self, phase: str) -> None:
        now = clock.perf_counter()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now


def _keys(
    table: StateTable, columns: Mapping[str, pa.Array], own: Mapping[str, pa.Array], picked: pa.Array
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(hash of each row's key, rows that have one); the hash travels unless it follows from a column that does."""
    if "_key" not in columns and table.plain_key is None:
        return np.zeros(len(picked), dtype=np.int64), np.ones(len(picked), dtype=np.bool_)
    key = columns["_key"].take(picked) if "_key" in columns else own[str(table.plain_key)]
    values = pc.fill_null(key, 0).to_numpy(zero_copy_only=False)
    has_key = key.is_valid().to_numpy(zero_copy_only=False)
    hashed = values if "_key" in columns else hash_bigint(values)
    if table.grouped:  # rows without a value are a group too, and lie at 0
        return np.where(has_key, hashed, 0), np.ones(len(hashed), dtype=np.bool_)
    return hashed, has_key


def _flat(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_timestamp(array.type) and array.type.tz not in (None, "UTC"):
        # The same instants whatever the session's time zone, so that runs of different sessions merge.
        array = array.cast(pa.timestamp("us", tz="UTC"))
    return array
