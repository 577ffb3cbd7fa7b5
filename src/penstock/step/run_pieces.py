"""A run that is written a piece at a time, and its line of the manifest, as if it had been written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from penstock.kernels.owed import STEP
from penstock.model.time import FOREVER, NEVER
from penstock.planner.reached import Clock
from penstock.planner.segments import quantiles
from penstock.planner.state_table import StateTable
from penstock.state.blocks import BlockWriter
from penstock.state.run import PARTS, Ints, Rows, RunEntry, expiry, fading
from penstock.step.task import Task
from penstock.storage.store import file_name


@dataclass
class RunPieces:
    """One run in the making. It exists once `close` has returned its line, and the manifest has it."""

    table: StateTable
    task: Task
    types: Mapping[str, pa.DataType]
    level: int
    version: int
    cold: bool = False
    rows: int = 0
    life: int = 0
    _until: dict[Clock, int] = field(default_factory=dict)
    _fades: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _times: list[Ints] = field(default_factory=list)  # of tables without a key

    def __post_init__(self) -> None:
        self.name = file_name("runs", self.task.step, "arrow")
        self._created: AbstractContextManager[BinaryIO] = self.task.store.create(self.name)
        self._writer = BlockWriter(self._created.__enter__(), self.table.name, self.types, cold=self.cold)

    def add(self, rows: Rows, life: int) -> None:
        """Add rows that are not before the last ones, of which the longest life is this."""
        self._writer.add(rows)
        until, fades = ends_of(self.table, rows, self.task)
        for clock, end in until.items():
            self._until[clock] = max(self._until.get(clock, end), end)
        self._fades.append((len(rows), fades))
        self.rows, self.life = self.rows + len(rows), max(self.life, life)
        if self.table.timed:
            self._times.append(rows.time)

    def close(self) -> RunEntry:
        """End the file; returns its line of the manifest."""
        size, checksum = self._writer.close()
        self._created.__exit__(None, None, None)
        blocks = self._writer.blocks
        return RunEntry(
            self.name, self.table.name, self.level, self.task.step, self.rows, size,
            min(b.min_time for b in blocks), max(b.max_time for b in blocks), blocks[0].min_key, blocks[-1].max_key,
            self.life, tuple(self._until.items()), self.version, checksum,
            quantiles(np.concatenate(self._times), self.task.buckets.tasks) if self._times else (),
            faded(self._fades), len(blocks), self.cold,
        )  # fmt: skip

    def abandon(self, error: BaseException) -> None:
        """Delete what was written."""
        try:
            self._created.__exit__(type(error), error, error.__traceback__)
        except BaseException as same:
            if same is not error:
                raise


def ends_of(table: StateTable, rows: Rows, task: Task) -> tuple[dict[Clock, int], tuple[int, ...]]:
    """The `until` and the `fades` of rows that a task writes.

    Rows that may owe their probes have not expired before these have run, even if they were out of reach at once.
    """
    lives = {entry.id: entry.lives for entry in table.entries}
    until = expiry(rows, lives, FOREVER, table.pieces)
    if task.deferred or STEP in rows.columns:
        until = {clock: max(end, task.progress.get(clock, NEVER) + 1) for clock, end in until.items()}
    return until, fading(rows, lives, FOREVER)


def faded(pieces: Sequence[tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
    """The `fades` of a run from the rows and `fades` of its pieces: never earlier than from all rows at once."""
    ends = sorted((end, rows) for rows, fades in pieces for end in fades)
    if not ends:
        return ()
    gone = np.cumsum([rows for _, rows in ends])  # in parts of rows
    whole = sum(rows for rows, _ in pieces)
    found = [int(np.searchsorted(gone, part * whole)) for part in range(1, PARTS)]
    fades = tuple(ends[place][0] if place < len(ends) else FOREVER for place in found)
    return () if fades[0] >= FOREVER else fades
