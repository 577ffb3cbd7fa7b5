"""The rows that a task receives in a step, as deltas of its state tables.

Rows come through the exchange or from files that the task reads itself. Here they are counted by stream, late and bad ones are put
aside, and the rest get the bits of the queries they serve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.kernels.delta import build_delta
from penstock.kernels.hash import hash_bigint
from penstock.kernels.walk import Work
from penstock.model.time import NEVER
from penstock.planner.network import StateTable
from penstock.runtime.arrivals.admission import ACCEPTED, PUNCTUATION, SIDES, VERDICTS, of_verdicts, reasons, saw
from penstock.runtime.arrivals.files import Unreadable, in_range, read_rows
from penstock.runtime.tasks.task import Plan, Report, Task
from penstock.runtime.tasks.write import file_name
from penstock.state.run import Ints, Rows

FEW_ROLES, SAMPLE_EVERY = 64, 16  # a table with more roles than a few counts its rows by role only now and then


@dataclass
class Receiver:
    """One task's share of a step's rows: the keys from `low` to below `high`."""

    plan: Plan
    task: Task
    report: Report
    work: Work
    low: int
    high: int | None

    def rows(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
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

    def deltas(self, received: pa.Table) -> tuple[dict[int, Rows], dict[int, Rows]]:
        """The rows of this step by table: those that this task owns, and all of them where every task has them."""
        if len(received) == 0:
            return {}, {}
        columns = {name: _flat(received.column(name)) for name in received.column_names}
        target, verdict = np.divmod(columns["_table"].to_numpy(zero_copy_only=False), VERDICTS)
        fresh, every = {}, {}
        for state_table in self.plan.network.tables:
            of_table = target == state_table.index
            replicated = state_table.index in self.task.routes.replicated
            owned = of_table & in_range(columns["_key"], self.low, self.high) if replicated else of_table
            if self.plan.network.tables_of(state_table.stream)[0] is state_table:
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
        declared = self.plan.network.streams[stream]
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
        known = self.task.progress.get(stream, NEVER)
        progress = pa.repeat(pa.scalar(known if known > NEVER else None, pa.int64()), len(rows))
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
        if table.key:
            self.report.tables[table.name]["keys"] = delta.keys  # no key is in two tasks: the sum is that of the step
        if not (table.stateless or table.grouped) and (
            len(table.entries) <= FEW_ROLES or self.task.step % SAMPLE_EVERY == 0
        ):
            self.report.tables[table.name] |= {"sampled": len(accepted), **_statistics(table, delta.rows)}
        return delta.rows


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
