"""The runs of a task in a step: opened, written, merged.

A task serves its own range of keys (of time, if a table has no key) of every run in the manifest, and writes new ones
under unique names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.delta import select
from penstock.kernels.groups import alive_by_key
from penstock.kernels.merge import fresh_runs, lay_out, merge_fresh, merge_runs, types_of
from penstock.kernels.ranks import rank
from penstock.kernels.streamed import in_ranges
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.segments import quantiles
from penstock.planner.state_table import StateTable
from penstock.state.blocks import Blocks
from penstock.state.compaction import Merge, interval_of
from penstock.state.run import Rows, RunEntry, checksum, decode_run, encode_run, expiry, fading
from penstock.step.report import Report
from penstock.step.results import Schemas
from penstock.step.run_pieces import RunPieces
from penstock.step.task import Task
from penstock.storage.faults import told_plainly
from penstock.storage.store import file_name

_opened: dict[str, tuple[Rows, ...]] = {}  # mapped runs of this process; mapping and verifying a file once is enough


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
    fresh: list[RunEntry] = field(default_factory=list)  # written here, and looked up in later stages
    # Runs of counted rows, with the times at which these leave windows.
    ranked: dict[str, tuple[Rows, ...]] = field(default_factory=dict)

    def open_runs(self, every: Collection[int] = ()) -> tuple[dict[int, list[Rows]], dict[int, list[Rows]]]:
        """The slices of each table that this task serves, and the whole runs of tables that it reads whole."""
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
                opened = [self.open(e) for e in entries]
                ranked = iter(rank(table, [rows for parts in opened for rows in parts]))
                self.ranked.update(
                    (e.name, tuple(next(ranked) for _ in parts)) for e, parts in zip(entries, opened, strict=True)
                )
            all_rows = index in self.task.routes.whole or index in every
            for entry in entries:
                if all_rows:
                    whole.setdefault(index, []).extend(self.open(entry))
                for rows in self.own(table, entry):
                    own.setdefault(index, []).append(rows)
        return own, whole

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
            found = [rows.between(self.low, self.high) for rows in self.open(entry)]
        return [rows for rows in found if len(rows)]

    def open(self, entry: RunEntry) -> tuple[Rows, ...]:
        """The rows of a run, or of each of its blocks."""
        if entry.name in self.ranked:
            return self.ranked[entry.name]
        if entry.name not in _opened:
            store = self.task.store
            with told_plainly():
                mapped, label = store.map(entry.name), store.label(entry.name)
                if entry.blocks:
                    blocks = Blocks(mapped, entry, label)
                    _opened[entry.name] = tuple(blocks.rows(number) for number in range(entry.blocks))
                else:
                    _opened[entry.name] = (decode_run(mapped, entry, label),)
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
                in_reach = self.in_reach(table, rows)
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
        self, table: StateTable, parts: Sequence[Rows], level: int, *, cold: Callable[[Hashable], bool] | None = None
    ) -> Iterator[_Written]:
        """Runs by any key, written a piece at a time."""
        types, runs = types_of(table, parts), _Written(lambda key: RunPieces(
            table, self.task, types, level, self.network.version, cold is not None and cold(key)
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
        in_reach = self.in_reach(table, rows)
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
        data = encode_run(rows, table.name, self.task.buckets.buckets)
        name = file_name("runs", self.task.step, "arrow")
        self.task.store.write(name, data)
        fades: tuple[int, ...] = ()
        if until is None:
            lives = {entry.id: entry.lives for entry in table.entries}
            until = expiry(rows, lives, FOREVER, table.pieces)
            fades = fading(rows, lives, FOREVER)
        run = RunEntry(
            name, table.name, level, self.task.step, len(rows), data.size, int(rows.time.min()), int(rows.time.max()),
            int(rows.key[0]), int(rows.key[-1]), life, tuple(until.items()), self.network.version, checksum(data),
            quantiles(rows.time, self.task.buckets.tasks) if table.timed else (), fades,
        )  # fmt: skip
        self._report(table, run, named=named)
        return run

    def merge(self, merge: Merge) -> None:
        """Merge this task's share of the runs; together the tasks replace them whole."""
        table = next(t for t in self.network.tables if t.name == merge.table)
        names = set(merge.runs)
        entries = [e for e in self.task.runs[table.index] if e.name in names]
        shares = [rows.between(self.low, self.high) for e in entries for rows in self.open(e)]
        shares = [rows for rows in shares if len(rows)]
        limits = self.task.limits
        if limits is not None and sum(rows.nbytes for rows in shares) > limits.work:
            with self._written(table, shares, merge.level) as run:
                for ranged in in_ranges(shares, limits.work):
                    for life, rows in self._laid_out(table, ranged, merge):
                        place = life, interval_of(int(rows.time[0]), life), rows.patterns if table.by_cell else None
                        run(place).add(rows, life)
            for entry in run.entries:
                self._report(table, entry)
            return
        for life, rows in self._laid_out(table, shares, merge):
            self.write_run(table, rows, merge.level, life)

    def _laid_out(self, table: StateTable, shares: Sequence[Rows], merge: Merge) -> list[tuple[int, Rows]]:
        """The rows of a merge as runs, each with the end of its link."""
        if table.index in self.task.closed:
            shares = [select(s, self.in_reach(table, s)) for s in shares if len(s)]
        merged = merge_runs(table, [s for s in shares if len(s)], self.task.progress)
        return [] if merged is None else lay_out(table, merged, merge.life)


class _Written:
    """Runs in the making, begun at the first use of their keys; `entries` are their lines, once they have ended."""

    def __init__(self, begin: Callable[[Hashable], RunPieces]) -> None:
        self.begin, self.made = begin, dict[Hashable, RunPieces]()
        self.entries: list[RunEntry] = []

    def __call__(self, key: Hashable) -> RunPieces:
        if key not in self.made:
            self.made[key] = self.begin(key)
        return self.made[key]
