"""The runs of a task in a step: opened, written, merged.

A task serves its own range of keys (of time, if a table has no key) of every run in the manifest, and writes new ones
under unique names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.delta import select
from penstock.kernels.groups import alive_by_key
from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.kernels.owed import STEP, tell_steps, with_steps
from penstock.kernels.ranks import rank
from penstock.kernels.walk import Slices
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.segments import quantiles
from penstock.planner.state_table import StateTable
from penstock.state.bucket_counters import BucketTally
from penstock.state.compaction import Merge
from penstock.state.run import Rows, RunEntry, checksum, decode_run, encode_run, expiry, fading
from penstock.step.report import Report
from penstock.step.results import Schemas
from penstock.step.task import Task
from penstock.storage.faults import told_plainly
from penstock.storage.store import file_name

SAMPLE_EVERY = 16  # steps between two counts of the stored bytes of each bucket

_opened: dict[str, Rows] = {}  # mapped runs of this process; mapping and verifying a file once is enough


@dataclass
class Held:
    """One task's share of the state: the keys from `low` to below `high`."""

    network: Network
    task: Task
    report: Report
    partition: int
    low: int
    high: int | None
    listed: Schemas = field(default_factory=dict)
    tally: BucketTally = field(default_factory=BucketTally)
    fresh: list[RunEntry] = field(default_factory=list)  # written here, and looked up in later stages
    # Runs of counted rows, with the times at which these leave windows.
    ranked: dict[str, Rows] = field(default_factory=dict)

    def open_runs(self, every: Collection[int] = ()) -> Slices:
        """The slices of each table that this task serves, those that it is lent, and whole runs where it reads all."""
        wanted = {entry.name for entries in self.task.runs.values() for entry in entries}
        for name in [n for n in _opened if n not in wanted]:
            del _opened[name]
        own: dict[int, list[Rows]] = {}
        whole: dict[int, list[Rows]] = {}
        lent: dict[int, list[Rows]] = {}
        for index, entries in self.task.runs.items():
            table = self.network.tables[index]
            if table.grouped:
                continue
            if table.counted:
                self.ranked.update(
                    zip((e.name for e in entries), rank(table, [self.open(e) for e in entries]), strict=True)
                )
            all_rows = index in self.task.routes.whole or index in every
            for entry in entries:
                if all_rows:
                    whole.setdefault(index, []).append(self._told(self.open(entry), entry))
                rows = self.own(table, entry)
                if rows is not None and len(rows):
                    own.setdefault(index, []).append(self._told(rows, entry))
                    if table.key and self.task.step % SAMPLE_EVERY == 0:
                        self.tally.add_sorted("stored", rows.key, entry.bytes / entry.rows)
                lent.setdefault(index, []).extend(self.lent(table, entry))
        return Slices(own, whole=whole, lent=lent)

    def lent(self, table: StateTable, entry: RunEntry) -> list[Rows]:
        """The rows of a run in split buckets that other tasks serve, and with which this one has turns."""
        ranges = self.task.buckets.lent(self.partition) if table.key else ()
        found = (
            self.open(entry).between(low, high)
            for low, high in ranges
            if entry.max_key >= low and (high is None or entry.min_key < high)
        )
        return [rows for rows in found if len(rows)]

    def _told(self, rows: Rows, entry: RunEntry) -> Rows:
        """The rows of a run, with their steps if owed probes are run."""
        return with_steps([rows], [entry])[0] if self.task.owed else rows

    def own(self, table: StateTable, entry: RunEntry) -> Rows | None:
        """The task's share of a run: by key, or by time without one."""
        if table.timed:
            starts = self.task.segments.get(table.index, (NEVER,) + (FOREVER,) * (self.task.buckets.tasks - 1))
            low, high = (*starts, FOREVER)[self.partition : self.partition + 2]
            return None if entry.min_time >= high or entry.max_time < low else self.open(entry).since(low, high)
        if (self.high is not None and entry.min_key >= self.high) or entry.max_key < self.low:
            return None
        return self.open(entry).between(self.low, self.high)

    def open(self, entry: RunEntry) -> Rows:
        if entry.name in self.ranked:
            return self.ranked[entry.name]
        if entry.name not in _opened:
            store = self.task.store
            with told_plainly():
                _opened[entry.name] = decode_run(store.map(entry.name), entry, store.label(entry.name))
        return _opened[entry.name]

    def store(self, table: StateTable, rows: Rows) -> None:
        counts = self.report.table(table.name)
        if table.stateless:
            counts.unwanted += len(rows)
            return
        # Of a step that puts off probes, even rows that no later one can join may be partners of these.
        in_reach = np.ones(len(rows), dtype=np.bool_) if self.task.deferred else self.in_reach(table, rows)
        kept = select(rows, in_reach)
        counts.out_of_reach += len(rows) - len(kept)
        counts.stored += len(kept)
        if len(kept):
            for life, piece in fresh_runs(table, kept):
                self.keep_fresh(table, self.write_run(table, piece, 0, life))
        if len(kept) < len(rows) and table.index in self.task.routes.later:
            # Rows that have expired for later steps may still join rows of this one; no manifest names their run.
            gone = select(rows, ~in_reach)
            self.keep_fresh(table, self.write_run(table, gone, 0, 0, named=False))

    def in_reach(self, table: StateTable, rows: Rows) -> npt.NDArray[np.bool_]:
        return alive_by_key(table, rows, self.task.progress, self.task.closed.get(table.index, ()))

    def keep_fresh(self, table: StateTable, entry: RunEntry) -> None:
        if table.index in self.task.routes.later:
            self.fresh.append(entry)

    def write_run(
        self,
        table: StateTable,
        rows: Rows,
        level: int,
        life: int,
        *,
        named: bool = True,
        until: Reached | None = None,
    ) -> RunEntry:
        """Write rows as a run. If owed probes may need them, it does not expire before these can be paid."""
        data = encode_run(rows, table.name, self.task.buckets.buckets)
        name = file_name("runs", self.task.step, "arrow")
        self.task.store.write(name, data)
        fades: tuple[int, ...] = ()
        if until is None:
            lives = {entry.id: entry.lives for entry in table.entries}
            until = expiry(rows, lives, FOREVER, table.pieces)
            if self.task.deferred or STEP in rows.columns:
                until = {c: max(end, self.task.progress.get(c, NEVER) + 1) for c, end in until.items()}
            fades = fading(rows, lives, FOREVER)
        run = RunEntry(
            name, table.name, level, self.task.step, len(rows), data.size, int(rows.time.min()), int(rows.time.max()),
            int(rows.key[0]), int(rows.key[-1]), life, tuple(until.items()), self.network.version, checksum(data),
            quantiles(rows.time, self.task.buckets.tasks) if table.timed else (), fades,
        )  # fmt: skip
        if named:
            self.report.runs.append(run)
        counts = self.report.table(table.name)
        counts.files += 1
        counts.bytes_written += data.size
        if table.key:
            self.tally.add_sorted("written", rows.key, data.size / len(rows))
        return run

    def merge(self, merge: Merge) -> None:
        """Merge this task's share of the runs; together the tasks replace them whole."""
        table = next(t for t in self.network.tables if t.name == merge.table)
        names = set(merge.runs)
        entries = [e for e in self.task.runs[table.index] if e.name in names]
        shares = [self.open(e).between(self.low, self.high) for e in entries]
        shares = tell_steps(shares, entries, self.task.apart)
        if table.index in self.task.closed:
            shares = [select(s, self.in_reach(table, s)) for s in shares if len(s)]
        kept = self.task.progress if self.task.kept is None else self.task.kept
        merged = merge_runs(table, [s for s in shares if len(s)], kept, self.task.apart)
        if merged is not None:
            for life, rows in lay_out(table, merged, merge.life):
                self.write_run(table, rows, merge.level, life)
