"""Result rows of a join: in its result table for all queries, and in its own files as one query's select list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.terms.evaluation import Evaluation
from penstock.kernels.matches import Matches, lookup
from penstock.kernels.probe import Words
from penstock.kernels.walk import Work
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.memory import Limits
from penstock.planner.join import Join, Member, result_column
from penstock.planner.listed import bare
from penstock.planner.network import Network
from penstock.results.layout import OWN, computed_column
from penstock.state.result_files import ResultFile
from penstock.state.run import Ints
from penstock.state.suspension import Suspension
from penstock.step.bound import Bound
from penstock.step.rows import RowFile, relieve
from penstock.storage.store import Store

Schemas = Mapping[int, pa.Schema]  # by query, for those with files of their own


@dataclass
class ResultWriter:
    """Writes the result rows of one join: to their own files for queries that have them, all others to one file."""

    network: Network
    join: Join
    store: Store
    step: int
    schemas: Schemas
    bound: Bound = field(default_factory=Bound)
    limits: Limits | None = None
    refused: dict[int, Suspension] = field(default_factory=dict)  # queries with too many results in this task, and why
    _own: dict[int, RowFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.join.leads), dtype=np.int64)
        self.listed = [m for m in self.join.members if m.listed]
        self.others = [m for m in self.join.members if not m.listed]
        encoded = [f"_bits{word}" for word in range(-(-len(self.join.leads) // 64))]
        self._shared = RowFile(self.store, self.step, ("_step", *encoded))

    def write(self, table: pa.Table, bits: Words) -> None:
        """Add rows in the form of the result table, with the bits of the queries that they serve."""
        times = table.column("_time").combine_chunks().to_numpy()
        for member in self.join.leads:
            self.counts[member.bit] += int(has_bit(bits, member.bit).sum())
        self._refuse()
        for member in self.listed:
            mine = has_bit(bits, member.bit)
            if mine.any() and member.id not in self.refused:
                rows = table if mine.all() else table.filter(pa.array(mine))
                own = self._own.setdefault(member.id, RowFile(self.store, self.step))
                own.add(own_rows(self.network, self.join, member, rows, self.schemas[member.id]), times[mine])
        if self.listed or self.refused:
            table, times = self._left(table, bits, times)
        if len(table):
            self._shared.add(table, times)
        if self.limits is not None:
            relieve([self._shared, *self._own.values()], self.limits.work)

    @property
    def is_full(self) -> bool:
        """Whether no query of the join accepts more."""
        return len(self.refused) == len(self.join.members)

    def _refuse(self) -> None:
        """Drop queries with more results than allowed."""
        for member in self.join.members:
            own = self._own.get(member.id)
            size = own.bytes if own is not None else 0 if member.listed else self._shared.share(self.counts[member.bit])
            why = self.bound.passed(int(self.counts[member.bit]), size)
            if why is not None and member.id not in self.refused:
                self.refused[member.id] = why
                if own is not None:
                    self._own.pop(member.id).abandon()

    def _left(self, table: pa.Table, bits: Words, times: Ints) -> tuple[pa.Table, Ints]:
        """The result table's rows for queries without files of their own."""
        wanted = np.zeros(bits.shape[1], dtype=np.uint64)
        for member in (m for m in self.others if m.id not in self.refused):
            wanted[member.bit // 64] |= np.uint64(1 << member.bit % 64)
        kept = bits & wanted
        alive = np.asarray(kept.any(axis=1))
        table = table.select(self._columns(table.column_names))
        for word in range(bits.shape[1]):
            place = table.schema.get_field_index(f"_bits{word}")
            table = table.set_column(place, f"_bits{word}", pa.array(kept[:, word].copy().view(np.int64)))
        return (table, times) if alive.all() else (table.filter(pa.array(alive)), times[alive])

    def _columns(self, names: list[str]) -> list[str]:
        """The columns of the result table that some query reads."""
        read = {computed_column(m.id, item) for m in self.others for item, _ in m.computed}
        for member in self.others:
            for position, columns in enumerate(self.join.columns):
                stream = self.network.streams[self.network.tables[self.join.tables[position]].stream]
                read |= {result_column(position, stream, name) for name in columns if name in member.reads[position]}
        return [name for name in names if name in read or name.startswith("_")]

    def close(self) -> Iterator[ResultFile]:
        """End the files."""
        self._refuse()
        name, version = self.join.name, self.network.version
        if self._shared.close():
            counts = [
                (m.id, int(self.counts[m.bit])) for m in self.others if self.counts[m.bit] and m.id not in self.refused
            ]
            yield self._shared.file(name, version, counts, self.join.kind)
        for query, own in self._own.items():
            if own.close():
                yield own.file(name, version, [(query, own.rows)], OWN)


def has_bit(bits: Words, bit: int) -> npt.NDArray[np.bool_]:
    return np.asarray((bits[:, bit // 64] >> np.uint64(bit % 64)) & np.uint64(1) == 1)


def result_table(
    network: Network,
    join: Join,
    matches: Matches,
    types: Mapping[str, Mapping[str, pa.DataType]],
    work: Work,
    step: int,
) -> pa.Table:
    """Result rows in the form of the result table: result time, bits, the columns of each position, computed items."""
    columns: dict[str, pa.Array] = {
        "_time": pa.array(matches.result_time),
        "_step": pa.array(np.full(len(matches), step, dtype=np.int64)),
    }
    for word in range(matches.bits.shape[1]):
        columns[f"_bits{word}"] = pa.array(matches.bits[:, word].view(np.int64))
    for position, names in enumerate(join.columns):
        stream = network.streams[network.tables[join.tables[position]].stream]
        for name in names:
            kind = types[stream.name][name]
            found = matches.column(position, name, kind if name == stream.event_time else None)
            # A run older than the column gives untyped NULLs.
            columns[result_column(position, stream, name)] = found.cast(kind) if pa.types.is_null(found.type) else found
    if not join.finished_by_spark:
        for member in join.members:
            columns |= _computed(network, join, member, matches, work)
    return pa.table(columns)


def _computed(network: Network, join: Join, member: Member, matches: Matches, work: Work) -> dict[str, pa.Array]:
    """The items of a query that may raise, over the rows that serve it."""
    if not member.computed:
        return {}
    index = np.flatnonzero(has_bit(matches.bits, member.bit))
    mostly = 2 * len(index) > len(matches)
    some = index if len(index) else np.zeros(1, dtype=np.int64)  # one row determines the type
    rows = matches if mostly else matches.take(some)
    evaluation, columns = Evaluation(lookup(network, join, rows), len(rows)), {}
    for item, expression in member.computed:
        assert expression.term is not None
        found, raised = evaluation.values(expression.term)
        columns[computed_column(member.id, item)] = found if mostly else _spread(found, index, len(matches))
        work.errors[member.id] += int((raised & has_bit(rows.bits, member.bit)).sum())
    return columns


def _spread(values: pa.Array, index: npt.NDArray[np.int64], rows: int) -> pa.Array:
    """Values at those places of a column, NULL elsewhere."""
    place = np.full(rows, -1, dtype=np.int64)
    place[index] = np.arange(len(index))
    return values.take(pa.array(place, mask=place < 0))


def own_rows(network: Network, join: Join, member: Member, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The select list of a query, over rows of the result table and its computed items."""
    computed = {item for item, _ in member.computed}
    found = []
    for item, (expression, wanted) in enumerate(zip(member.listed, schema, strict=True)):
        ref = bare(expression)
        if ref is None or item in computed:
            name = computed_column(member.id, item)
        elif ref.role == PSEUDO_ROLE:
            name = "_time"
        else:
            stream = network.streams[network.tables[join.tables[ref.role]].stream]
            name = result_column(ref.role, stream, ref.column)
        found.append(rows.column(name).cast(wanted.type))
    return pa.table(found, schema=schema)
