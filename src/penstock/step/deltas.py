"""The deltas of all state tables at a task, made of one parcel of rows after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.columns.hash import whole_numbers
from penstock.columns.parcels import OWNED, SEEN, Rows, unite
from penstock.kernels.delta import Delta, build_delta
from penstock.kernels.merge import merge_deltas
from penstock.planner.network import Network, StateTable
from penstock.state.run import Ints
from penstock.step.keys import received_keys
from penstock.step.mapper import Truths, truth_of

# Rows of small parcels are sorted together: measured with sixteen parcels of 600 rows, merging the delta of each takes twice as long; from 1 MB a
# parcel on it makes no difference.
GATHERED_BYTES = 4 << 20


@dataclass
class Deltas:
    """Holds at most one parcel, or small ones of `GATHERED_BYTES`, and of all others what tables store of them."""

    network: Network
    truths: Truths
    _small: list[Rows] = field(default_factory=list)
    _bytes: int = 0
    _made: tuple[dict[int, list[Delta]], dict[int, list[Delta]]] = field(default_factory=lambda: ({}, {}))

    def take(self, parcel: Rows) -> None:
        if self._bytes + parcel.nbytes > GATHERED_BYTES:
            self._build()
        self._small.append(parcel)
        self._bytes += parcel.nbytes
        if self._bytes > GATHERED_BYTES:
            self._build()

    def whole(self) -> tuple[dict[int, Delta], dict[int, Delta]]:
        """By table the delta of the rows that this task owns, and that of all rows where every task has them."""
        self._build()
        owned, seen = (
            {index: merge_deltas(self.network.tables[index], deltas) for index, deltas in made.items()}
            for made in self._made
        )
        return owned, seen

    def _build(self) -> None:
        small, self._small, self._bytes = self._small, [], 0
        for rows in unite(small).values():
            for number, table in enumerate(self.network.tables_of(rows.stream)):
                for mark, made in zip((OWNED, SEEN), self._made, strict=True):
                    index = rows.marked(number, mark)
                    if len(index):
                        made.setdefault(table.index, []).append(self._delta(table, rows, index))

    def _delta(self, table: StateTable, rows: Rows, index: Ints) -> Delta:
        times = rows.columns["_ts"]
        keys, has_key = received_keys(table, rows.columns, times)
        truths = {name: truth_of(name, table, self.truths, rows.columns)[0] for name, _ in table.truths}
        return build_delta(table, keys, has_key, whole_numbers(times), rows.columns, truths, index)
