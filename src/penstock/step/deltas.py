"""The deltas of all state tables at a task, built parcel by parcel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.columns.hash import whole_numbers
from penstock.columns.parcels import MARKS, PROBING, SEEN, STORED, Rows, unite
from penstock.kernels.delta import Delta, build_delta
from penstock.kernels.merge import merge_deltas
from penstock.planner.network import Network
from penstock.planner.state_table import StateTable
from penstock.state.run import Ints
from penstock.step.keys import received_keys
from penstock.step.mapper import Truths, truth_of

# Rows of small parcels are sorted together: measured with sixteen parcels of 600 rows, merging the delta of each takes
# twice as long; from 1 MB per parcel on it makes no difference.
GATHERED_BYTES = 4 << 20


@dataclass(frozen=True)
class Fresh:
    """By table the deltas of the rows that a task stores, of those that it probes with, and of those that all see.

    In a step without split buckets a task probes with the rows that it stores; else `probing` are several deltas.
    """

    stored: dict[int, Delta] = field(default_factory=dict)
    probing: dict[int, list[Delta]] = field(default_factory=dict)
    seen: dict[int, Delta] = field(default_factory=dict)


@dataclass
class Deltas:
    """Holds at most one parcel, or small ones of `GATHERED_BYTES`, and of all others what tables store of them."""

    network: Network
    truths: Truths
    _small: list[Rows] = field(default_factory=list)
    _bytes: int = 0
    # Rows that are stored and probe here, are only stored, only probe, and are seen; each row is sorted once.
    _made: tuple[dict[int, list[Delta]], ...] = field(default_factory=lambda: tuple({} for _ in range(MARKS + 1)))

    def take(self, parcel: Rows) -> None:
        size = parcel.nbytes
        if self._bytes + size > GATHERED_BYTES:
            self._build()
        self._small.append(parcel)
        self._bytes += size
        if self._bytes > GATHERED_BYTES:
            self._build()

    def whole(self) -> Fresh:
        """The deltas of all rows."""
        self._build()
        both, stored, probing, seen = (
            {index: self._merged(index, deltas) for index, deltas in made.items()} for made in self._made
        )
        whole = both | stored | {i: self._merged(i, [both[i], stored[i]]) for i in both.keys() & stored.keys()}
        found = {i: [own[i] for own in (both, probing) if i in own] for i in both | probing}
        return Fresh(whole, found, seen)

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
                    self._made[mark].setdefault(table.index, []).append(last[1])

    def _merged(self, index: int, deltas: Sequence[Delta]) -> Delta:
        return merge_deltas(self.network.tables[index], deltas)

    def _delta(self, table: StateTable, rows: Rows, index: Ints) -> Delta:
        times = rows.columns["_ts"]
        keys, has_key = received_keys(table, rows.columns, times)
        truths = {name: truth_of(name, table, self.truths, rows.columns)[0] for name, _ in table.truths}
        return build_delta(table, keys, has_key, whole_numbers(times), rows.columns, truths, index)
