"""The runs of a task in a step: opened, written, merged.

A task serves its own range of keys (of time, if a table has no key) of every run in the manifest, and writes new ones
under unique names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.delta import select
from penstock.kernels.groups import alive_by_key
from penstock.kernels.merge import fresh_runs, lay_out, merge_fresh, merge_runs, types_of
from penstock.kernels.owed import tell_steps, with_steps
from penstock.kernels.ranks import rank
from penstock.kernels.streamed import in_blocks, in_ranges
from penstock.kernels.walk import Slices
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.segments import quantiles
from penstock.planner.state_table import StateTable
from penstock.planner.tiered import tiered_tables
from penstock.state.blocks import Blocks
from penstock.state.bucket_counters import BucketTally
from penstock.state.cold import CACHE, BlockCache, Cold
from penstock.state.compaction import Merge, interval_of
from penstock.state.run import Rows, RunEntry, checksum, decode_run, encode_run
from penstock.step.report import Report
from penstock.step.results import Schemas
from penstock.step.run_pieces import RunPieces, ends_of
from penstock.step.scratch import Scratch
from penstock.step.task import Task
from penstock.storage.faults import told_plainly
from penstock.storage.store import file_name

_opened: dict[str, tuple[Rows, ...]] = {}  # mapped runs of this process; mapping and verifying a file once is enough
_blocks: dict[str, Blocks] = {}  # cold runs that are read block by block
_cache = BlockCache()
LEAST_KEY = -(1 << 63)
SAMPLE_EVERY = 16  # steps between two counts of the stored bytes of each bucket


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
    scratch: Scratch = field(default_factory=Scratch)
    tally: BucketTally = field(default_factory=BucketTally)
    fresh: list[RunEntry] = field(default_factory=list)  # written here, and looked up in later stages
    # Runs of counted rows, with the times at which these leave windows.
    ranked: dict[str, tuple[Rows, ...]] = field(default_factory=dict)

    def open_runs(self, every: Collection[int] = ()) -> Slices:
        """The slices of each table that this task serves, those that it is lent, and whole runs where it reads all."""
        wanted = {entry.name for entries in self.task.runs.values() for entry in entries}
        for known in (_opened, _blocks):
            for name in [n for n in known if n not in wanted]:
                del known[name]
        _cache.keep(wanted)
        _cache.most = CACHE if self.task.limits is None else self.task.limits.cache
        tiered = tiered_tables(self.network) - set(every)
        own: dict[int, list[Rows | Cold]] = {}
        whole: dict[int, list[Rows | Cold]] = {}
        lent: dict[int, list[Rows | Cold]] = {}
        for index, entries in self.task.runs.items():
            table = self.network.tables[index]
            if table.grouped:
                continue
            if table.counted:
                opened = [self.open(e) for e in entries]
                ranked = iter(rank(table, [rows for parts in opened for rows in parts]))
                self.ranked.update(
                    (e.name, tuple(next(ranked) for _ in parts)) for e, parts in zip(entries, opened, strict=True)
                )
            all_rows = index in self.task.routes.whole or index in every
            for entry in entries:
                cold = entry.cold and index in tiered and not (self.task.taking_over or self.task.owed)
                if all_rows:
                    whole.setdefault(index, []).extend(
                        self.cold(entry, LEAST_KEY, None) if cold else self._told(self.open(entry), entry)
                    )
                mine = self.cold(entry, self.low, self.high) if cold else self._told(self.own(table, entry), entry)
                if mine:
                    own.setdefault(index, []).extend(mine)
                    if table.key and self.task.step % SAMPLE_EVERY == 0:
                        self._count_stored(entry, mine)
                for low, high in self.task.buckets.lent(self.partition) if table.key else ():
                    if entry.max_key >= low and (high is None or entry.min_key < high):
                        others = self.cold(entry, low, high) if cold else self._between(entry, low, high)
                        lent.setdefault(index, []).extend(others)
        return Slices(own, whole=whole, lent=lent)

    def _between(self, entry: RunEntry, low: int, high: int | None) -> list[Rows]:
        found = (rows.between(low, high) for rows in self.open(entry))
        return [rows for rows in found if len(rows)]

    def _count_stored(self, entry: RunEntry, parts: Sequence[Rows | Cold]) -> None:
        """The bytes of a run by bucket; those of blocks that are read when they are needed are not known by bucket."""
        for rows in parts:
            if isinstance(rows, Rows):
                self.tally.add_sorted("stored", rows.key, entry.bytes / entry.rows)

    def _told(self, parts: Sequence[Rows], entry: RunEntry) -> Sequence[Rows]:
        """The rows of a run, with their steps if owed probes are run."""
        return with_steps(parts, [entry] * len(parts)) if self.task.owed else parts

    def cold(self, entry: RunEntry, low: int, high: int | None) -> list[Cold]:
        """The blocks of a cold run with keys from `low` to below `high`, to be read when they are needed."""
        if (high is not None and entry.min_key >= high) or entry.max_key < low:
            return []
        run = self._blocks(entry)
        inside = (n for n, b in enumerate(run.index) if b.max_key >= low and (high is None or b.min_key < high))
        return [Cold(run, number, _cache, low, high) for number in inside]

    def _blocks(self, entry: RunEntry) -> Blocks:
        if entry.name not in _blocks:
            store = self.task.store
            with told_plainly():
                _blocks[entry.name] = Blocks(store.map(entry.name), entry, store.label(entry.name))
        return _blocks[entry.name]

    def own(self, table: StateTable, entry: RunEntry) -> list[Rows]:
        """The task's share of a run, if any: by key, or by time without one."""
        if table.timed:
            starts = self.task.segments.get(table.index, (NEVER,) + (FOREVER,) * (self.task.buckets.tasks - 1))
            low, high = (*starts, FOREVER)[self.partition : self.partition + 2]
            if entry.min_time >= high or entry.max_time < low:
                return []
            found = [rows.since(low, high) for rows in self.open(entry)]
        elif (self.high is not None and entry.min_key >= self.high) or entry.max_key < self.low:
            return []
        else:
            return self._between(entry, self.low, self.high)
        return [rows for rows in found if len(rows)]

    def open(self, entry: RunEntry) -> tuple[Rows, ...]:
        """The rows of a run, or of each of its blocks; those of a cold run as if it were hot, in a file of the task."""
        if entry.name in self.ranked:
            return self.ranked[entry.name]
        if entry.name not in _opened:
            store = self.task.store
            if entry.blocks:
                run = self._blocks(entry)
                parts = (run.rows(number) for number in range(entry.blocks))
                _opened[entry.name] = self.scratch.all_rows(parts) if entry.cold else tuple(parts)
            else:
                with told_plainly():
                    _opened[entry.name] = (decode_run(store.map(entry.name), entry, store.label(entry.name)),)
        return _opened[entry.name]

    def store(self, table: StateTable, pieces: Sequence[Rows]) -> None:
        """Store the new rows of a table, which are sorted, or several sorted pieces."""
        if table.stateless:
            self.report.table(table.name).unwanted += sum(map(len, pieces))
        elif len(pieces) == 1:
            self._store_at_once(table, pieces[0])
        else:
            self._store_in_pieces(table, pieces)

    def _store_in_pieces(self, table: StateTable, pieces: Sequence[Rows]) -> None:
        assert self.task.limits is not None, "without limits nothing is in pieces"
        counts = self.report.table(table.name)
        with self._written(table, pieces, 0) as run, self._written(table, pieces, 0) as unnamed:
            for ranged in in_ranges(pieces, self.task.limits.work):
                rows = merge_fresh(table, ranged)
                in_reach = self._kept(table, rows)
                kept = select(rows, in_reach)
                counts.out_of_reach += len(rows) - len(kept)
                counts.stored += len(kept)
                if len(kept):
                    for life, own in fresh_runs(table, kept):
                        run(own.patterns if table.by_cell else None).add(own, life)
                if len(kept) < len(rows) and table.index in self.task.routes.later:
                    unnamed(None).add(select(rows, ~in_reach), 0)
        for entry in run.entries:
            self._report(table, entry)
            self.keep_fresh(table, entry)
        for entry in unnamed.entries:
            self._report(table, entry, named=False)
            self.keep_fresh(table, entry)

    @contextmanager
    def _written(
        self, table: StateTable, parts: Sequence[Rows], level: int, *, cold: bool = False
    ) -> Iterator[_Written]:
        """Runs by any key, written a piece at a time."""
        types, runs = types_of(table, parts), _Written(lambda: RunPieces(
            table, self.task, types, level, self.network.version, cold
        ))  # fmt: skip
        try:
            yield runs
            runs.entries = [run.close() for run in runs.made.values()]
        except BaseException as error:
            for run in runs.made.values():
                run.abandon(error)
            raise

    def _report(self, table: StateTable, run: RunEntry, *, named: bool = True) -> None:
        if named:
            self.report.runs.append(run)
        counts = self.report.table(table.name)
        counts.files += 1
        counts.bytes_written += run.bytes

    def _store_at_once(self, table: StateTable, rows: Rows) -> None:
        counts = self.report.table(table.name)
        in_reach = self._kept(table, rows)
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

    def _kept(self, table: StateTable, rows: Rows) -> npt.NDArray[np.bool_]:
        """The new rows to store. Of a step that puts off probes, even those that no later one can join are partners."""
        return np.ones(len(rows), dtype=np.bool_) if self.task.deferred else self.in_reach(table, rows)

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
            until, fades = ends_of(table, rows, self.task)
        run = RunEntry(
            name, table.name, level, self.task.step, len(rows), data.size, int(rows.time.min()), int(rows.time.max()),
            int(rows.key[0]), int(rows.key[-1]), life, tuple(until.items()), self.network.version, checksum(data),
            quantiles(rows.time, self.task.buckets.tasks) if table.timed else (), fades,
        )  # fmt: skip
        self._report(table, run, named=named)
        if table.key:
            self.tally.add_sorted("written", rows.key, data.size / len(rows))
        return run

    def merge(self, merge: Merge) -> None:
        """Merge this task's share of the runs; together the tasks replace them whole."""
        table = next(t for t in self.network.tables if t.name == merge.table)
        names = set(merge.runs)
        entries = [e for e in self.task.runs[table.index] if e.name in names]
        own = [(rows, entry) for entry in entries for rows in self._share(entry) if len(rows)]
        shares: Sequence[Rows] = tell_steps([rows for rows, _ in own], [entry for _, entry in own], self.task.apart)
        limits = self.task.limits
        most = sys.maxsize if limits is None else limits.work
        if merge.cold or sum(rows.nbytes for rows in shares) > most:
            with self._written(table, shares, merge.level, cold=merge.cold) as run:
                for ranged in in_ranges(shares, most):
                    for life, rows in self._laid_out(table, ranged, merge):
                        place = life, interval_of(int(rows.time[0]), life), rows.patterns if table.by_cell else None
                        for part in in_blocks(rows) if merge.cold else [rows]:
                            run(place).add(part, life)
            for entry in run.entries:
                self._report(table, entry)
            return
        for life, rows in self._laid_out(table, shares, merge):
            self.write_run(table, rows, merge.level, life)

    def _share(self, entry: RunEntry) -> Iterable[Rows]:
        """The rows of a run with keys of this task; those of a cold one in a file."""
        if not entry.cold:
            return [rows.between(self.low, self.high) for rows in self.open(entry)]
        run = self._blocks(entry)
        blocks = self.cold(entry, self.low, self.high)
        return self.scratch.all_rows(run.rows(b.number).between(self.low, self.high) for b in blocks)

    def _laid_out(self, table: StateTable, shares: Sequence[Rows], merge: Merge) -> list[tuple[int, Rows]]:
        """The rows of a merge as runs, each with the end of its link."""
        if table.index in self.task.closed:
            shares = [select(s, self.in_reach(table, s)) for s in shares if len(s)]
        kept = self.task.progress if self.task.kept is None else self.task.kept
        merged = merge_runs(table, [s for s in shares if len(s)], kept, self.task.apart)
        return [] if merged is None else lay_out(table, merged, merge.life)


class _Written:
    """Runs in the making, begun at the first use of their keys; `entries` are their lines, once they have ended."""

    def __init__(self, begin: Callable[[], RunPieces]) -> None:
        self.begin, self.made = begin, dict[Hashable, RunPieces]()
        self.entries: list[RunEntry] = []

    def __call__(self, key: Hashable) -> RunPieces:
        if key not in self.made:
            self.made[key] = self.begin()
        return self.made[key]
