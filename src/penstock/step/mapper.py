"""The first half of a step: verdicts, key hashes, and the tasks of each row, over whole Arrow columns.

A mapper takes rows from a source and sends each at most once to every task that needs it (decision 0009); a row that
serves no query is only counted. Late and invalid rows are written here, and so are the results of queries that need
only single rows. What it writes and counts matters only if its report reaches the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from penstock.columns import verdict as verdicts
from penstock.columns.hash import Ints, hash_columns, is_hashable, whole_numbers
from penstock.columns.parcels import Rows, Tasks, Turns, gathered, place, portions
from penstock.columns.terms.evaluation import Evaluation
from penstock.columns.verdict import ACCEPTED, PUNCTUATION, SIDES, Verdicts, judge, reasons, rows_of
from penstock.kernels.delta import wanted_bits
from penstock.kernels.groups import group_bounds
from penstock.kernels.probe import Words, to_words
from penstock.model import Ref, Stream
from penstock.model.memory import Limits
from penstock.model.punctuation import part_of
from penstock.model.time import NEVER
from penstock.planner.counters import StreamCounters, TableCounters
from penstock.planner.folding import foldable_tables
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.rollup import Rollup, is_cut_alike, rollup_of
from penstock.planner.state_table import StateTable, key_column
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate
from penstock.state.buckets import BucketMap
from penstock.state.manifest import Patterns, Progress
from penstock.state.progress import Seen, together
from penstock.step.answers import Answers
from penstock.step.bound import Bound
from penstock.step.folding import Folder, Partials
from penstock.step.keys import Valid, key_columns, keys_of
from penstock.step.pieces import Piece, Text, Types, Unreadable
from penstock.step.report import Report, Watch
from penstock.step.results import Schemas
from penstock.step.sides import write_side
from penstock.storage.store import Store

TRUTHS_PER_WORD = 30  # two bits each: true, raised
FEW_ROLES, SAMPLE_EVERY = 64, 16  # a table with more roles than a few counts its rows by role only in some steps

Truths = Mapping[str, tuple[int, int]]  # computed predicate -> (word, shift)


@dataclass(frozen=True)
class Asked:
    """A step's request to its mappers. `closed`: punctuations of groups ahead of their stream; rows below are late."""

    step: int
    buckets: BucketMap
    store: Store
    progress: Reached
    replicated: frozenset[int] = frozenset()  # tables whose rows every task sees
    shared: frozenset[int] = frozenset()  # and those of whose split buckets all tasks with turns see the rows
    suspended: frozenset[int] = frozenset()
    closed: Mapping[str, Patterns] = field(default_factory=dict)
    bound: Bound = field(default_factory=Bound)
    panes: Mapping[int, int] = field(default_factory=dict)  # query -> start of the panes that are not results yet
    folded: frozenset[int] = frozenset()  # aggregates of whose rows partials are sent
    rolled: Mapping[int, int] = field(default_factory=dict)  # those whose partials are made of another one's, and whose
    limits: Limits | None = None  # of memory

    @property
    def parcel(self) -> int | None:
        """The bytes of a parcel, if they are limited to less than usual; a single row may be larger."""
        return None if self.limits is None else self.limits.parcel


