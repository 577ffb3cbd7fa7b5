"""Progress by group, over columns: for window aggregates that close a group early, and expiry of join state.

Punctuations are stored in `Progress.closed`; here they are only looked up, for many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import hash_bigint
from penstock.kernels.delta import alive
from penstock.model import Punctuation, Range, Ref, Stream
from penstock.model.punctuation import Value
from penstock.model.stream import INTEGER_TYPES
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Clock, Reached
from penstock.planner.state_table import StateTable
from penstock.state.manifest import Patterns, Progress
from penstock.state.progress import punctuations
from penstock.state.run import Ints, Rows

# Types of key parts whose equality with a punctuation's constant is the equality of keys.
_COMPARABLE = frozenset({"bigint", "string", "boolean"})


@dataclass(frozen=True)
class Met:
    """A stream joined with a state table, of which single keys have advanced beyond the stream's progress.

    `columns` = (column of the stream, number of the key part that equals it).
    """

    stream: Stream
    progress: Progress
    columns: tuple[tuple[str, int], ...]

    def bounds(self, table: StateTable, rows: Rows) -> Ints:
        """For each row of the table: the time below which no later row of the stream comes that could join it."""
        if table.verify:
            values = {column: rows.columns[table.verify[part]] for column, part in self.columns}
            return group_bounds(self.stream, self.progress, values, len(rows))
        found = np.full(len(rows), self.progress.value, dtype=np.int64)
        # The hash is one-to-one here, so that no key is mistaken for a closed one.
        known = _constants(self.stream, self.progress.closed).get((self.columns[0][0],))
        if known is not None and len(rows):
            keys = hash_bigint(np.array([value for (value,) in known.values], dtype=np.int64))
            order = np.argsort(keys)
            place = np.minimum(np.searchsorted(keys[order], rows.key), len(keys) - 1)
            until = known.until[order][place]
            met = keys[order][place] == rows.key
            found[met] = np.maximum(found[met], until[met])
        return found


Closed = tuple[Met, ...]


@dataclass(frozen=True)
class _Constants:
    """Punctuations that fix the same columns: their distinct constants, and the times below which no row comes."""

    values: tuple[tuple[Value, ...], ...]
    until: Ints

    def of(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """For each row, given by its columns: the time of the punctuation that it matches, or NEVER."""
        code, known = np.zeros(rows, dtype=np.int64), np.zeros(len(self.values), dtype=np.int64)
        inside = np.ones(rows, dtype=np.bool_)
        for column, values in zip(columns, zip(*self.values, strict=True), strict=True):
            number = {value: place for place, value in enumerate(dict.fromkeys(values))}
            index = pc.index_in(column, value_set=pa.array(list(number), type=column.type))
            inside &= np.asarray(pc.is_valid(index))
            mine = known * len(number) + np.array([number[value] for value in values], dtype=np.int64)
            theirs = code * len(number) + np.asarray(pc.fill_null(index, 0), dtype=np.int64)
            _, codes = np.unique(np.concatenate([mine, theirs]), return_inverse=True)  # keeps the codes small
            known, code = codes[: len(known)], codes[len(known) :]
        order = np.argsort(known)
        place = np.minimum(np.searchsorted(known[order], code), len(known) - 1)
        met = inside & (known[order][place] == code)
        return np.where(met, self.until[order][place], NEVER)


@lru_cache(maxsize=64)
def _constants(stream: Stream, closed: Patterns) -> Mapping[tuple[str, ...], _Constants]:
    """The punctuations that fix columns to constants, by these columns."""
    found: dict[tuple[str, ...], dict[tuple[Value, ...], int]] = {}
    for punctuation in punctuations(stream, closed):
        values = [value for _, value in punctuation.patterns if not isinstance(value, Range)]
        if len(values) == len(punctuation.patterns):
            own = found.setdefault(tuple(column for column, _ in punctuation.patterns), {})
            until = FOREVER if punctuation.until is None else punctuation.until
            own[tuple(values)] = max(until, own.get(tuple(values), NEVER))
    return {names: _Constants(tuple(own), np.array(list(own.values()), dtype=np.int64)) for names, own in found.items()}


@lru_cache(maxsize=64)
def _ranges(stream: Stream, closed: Patterns) -> tuple[Punctuation, ...]:
    """The punctuations that fix some column to a range."""
    said = punctuations(stream, closed)
    return tuple(p for p in said if any(isinstance(value, Range) for _, value in p.patterns))


def group_bounds(stream: Stream, progress: Progress, columns: Mapping[str, pa.Array], rows: int) -> Ints:
    """For each group, given by columns of the stream: the time below which no later row of the group comes.

    A punctuation counts for a group only if it names no other columns: only then does every row of the group match.
    """
    found = np.full(rows, progress.value, dtype=np.int64)
    for names, known in _constants(stream, progress.closed).items():
        if all(name in columns for name in names):
            np.maximum(found, known.of([columns[name] for name in names], rows), out=found)
    for punctuation in _ranges(stream, progress.closed):
        if any(column not in columns for column, _ in punctuation.patterns):
            continue
        covered = np.ones(rows, dtype=np.bool_)
        for column, pattern in punctuation.patterns:
            covered &= _matching(pattern, columns[column])
        until = FOREVER if punctuation.until is None else punctuation.until
        found[covered] = np.maximum(found[covered], until)
    return found


def closed_keys(network: Network, progress: Mapping[str, Progress]) -> dict[int, Closed]:
    """For each state table the streams of which single keys have advanced beyond the stream's progress.

    Only where the rows of the other stream that a row can join are known: all joins of the table have one key, and the
    punctuation fixes columns that are parts of it.
    """
    ahead = {name: own for name, own in progress.items() if own.closed and name in network.streams}
    found = {}
    for table in network.tables if ahead else ():
        met = []
        for name, columns in _met_by(network, table).items():
            if name in ahead and columns and _concerned(network.streams[name], ahead[name], table, dict(columns)):
                met.append(Met(network.streams[name], ahead[name], columns))
        if met:
            found[table.index] = tuple(met)
    return found


def _concerned(stream: Stream, progress: Progress, table: StateTable, columns: Mapping[str, int]) -> bool:
    """Whether a punctuation of the stream closes keys of the table; hashed keys cannot be matched with ranges."""
    return any(
        all(column in columns and (table.verify or isinstance(value, int)) for column, value in punctuation.patterns)
        for punctuation in punctuations(stream, progress.closed)
    )


def _met_by(network: Network, table: StateTable) -> dict[str, tuple[tuple[str, int], ...]]:
    """The streams joined with a table, each with its columns that equal parts of the table's key."""
    if table.grouped:
        return {}
    columns: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    for number in {entry.join for entry in table.entries}:
        join = network.joins[number]
        if len(join.classes) != 1 or len(join.classes[0].positions) != len(join.tables):
            return {}
        for index in join.classes[0].positions.values():
            other = network.tables[index]
            columns.setdefault(other.stream, set()).add(_key_columns(other, network.streams[other.stream]))
    return {name: next(iter(own)) for name, own in columns.items() if len(own) == 1}


