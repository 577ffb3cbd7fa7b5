"""The deltas of all state tables at a task, built parcel by parcel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.columns.hash import whole_numbers
from penstock.columns.parcels import MARKS, PROBING, SEEN, STORED, Rows, unite
from penstock.kernels.delta import Delta, build_delta
from penstock.kernels.merge import merge_deltas
from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.planner.state_table import StateTable
from penstock.state.run import Ints
from penstock.step.keys import received_keys
from penstock.step.mapper import Truths, truth_of
from penstock.step.scratch import Scratch

# Rows of small parcels are sorted together: measured with sixteen parcels of 600 rows, merging the delta of each takes
# twice as long; from 1 MB per parcel on it makes no difference.
GATHERED_BYTES = 4 << 20


@dataclass(frozen=True)
class Fresh:
    """By table the deltas of the rows that a task stores, of those that it probes with, and of those that all see.

    Each is a whole delta, or several sorted pieces of it if it is too large for memory. In a step with split buckets
    tasks probe with other rows than they store: then `probing` has those that are both, and those that are lent.
    """

    stored: Mapping[int, Sequence[Delta]] = field(default_factory=dict)
    probing: Mapping[int, Sequence[Delta]] = field(default_factory=dict)
    seen: Mapping[int, Sequence[Delta]] = field(default_factory=dict)


@dataclass
class Deltas:
    """Holds at most one parcel, or small ones of `GATHERED_BYTES`, and of all others what tables store of them.

    With `limits` that is put aside whenever it exceeds `limits.piece`.
    """

    network: Network
    truths: Truths
    limits: Limits | None = None
    scratch: Scratch = field(default_factory=Scratch)
    pieces: int = 0  # put aside so far
    _small: list[Rows] = field(default_factory=list)
    _bytes: int = 0
    # Rows that are stored and probe here, are only stored, only probe, and are seen; each row is sorted once.
    _made: tuple[dict[int, list[Delta]], ...] = field(default_factory=lambda: tuple({} for _ in range(MARKS + 1)))
    _made_bytes: int = 0
    _aside: tuple[dict[int, list[Delta]], ...] = field(default_factory=lambda: tuple({} for _ in range(MARKS + 1)))

    def take(self, parcel: Rows) -> None:
        size = parcel.nbytes
        most = GATHERED_BYTES if self.limits is None else min(GATHERED_BYTES, self.limits.parcel)
        if self._bytes + size > most:
            self._build()
        self._small.append(parcel)
        self._bytes += size
        if self._bytes > most:
            self._build()

    def whole(self) -> Fresh:
        """The deltas of all rows."""
        self._build()
        if self.pieces:
            self._put_aside()
            both, kept, lent, seen = self._aside
            return Fresh(_joined(both, kept), _joined(both, lent), seen)
        both, kept, lent, seen = ({index: [own] for index, own in made.items()} for made in self._united())
        stored = {index: [self._merged(index, own)] for index, own in _joined(both, kept).items()}
        return Fresh(stored, _joined(both, lent), seen)

    def _united(self) -> tuple[dict[int, Delta], ...]:
        """What was made of rows so far as one delta by kind and table."""
        return tuple({index: self._merged(index, deltas) for index, deltas in made.items()} for made in self._made)

    def _put_aside(self) -> None:
        """One piece of each table goes to a file."""
        mapped: dict[int, tuple[Delta, Delta]] = {}  # by identity: with itself, so that no other can get it
        for kind, deltas in enumerate(self._united()):
            for index, delta in deltas.items():
                if id(delta) not in mapped:
                    mapped[id(delta)] = delta, replace(delta, rows=self.scratch.rows(delta.rows))
                    self.pieces += 1
                self._aside[kind].setdefault(index, []).append(mapped[id(delta)][1])
        for made in self._made:
            made.clear()
        self._made_bytes = 0

    def _build(self) -> None:
        small, self._small, self._bytes = self._small, [], 0
        for rows in unite(small).values():
            for number, table in enumerate(self.network.tables_of(rows.stream)):
                last: tuple[Ints, Delta] | None = None
                stored, probing, seen = (rows.marked(number, mark) for mark in (STORED, PROBING, SEEN))
                both, kept, lent = stored, stored[:0], stored[:0]
                if not np.array_equal(stored, probing):
                    both = np.intersect1d(stored, probing, assume_unique=True)
                    kept = np.setdiff1d(stored, both, assume_unique=True)
                    lent = np.setdiff1d(probing, both, assume_unique=True)
                for mark, index in enumerate((both, kept, lent, seen)):
                    if not len(index):
                        continue
                    if last is None or not np.array_equal(index, last[0]):
                        last = index, self._delta(table, rows, index)
                        self._made_bytes += last[1].rows.nbytes
                    self._made[mark].setdefault(table.index, []).append(last[1])
        if self.limits is not None and self._made_bytes > self.limits.piece:
            self._put_aside()

    def _merged(self, index: int, deltas: Sequence[Delta]) -> Delta:
        return merge_deltas(self.network.tables[index], deltas)

    def _delta(self, table: StateTable, rows: Rows, index: Ints) -> Delta:
        times = rows.columns["_ts"]
        keys, has_key = received_keys(table, rows.columns, times)
        truths = {name: truth_of(name, table, self.truths, rows.columns)[0] for name, _ in table.truths}
        return build_delta(table, keys, has_key, whole_numbers(times), rows.columns, truths, index)


def _joined(one: Mapping[int, Sequence[Delta]], other: Mapping[int, Sequence[Delta]]) -> dict[int, Sequence[Delta]]:
    return {index: [*one.get(index, ()), *other.get(index, ())] for index in {**one, **other}}
