"""One task of a step, in a Python worker: receive rows, probe, write results and runs, report.

A task is a pure function of (rows, runs, plan): files get globally unique names and count only once the manifest names
them, so a retried or speculative attempt changes nothing. Its only output is one report.
"""

from __future__ import annotations

import json
import time as clock
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.kernels.adopt import adopt
from penstock.kernels.delta import alive, build_delta, select
from penstock.kernels.hash import hash_bigint
from penstock.kernels.join import Matches, Work, join_deltas
from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.model.time import FOREVER
from penstock.planner.network import Join, Network, StateTable
from penstock.runtime.handover import candidates, report_row
from penstock.runtime.write import ResultWriter, file_name, result_table
from penstock.state.compaction import Merge
from penstock.state.run import Ints, Rows, RunEntry, checksum, decode_run, encode_run, expiry, key_ranges
from penstock.state.store import LocalStore

ACCEPTED, LATE, BAD = 0, 1, 2
FEW_ROLES, SAMPLE_EVERY = 64, 16  # a table with more roles than a few counts its rows by role only now and then
VERDICTS = 4  # a row's `_table` is VERDICTS * table + verdict: one column less to ship


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
    progress: Mapping[str, int]
    runs: Mapping[int, tuple[RunEntry, ...]]
    merges: tuple[Merge, ...] = ()
    suspended: frozenset[int] = frozenset()
    taking_over: frozenset[int] = frozenset()  # queries that take over the rows held; then there are no rows to receive


@dataclass
class Report:
    """What a task did: the files it wrote, and counts by stream, table and query."""

    partition: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    sides: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    queries: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()


_opened: dict[str, Rows] = {}  # mapped runs of this process; mapping and verifying a file once is enough


def run_task(batches: Iterator[pa.RecordBatch], plan: Plan, task: Task, partition: int) -> Iterator[pa.RecordBatch]:
    """Do the task. Yields rows of joins that Spark has to finish, if there are any, and last the report."""
    yield from _Worker(plan, task, partition).run(batches)


def report_batch(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], ["report"])