def _key_columns(table: StateTable, stream: Stream) -> tuple[tuple[str, int], ...]:
    """The columns that are parts of a table's key, as they are or widened, with the numbers of the parts."""
    integers = {column.name for column in stream.columns if column.type in INTEGER_TYPES}
    found = []
    for number, (part, kind) in enumerate(zip(table.key, table.key_types, strict=True)):
        match part:
            case (Ref(_, column),) if kind in _COMPARABLE:
                found.append((column, number))
            case ("CAST(", Ref(_, column), " AS BIGINT)") if column in integers:
                found.append((column, number))
            case _:
                pass
    return tuple(found)


def alive_by_key(table: StateTable, rows: Rows, progress: Reached, closed: Closed) -> npt.NDArray[np.bool_]:
    """Rows that some query can still use, given the progress of other streams and of their single keys."""
    keep = alive(table, rows, progress)
    if not closed or not keep.any():
        return keep
    known = np.array([[progress.get(met.stream.name, NEVER)] for met in closed], dtype=np.int64)
    bounds = np.maximum(np.stack([met.bounds(table, rows) for met in closed]), known)
    further = keep & (bounds > known).any(axis=0)
    places = np.flatnonzero(further)
    if not len(places):
        return keep
    distinct, number = np.unique(bounds[:, places], axis=1, return_inverse=True)
    parts = np.split(places[np.argsort(number, kind="stable")], np.cumsum(np.bincount(number.ravel()))[:-1])
    for reached, own in zip(distinct.T, parts, strict=True):
        part = Rows(rows.key[own], rows.time[own], rows.bits[own], rows.patterns, {})
        ahead: dict[Clock, int] = {met.stream.name: int(value) for met, value in zip(closed, reached, strict=True)}
        keep[own] = alive(table, part, {**progress, **ahead})
    return keep


def _matching(pattern: Value | Range, column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if isinstance(pattern, Range):
        ends = [(pc.greater_equal, pattern.lower), (pc.less, pattern.upper)]
    else:
        ends = [(pc.equal, pattern)]
    truth = pc.is_valid(column)
    for test, end in ends:
        if end is not None:
            kind = column.type if pa.types.is_timestamp(column.type) else None
            truth = pc.and_(truth, pc.fill_null(test(column, pa.scalar(end, kind)), fill_value=False))
    return np.asarray(truth.to_numpy(zero_copy_only=False), dtype=np.bool_)