@dataclass
class Mapper:
    """`names` = stream -> declared column -> exchange column. With `only` it is that task's mapper, over all rows.

    Rows of aggregates that are `folded` are sent as partials, see `partials`; a task folds the rows that it maps
    itself.
    """

    network: Network
    names: Mapping[str, Mapping[str, str]]
    truths: Truths
    asked: Asked
    only: int | None = None
    listed: Schemas = field(default_factory=dict)
    account: Report = field(default_factory=Report)
    _seen: dict[str, list[Seen]] = field(default_factory=dict)
    # By table: rows that are sent, or gathered to be sent.
    _exchanged: Counter[int] = field(default_factory=Counter)
    _folders: dict[int, Folder] = field(default_factory=dict)
    _foldable: Mapping[int, tuple[WindowAggregate, AggregateSource]] = field(init=False)
    _rollups: Mapping[int, tuple[int, Rollup]] = field(init=False)  # by state table: that of the other one
    _watch: Watch = field(init=False)
    _ends: Mapping[str, str] = field(init=False)  # stream -> the column with the last times at which its rows count

    def __post_init__(self) -> None:
        self._watch = Watch(self.account.mapping)
        self._ends = {d.name: d.ticks.column.last for d in self.network.derived_streams if d.ticks is not None}
        self._foldable = foldable_tables(self.network) if self.only is None else {}
        self._rollups = self._rolled() if self.only is None else {}
        asked = self.asked
        self.answers = Answers(self.network, asked.store, asked.step, self.listed, asked.bound, asked.limits)

    def read(self, piece: Piece, types: Types) -> Iterator[tuple[int, Rows]]:
        """The rows of a piece, as (task, rows). If Spark must read it, the report says so, and the step is repeated."""
        try:
            for columns, text in piece.read(self.network, types, self.asked.limits):
                yield from self.map_stream(piece.stream, columns, text)
        except Unreadable as reason:
            self.account.unreadable[piece.stream] = str(reason)

    def take(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Rows]]:
        """Rows of any streams, as (task, rows); `_stream` is the number of a row's stream, `_side` its text."""
        tags = batch.column("_stream").to_numpy()
        for tag, name in enumerate(self.names):
            index = np.flatnonzero(tags == tag)
            if len(index) == 0:
                continue
            if index[-1] - index[0] + 1 == len(index):  # contiguous, as in most batches
                own = batch.slice(index[0], len(index))
            else:
                own = batch.take(pa.array(index))
            columns = {f.name: in_utc(own.column(i)) for i, f in enumerate(own.schema)}
            columns |= {declared: columns[slot] for declared, slot in self.names[name].items() if slot in columns}
            yield from self.map_stream(name, columns, partial(_text_of, columns))

    def map_stream(self, name: str, columns: Mapping[str, pa.Array], text: Text) -> Iterator[tuple[int, Rows]]:
        """Rows of one stream, by declared column, with `_ts`, and Spark's computed columns under their own names."""
        self._watch.lap("read")
        stream, tables = self.network.streams[name], self.network.tables_of(name)
        times = columns["_ts"]
        found = self._judge(stream, columns)
        if self.only in (None, 0):
            self._admit(stream, found, columns, text)
        accepted = found == ACCEPTED
        self._watch.lap("judge")
        if not accepted.any():
            return
        columns = self._computed(stream, columns)
        self._watch.lap("compute")
        keys, owned = self._keys(tables, columns), np.empty((len(tables), len(times)), dtype=np.int32)
        self._watch.lap("hash")
        for number, table in enumerate(tables):
            truths = self._truths(table, columns, accepted)
            bits = wanted_bits(table, keys[table.name][1], columns, truths)
            wanted = accepted & bits.any(axis=1)
            owned[number] = np.where(wanted, self.asked.buckets.owners(keys[table.name][0]), -1)
            self._count(table, int(accepted.sum()), 0 if table.mapped else int(wanted.sum()))
            if table.mapped:
                self._answer(table, columns, bits, wanted if self.only is None else owned[number] == self.only)
                owned[number] = -1
            if table.index in self._foldable:
                self._exchanged[table.index] += int(wanted.sum())
                if self._foldable[table.index][0].index in self.asked.folded:
                    self._watch.lap("place")
                    folder = self._folder(table)
                    if table.index in self._rollups:
                        folder.folded += int(wanted.sum())
                    else:
                        folder.add(bits, keys[table.name][0], columns, np.flatnonzero(wanted))
                    owned[number] = -1
                    self._watch.lap("fold")
        sent, users = _sent(tables, columns, keys, self.truths)
        everywhere = [t.index in self.asked.replicated for t in tables]
        placed = place(owned, everywhere, self.asked.buckets.tasks, self._turns(tables, owned, keys, sent))
        self._watch.lap("place")
        for task, (index, masks) in enumerate(placed):
            if len(index) and self.only == task:
                yield task, Rows(name, gathered(sent, users, index, masks), masks)
            elif self.only is None:
                for part, own in portions(sent, index, masks, self.asked.parcel):
                    yield task, Rows(name, gathered(sent, users, part, own), own)
        self._watch.lap("pack")

    def _turns(
        self,
        tables: tuple[StateTable, ...],
        owned: Tasks,
        keys: Mapping[str, tuple[Ints, Valid]],
        sent: Mapping[str, pa.Array],
    ) -> Turns | None:
        """Which tasks probe with rows of split buckets; None if there are none. It depends on the row alone."""
        buckets = self.asked.buckets
        if not buckets.splits:
            return None
        probers, splits = owned.copy(), np.full_like(owned, -1)
        for number, table in enumerate(tables):
            if not table.key or table.grouped or table.mapped:
                continue  # nothing probes with its rows by a key
            of_rows = np.where(owned[number] >= 0, buckets.split_of(keys[table.name][0]), -1)
            places = np.flatnonzero(of_rows >= 0)
            if len(places):
                mixed = _mixed(sent, places)
                probers[number, places] = buckets.whose_turn(of_rows[places], mixed)
                if table.index in self.asked.shared:
                    splits[number, places] = of_rows[places]
        return Turns(probers, splits, buckets.probing)

    def partials(self, *, rest: bool) -> Iterator[tuple[int, Partials]]:
        """Partials of rows, as (task, partials): the `rest` of them after all rows, else what cannot wait."""
        self._watch.lap("read")
        for folder in self._folders.values():
            yield from folder.rest() if rest else folder.full()
        if self._folders:
            self._watch.lap("fold")

    def _folder(self, table: StateTable) -> Folder:
        if table.index not in self._folders:
            aggregate, source = self._foldable[table.index]
            cuts = {m.id: self.asked.panes[m.id] for m in aggregate.members if m.id in self.asked.panes}
            found = Folder(aggregate, source, table, cuts, self.asked.buckets, self.asked.limits)
            if table.index in self._rollups:
                other, rollup = self._rollups[table.index]
                self._folder(self.network.tables[other]).rolls_up_to(found, rollup)  # which comes before this one
            self._folders[table.index] = found
        return self._folders[table.index]

    def _rolled(self) -> dict[int, tuple[int, Rollup]]:
        found = {}
        for index, other in self.asked.rolled.items():
            coarse, fine = self.network.aggregates[index], self.network.aggregates[other]
            rollup = rollup_of(self.network, coarse, fine)
            if not {index, other} <= self.asked.folded or isinstance(rollup, str):
                continue
            if is_cut_alike(rollup, coarse, fine, self.asked.panes):
                found[coarse.home] = fine.home, rollup
        return found

    def _computed(self, stream: Stream, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """The columns with the values that are computed here, and the words of truths with the bits of those."""
        mine = [d for d in self.network.derived if d.stream == stream.name and d.term is not None]
        truths = {name for table in self.network.tables_of(stream.name) for name, _ in table.truths}
        stored = wanted(self.network, stream)
        evaluation, found = Evaluation(lambda ref: columns[ref.column], len(columns["_ts"])), dict(columns)
        words: dict[int, Ints] = {}
        for value in mine:
            assert value.term is not None
            if value.name in stored:
                found[value.name] = evaluation.values(value.term)[0]
            if value.name in truths:
                true, raised = evaluation.holds(value.term)
                word, shift = self.truths[value.name]
                bits = true.astype(np.int64) << shift | raised.astype(np.int64) << (shift + 1)
                words[word] = words[word] | bits if word in words else bits
        for word, bits in words.items():
            brought_too = found.get(f"_t{word}")
            found[f"_t{word}"] = pa.array(bits if brought_too is None else bits | whole_numbers(brought_too))
        return found

    def told(self) -> Report:
        """The report on all rows. If every task maps all rows, only the first reports more than its results."""
        if self.only not in (None, 0):
            self.account = Report(unreadable=self.account.unreadable, mapping=self.account.mapping)
            self._seen = {}
        self.answers.tell(self.account)
        for index, rows in self._exchanged.items():
            if rows:
                self.account.table(self.network.tables[index].name).add(TableCounters(exchanged=rows, mappers=1))
        for index, folder in self._folders.items():
            if not folder.folded:
                continue
            counts = TableCounters(
                aggregated=folder.folded, folded=folder.folded, partials=folder.sent, rolled=folder.rolled
            )
            self.account.table(self.network.tables[index].name).add(counts)
            for query, count in folder.outside.items():
                self.account.query(query).outside += count
        for name, parts in self._seen.items():
            self.account.saw[name] = [together(parts, self.network.streams[name].delay_rows)]
        return self.account

    def _answer(self, table: StateTable, columns: Mapping[str, pa.Array], bits: Words, rows: Valid) -> None:
        """Write the results of these rows for the queries of a table."""
        asleep = [entry.query in self.asked.suspended for entry in table.entries]
        if any(asleep):
            awake = sum(1 << bit for bit, own in enumerate(asleep) if not own)
            bits = bits & np.array(to_words(awake, bits.shape[1]), dtype=np.uint64)
        raised = {name: truth_of(name, table, self.truths, columns)[1] for name in table.watched}
        if rows.any():
            self.answers.take(table, columns, bits, rows, raised)

    def _judge(self, stream: Stream, columns: Mapping[str, pa.Array]) -> Verdicts:
        times, bounds = columns["_ts"], None
        closed = self.asked.closed.get(stream.name, ())
        if closed:
            bounds = group_bounds(stream, Progress(NEVER, NEVER, closed=closed), columns, len(times))
        return judge(
            times, self.asked.progress.get(stream.name, NEVER), self.network.origins.get(stream.name, NEVER), bounds,
            columns["_mark"] if stream.punctuated else None, columns["_seq"] if stream.delay_rows is not None else None,
        )  # fmt: skip

    def _admit(self, stream: Stream, found: Verdicts, columns: Mapping[str, pa.Array], text: Text) -> None:
        """Count the stream's rows, collect what they say about its progress, and write late and invalid rows."""
        times = columns[self._ends.get(stream.name, "_ts")]
        said = verdicts.saw(stream, found, times, columns.get("_seq"), columns.get("_pattern"))
        self._seen.setdefault(stream.name, []).append(msgspec.convert(said, Seen))
        counts = StreamCounters(rows=len(found), accepted=len(rows_of(found, ACCEPTED)))
        if stream.punctuated:
            counts.punctuations = len(rows_of(found, PUNCTUATION))
        for reason, codes in SIDES.items():
            chosen = rows_of(found, *codes)
            counts.add(StreamCounters(late=len(chosen)) if reason == "late" else StreamCounters(bad=len(chosen)))
            policy = stream.late if reason == "late" else stream.bad
            if len(chosen) == 0 or policy == "drop":
                continue
            rows = text(chosen)
            if policy == "error":
                self.account.errors.setdefault(stream.name, f"{reason}: {rows[0].as_py()}")
            else:
                why = reasons(found[chosen], columns["_ts"].take(pa.array(chosen)))
                progress = self.asked.progress.get(stream.name, NEVER)
                entry = write_side(self.asked.store, self.asked.step, progress, stream.name, reason, rows, why)
                self.account.sides.append(entry)
        self.account.stream(stream.name).add(counts)

    def _count(self, table: StateTable, accepted: int, wanted: int) -> None:
        counts = self.account.table(table.name)
        counts.unwanted += accepted - wanted
        if is_sampled(table, self.asked.step):
            counts.sampled += accepted

    def _keys(self, tables: tuple[StateTable, ...], columns: Mapping[str, pa.Array]) -> dict[str, tuple[Ints, Valid]]:
        """The keys of all tables, shared by tables with the same key; none for rows that are only rolled up."""
        known: dict[object, tuple[Ints, Valid]] = {}
        found = {}
        for table in tables:
            if table.index in self._rollups:
                found[table.name] = _no_keys(len(columns["_ts"]))
                continue
            what = (key_columns(table), table.key_types, table.grouped)
            if what not in known:
                known[what] = keys_of(table, columns, columns["_ts"])
            found[table.name] = known[what]
        return found

    def _truths(self, table: StateTable, columns: Mapping[str, pa.Array], accepted: Valid) -> dict[str, Valid]:
        """Where each computed predicate is true; where one raised, the queries that need it have an error."""
        found = {}
        for name, entries in table.truths:
            true, raised = truth_of(name, table, self.truths, columns)
            found[name] = true
            if table.mapped and name in table.watched:
                continue  # counts where the row is a result
            errors = int((raised & accepted).sum())
            for entry in entries if errors else ():
                query = table.entries[entry].query
                if query not in self.asked.suspended:
                    self.account.query(query).errors += errors
        return found


def wanted(network: Network, stream: Stream) -> set[str]:
    """The columns that rows of a stream need for its tables: declared ones, and computed columns by their names."""
    needed = {c for t in network.tables_of(stream.name) for c in (*t.needed, *key_columns(t))}
    return needed - {column for t in network.tables_of(stream.name) for column, _ in t.others}


def brought(network: Network, stream: Stream) -> set[str]:
    """What the source must provide of a stream beside times: declared columns, and those that Spark computes."""
    needed = wanted(network, stream)
    truths = {name for t in network.tables_of(stream.name) for name, _ in t.truths}
    mine = {d.name: d for d in network.derived if d.stream == stream.name and d.term is not None}
    used = {ref.column for d in mine.values() if d.name in needed | truths for ref in d.parts if isinstance(ref, Ref)}
    parts = [part_of(stream, c.name) for c in stream.patterns]
    return (needed - mine.keys()) | (used - {"_ts"}) | {part[0] for part in parts if part is not None}


def truth_words(network: Network) -> dict[str, tuple[int, int]]:
    """Computed predicate -> (word, shift), whoever computes it; numbered per stream, so that streams share words."""
    places: dict[str, tuple[int, int]] = {}
    for stream in network.streams:
        names = dict.fromkeys(name for table in network.tables_of(stream) for name, _ in table.truths)
        for number, name in enumerate(names):
            places[name] = (number // TRUTHS_PER_WORD, 2 * (number % TRUTHS_PER_WORD))
    return places


def truth_of(name: str, table: StateTable, places: Truths, columns: Mapping[str, pa.Array]) -> tuple[Valid, Valid]:
    """(rows for which a computed predicate is true, rows on which it raised)."""
    word, shift = places[name]
    bits = whole_numbers(columns[f"_t{word}"]) >> shift  # NULL where other rows of a parcel needed none
    # Predicates that are only watched exclude no row.
    return np.ones(len(bits), dtype=np.bool_) if name in table.watched else bits & 1 == 1, bits & 2 == 2


def is_sampled(table: StateTable, step: int) -> bool:
    """Whether the rows of a table are counted by role in a step."""
    if table.stateless or table.grouped:
        return False
    return len(table.entries) <= FEW_ROLES or step % SAMPLE_EVERY == 0


def _no_keys(rows: int) -> tuple[Ints, Valid]:
    return np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=np.bool_)


def _mixed(columns: Mapping[str, pa.Array], places: Ints) -> Ints:
    """A hash of the rows at these places: of all that tasks need of them."""
    picked = pa.array(places)
    return hash_columns([own.take(picked) for own in columns.values() if is_hashable(own.type)], len(places))


def _text_of(columns: Mapping[str, pa.Array], places: Ints) -> pa.Array:
    return columns["_side"].take(pa.array(places))


def in_utc(column: pa.Array) -> pa.Array:
    """The same instants in UTC, so that runs of sessions with different time zones can be merged."""
    if pa.types.is_timestamp(column.type) and column.type.tz not in (None, "UTC"):
        return column.cast(pa.timestamp("us", tz="UTC"))
    return column


def _sent(
    tables: tuple[StateTable, ...],
    columns: Mapping[str, pa.Array],
    keys: Mapping[str, tuple[Ints, Valid]],
    places: Truths,
) -> tuple[dict[str, pa.Array], dict[str, list[int]]]:
    """The columns that tasks need, and the numbers of the tables that need each except the time."""
    sent, users = {"_ts": columns["_ts"]}, dict[str, list[int]]()
    by_name = {key_column(t.name): keys[t.name] for t in tables}
    for number, table in enumerate(tables):
        if table.mapped:
            continue
        hashed = [] if not table.key or table.plain_key else [key_column(table.name)]
        for name in (*table.needed, *hashed, *(f"_t{places[truth][0]}" for truth, _ in table.truths)):
            own = users.setdefault(name, [])
            if number not in own:
                own.append(number)
            if name not in sent:
                sent[name] = _as_column(*by_name[name]) if name in by_name else columns[name]
    return sent, users


def _as_column(keys: Ints, valid: Valid) -> pa.Array:
    return pa.array(keys) if valid.all() else pa.array(keys, mask=~valid)