class _Worker:
    def __init__(self, plan: Plan, task: Task, partition: int) -> None:
        self.plan, self.task, self.network = plan, task, plan.network
        self.report = Report(partition)
        self.low, self.high = key_ranges(task.tasks)[partition]
        self.work = Work()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watch = _Watch(self.report.phases)
        received = list(batches)
        watch.lap("receive")
        if self.task.taking_over:
            yield from self._take_over(watch)
        else:
            deltas = self._deltas(received)
            watch.lap("prepare")
            state = self._open_runs()
            watch.lap("open")
            yield from self._join(deltas, state, self.task.suspended, watch)
            for index, rows in deltas.items():
                self._store(self.network.tables[index], rows)
            watch.lap("store")
            for merge in self.task.merges:
                self._merge(merge)
            watch.lap("merge")
        self._count_work()
        handover = self.plan.handover
        yield report_batch(self.report) if handover is None else report_row(self.report, handover)

    def _join(
        self,
        deltas: Mapping[int, Rows],
        state: Mapping[int, Sequence[Rows]],
        suspended: Collection[int],
        watch: _Watch,
    ) -> Iterator[pa.RecordBatch]:
        """Write the results of all joins; yields those that Spark has to finish."""
        for join in self.network.joins:
            found = join_deltas(self.network, join, deltas, state, self.work, suspended)
            if join.finished_by_spark:
                for matches in found:
                    watch.lap("probe")
                    table = result_table(self.network, join, matches, self.plan.types, self.work, self.task.step)
                    assert self.plan.handover is not None
                    yield from candidates(join, table, self.plan.handover)
                    watch.lap("hand over")
            else:
                self._write_results(join, found, watch)
        watch.lap("probe")

    def _take_over(self, watch: _Watch) -> Iterator[pa.RecordBatch]:
        """Give the rows held the bits of new queries, and find the new queries' results among them."""
        shares, state = self.task.taking_over, self._open_runs()
        held = {}
        for table in self.network.tables:
            if any(entry.query in shares for entry in table.entries):
                adopted = [adopt(table, rows, shares) for rows in state.get(table.index, ())]
                merged = merge_runs(table, adopted, self.task.progress)
                if merged is not None:
                    held[table.index] = merged
                    for life, rows in lay_out(table, merged):
                        self._write_run(table, rows, 1, life)
        watch.lap("store")
        others = {entry.query for table in self.network.tables for entry in table.entries} - shares
        yield from self._join(held, {}, others | self.task.suspended, watch)

    def _deltas(self, received: list[pa.RecordBatch]) -> dict[int, Rows]:
        received = [b for b in received if b.num_rows]
        if not received:
            return {}
        table = pa.Table.from_batches(received).combine_chunks()
        columns = {name: _flat(table.column(name)) for name in table.column_names}
        target, verdict = np.divmod(columns["_table"].to_numpy(zero_copy_only=False), VERDICTS)
        deltas = {}
        for state_table in self.network.tables:
            of_table = target == state_table.index
            if self.network.tables_of(state_table.stream)[0] is state_table:
                self._admit(state_table.stream, of_table, verdict, columns)
            accepted = np.flatnonzero(of_table & (verdict == ACCEPTED))
            if len(accepted):
                deltas[state_table.index] = self._delta(state_table, accepted, columns)
        return deltas

    def _admit(self, stream: str, of_stream: Any, verdict: Any, columns: Mapping[str, pa.Array]) -> None:
        """Count the stream's rows, find its newest time, and put late and bad rows aside."""
        rows = int(of_stream.sum())
        if rows == 0:
            return
        counts = {"rows": rows}
        good = of_stream & (verdict != BAD)
        if good.any():
            counts["newest"] = int(columns["_ts"].filter(pa.array(good)).to_numpy(zero_copy_only=False).max())
        for code, reason in ((LATE, "late"), (BAD, "bad")):
            chosen = np.flatnonzero(of_stream & (verdict == code))
            counts[reason] = len(chosen)
            if len(chosen) == 0:
                continue
            rows_json = columns["_side"].take(pa.array(chosen))
            declared = self.network.streams[stream]
            policy = declared.late if code == LATE else declared.bad
            if policy == "error":
                self.report.errors.setdefault(stream, f"{reason}: {rows_json[0].as_py()}")
            elif policy == "side":
                self._write_side(stream, reason, rows_json, columns["_ts"].take(pa.array(chosen)))
        counts["accepted"] = rows - counts["late"] - counts["bad"]
        self.report.streams[stream] = counts

    def _write_side(self, stream: str, reason: str, rows: pa.Array, times: pa.Array) -> None:
        step = pa.array(np.full(len(rows), self.task.step, dtype=np.int64))
        progress = pa.array(np.full(len(rows), self.task.progress.get(stream, 0), dtype=np.int64))
        if reason == "late":
            why = pa.array(["late"] * len(rows))
        else:
            why = pc.if_else(pc.is_null(times), "event time is NULL or unreadable", "event time out of range")
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

    def _delta(self, table: StateTable, accepted: Any, columns: Mapping[str, pa.Array]) -> Rows:
        names = self.plan.names[table.stream]
        picked = pa.array(accepted)
        own = {c: columns[names.get(c, c)].take(picked) for c in table.needed}
        truths = {}
        for name, entries in table.truths:
            word, shift = self.plan.truths[name]
            bits = columns[f"_t{word}"].take(picked).to_numpy(zero_copy_only=False)
            truths[name] = (bits >> shift) & 1 == 1
            raised = int(((bits >> shift) & 2 == 2).sum())
            if raised:
                for entry in entries:
                    if table.entries[entry].query not in self.task.suspended:
                        self.work.errors[table.entries[entry].query] += raised
        keys, has_key = _keys(table, columns, own, picked)
        times = columns["_ts"].take(picked).to_numpy(zero_copy_only=False)
        delta = build_delta(table, keys, has_key, times, own, truths)
        self.report.tables[table.name] = {"shipped": len(accepted), "unwanted": delta.unwanted}
        if not table.stateless and (len(table.entries) <= FEW_ROLES or self.task.step % SAMPLE_EVERY == 0):
            self.report.tables[table.name] |= {"sampled": len(accepted), **_statistics(table, delta.rows)}
        return delta.rows

    def _open_runs(self) -> dict[int, list[Rows]]:
        """The slices of each table that this task serves."""
        wanted = {entry.name for entries in self.task.runs.values() for entry in entries}
        for name in [n for n in _opened if n not in wanted]:
            del _opened[name]
        state: dict[int, list[Rows]] = {}
        for index, entries in self.task.runs.items():
            for entry in entries:
                if (self.high is not None and entry.min_key >= self.high) or entry.max_key < self.low:
                    continue
                rows = self._open(entry).between(self.low, self.high)
                if len(rows):
                    state.setdefault(index, []).append(rows)
        return state

    def _open(self, entry: RunEntry) -> Rows:
        if entry.name not in _opened:
            _opened[entry.name] = decode_run(self.task.store.map(entry.name), entry)
        return _opened[entry.name]

    def _write_results(self, join: Join, found: Iterator[Matches], watch: _Watch) -> None:
        writer = ResultWriter(self.network, join, self.task)
        for matches in found:
            watch.lap("probe")
            writer.write(
                result_table(self.network, join, matches, self.plan.types, self.work, self.task.step), matches.bits
            )
            watch.lap("write")
        writer.close(self.report)
        watch.lap("write")

    def _store(self, table: StateTable, rows: Rows) -> None:
        counts = self.report.tables.setdefault(table.name, {})
        if table.stateless:
            counts["unwanted"] = counts.get("unwanted", 0) + len(rows)
            return
        kept = select(rows, alive(table, rows, self.task.progress))
        counts["out_of_reach"] = len(rows) - len(kept)
        counts["stored"] = len(kept)
        if len(kept):
            for life, piece in fresh_runs(table, kept):
                self._write_run(table, piece, 0, life)

    def _write_run(self, table: StateTable, rows: Rows, level: int, life: int) -> None:
        data = encode_run(rows, table.name)
        name = file_name("runs", self.task.step, "arrow")
        self.task.store.write(name, data)
        lives = {entry.id: entry.lives for entry in table.entries}
        run = RunEntry(
            name, table.name, level, self.task.step, len(rows), data.size, int(rows.time.min()), int(rows.time.max()),
            int(rows.key[0]), int(rows.key[-1]), life, tuple(expiry(rows, lives, FOREVER).items()), self.network.version,
            checksum(data),
        )  # fmt: skip
        self.report.runs.append(run.to_json())
        counts = self.report.tables.setdefault(table.name, {})
        counts["files"] = counts.get("files", 0) + 1
        counts["bytes_written"] = counts.get("bytes_written", 0) + data.size

    def _merge(self, merge: Merge) -> None:
        """Merge this task's share of the runs; together the tasks replace them whole."""
        table = next(t for t in self.network.tables if t.name == merge.table)
        names = set(merge.runs)
        entries = [e for e in self.task.runs[table.index] if e.name in names]
        shares = [self._open(e).between(self.low, self.high) for e in entries]
        merged = merge_runs(table, [s for s in shares if len(s)], self.task.progress)
        if merged is not None:
            for life, rows in lay_out(table, merged, merge.life):
                self._write_run(table, rows, merge.level, life)

    def _count_work(self) -> None:
        for index, counts in self.work.counts.items():
            table = self.report.tables.setdefault(self.network.tables[index].name, {})
            table.update(probed=counts.probed, candidates=counts.candidates, compared=counts.compared)
        for query, errors in self.work.errors.items():
            if errors:
                self.report.queries.setdefault(str(query), {})["errors"] = errors


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
    return values if "_key" in columns else hash_bigint(values), has_key


def _flat(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_timestamp(array.type) and array.type.tz not in (None, "UTC"):
        # The same instants whatever the session's time zone, so that runs of different sessions merge.
        array = array.cast(pa.timestamp("us", tz="UTC"))
    return array
