"""Rows of one stream on their way to a task: columns, and per row a mask of the state tables that it is for.

A row is sent at most once to a task, however many of its tables need it (decision 0009). The purposes of a row in a
table are *marks*, a bit each, so that one task may store the row, another probe with it, and all see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, types

from penstock.columns.hash import Ints, is_text

# The task stores the row; probes with it; sees it as a row that all tasks have, or those that share its bucket.
STORED, PROBING, SEEN = range(3)
MARKS = 3
ABOUT = b"about"  # key in the metadata of a table
MOST_BYTES = 64 << 20  # of a parcel, which is one row of the exchange

Masks = npt.NDArray[np.uint64]
Tasks = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Turns:
    """Rows of split buckets (`state.buckets`): by table and row the task that probes with it, and whose tasks see it.

    `splits` are numbers of splits, -1 for rows that only the two tasks get; `members` by split the tasks with turns.
    """

    probers: Tasks
    splits: Tasks
    members: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Rows of a stream at one task: columns by name, with `_ts`, and masks with marks for each table of the stream."""

    stream: str
    columns: Mapping[str, pa.Array]
    masks: Masks

    @property
    def nbytes(self) -> int:
        return int(sum(column.nbytes for column in self.columns.values()) + self.masks.nbytes)

    def marked(self, table: int, mark: int) -> Ints:
        """The places of the rows with a mark for a table, numbered within the stream."""
        word, bit = divmod(MARKS * table + mark, 64)
        return np.flatnonzero(self.masks[:, word] & np.uint64(1 << bit))


def words_for(tables: int) -> int:
    """How many 64-bit words a mask for that many tables has."""
    return -(-MARKS * tables // 64)


def place(
    owners: Tasks, everywhere: Sequence[bool], tasks: int, turns: Turns | None = None
) -> list[tuple[Ints, Masks]]:
    """For each task the places of its rows, ascending, and their masks.

    `owners[table]` is the task that stores each row in a table, -1 for rows that the table does not need; it probes
    with them too, unless other tasks take `turns`. All tasks see the rows of tables that are `everywhere`.
    """
    everyone = np.array(everywhere, dtype=np.bool_)
    counts = np.zeros(tasks, dtype=np.int64)
    none = np.zeros(0, dtype=np.int64), np.zeros((0, words_for(len(owners))), dtype=np.uint64)
    nobody = np.zeros((0, 0), dtype=np.int32)
    shared = (nobody, nobody, np.zeros((0, 0), dtype=np.bool_))
    if turns is not None:
        shared = (turns.probers, turns.splits, turns.members)
    _place(owners, everyone, *shared, counts, *none)
    index, masks = np.empty(counts.sum(), dtype=np.int64), np.zeros((counts.sum(), none[1].shape[1]), dtype=np.uint64)
    _place(owners, everyone, *shared, counts, index, masks)
    ends = np.cumsum(counts)[:-1]
    return list(zip(np.split(index, ends), np.split(masks, ends), strict=True))


@njit(
    types.void(
        types.Array(types.int32, 2, "C"), types.Array(types.bool_, 1, "C"), types.Array(types.int32, 2, "C"),
        types.Array(types.int32, 2, "C"), types.Array(types.bool_, 2, "C"), types.Array(types.int64, 1, "C"),
        types.Array(types.int64, 1, "C"), types.Array(types.uint64, 2, "C"),
    ), cache=True, nogil=True,
)  # fmt: skip
def _place(owners, everywhere, probers, splits, members, counts, index, masks):  # type: ignore[no-untyped-def]
    """Count the rows of each task if `index` is empty; else fill `index` and `masks`, with room for `counts` rows."""
    tables, rows = owners.shape
    tasks = len(counts)
    counting = len(index) == 0
    shared = len(probers) > 0
    last = np.full(tasks, -1, dtype=np.int64)  # the last row assigned to the task
    cursor = np.zeros(tasks, dtype=np.int64)
    if not counting:
        for task in range(1, tasks):
            cursor[task] = cursor[task - 1] + counts[task - 1]
    for row in range(rows):
        for table in range(tables):
            owner = owners[table, row]
            if owner < 0:
                continue
            prober, split = owner, -1
            if shared:
                prober, split = probers[table, row], splits[table, row]
            first, stop = owner, owner + 1
            if everywhere[table] or prober != owner or split >= 0:
                first, stop = 0, tasks
            for task in range(first, stop):
                seen = everywhere[table] or (split >= 0 and task != owner and members[split, task])
                if not (seen or task in (owner, prober)):
                    continue
                if last[task] != row:
                    last[task] = row
                    if counting:
                        counts[task] += 1
                    else:
                        index[cursor[task]] = row
                        cursor[task] += 1
                if not counting:
                    at = cursor[task] - 1
                    if task == owner:
                        bit = MARKS * table + STORED
                        masks[at, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
                    if task == prober:
                        bit = MARKS * table + PROBING
                        masks[at, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
                    if seen:
                        bit = MARKS * table + SEEN
                        masks[at, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)


def portions(
    columns: Mapping[str, pa.Array], index: Ints, masks: Masks, largest: int | None = None
) -> Iterator[tuple[Ints, Masks]]:
    """The places and masks of rows in pieces near the size limit of a parcel; `columns` are of all rows."""
    rows = len(next(iter(columns.values())))
    size = sum(column.nbytes for column in columns.values()) / max(1, rows) + 8 * masks.shape[1]
    most = max(1, int((largest or MOST_BYTES) / size))
    for start in range(0, len(index), most):
        yield index[start : start + most], masks[start : start + most]


def gathered(
    columns: Mapping[str, pa.Array], users: Mapping[str, Sequence[int]], index: Ints, masks: Masks
) -> dict[str, pa.Array]:
    """The columns at those places, without values that no table there needs; `users` are the tables that need a column.

    Unneeded texts are dropped row by row, other columns only if no row is needed.
    """
    found = {}
    whole = pa.array(index)
    for name, column in columns.items():
        if name not in users:
            found[name] = _at(column, whole)
            continue
        needed = np.zeros(masks.shape[1], dtype=np.uint64)
        for table in users[name]:
            for mark in range(MARKS):
                word, bit = divmod(MARKS * table + mark, 64)
                needed[word] |= np.uint64(1 << bit)
        wanted = (masks & needed).any(axis=1)
        if wanted.any():
            partly = is_text(column.type) and not wanted.all()
            found[name] = column.take(pa.array(index, mask=~wanted)) if partly else _at(column, whole)
    return found


def _at(column: pa.Array, places: pa.Array) -> pa.Array:
    """The values at these ascending places."""
    return column if len(places) == len(column) else column.take(places)


def pack(rows: Rows, largest: int | None = None) -> Iterator[pa.Buffer]:
    """The rows as Arrow streams of bounded size."""
    columns = {
        **rows.columns,
        **{f"_m{word}": pa.array(rows.masks[:, word].copy()) for word in range(rows.masks.shape[1])},
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    yield from _streams(batch.replace_schema_metadata({"stream": rows.stream}), largest or MOST_BYTES)


def _streams(batch: pa.RecordBatch, largest: int) -> Iterator[pa.Buffer]:
    if batch.nbytes > largest and len(batch) > 1:
        half = len(batch) // 2
        yield from _streams(batch.slice(0, half), largest)
        yield from _streams(batch.slice(half), largest)
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    yield sink.getvalue()


def unpack(parcel: pa.Buffer) -> Rows:
    """The rows of a parcel, as views of its bytes."""
    table = pa.ipc.open_stream(parcel).read_all()
    stream = table.schema.metadata[b"stream"].decode()
    columns = {name: one_array(table.column(name)) for name in table.column_names}
    words = [columns.pop(name).to_numpy() for name in table.column_names if name.startswith("_m")]
    return Rows(stream, columns, np.column_stack(words))


def pack_table(table: pa.Table, about: Mapping[str, int], largest: int | None = None) -> Iterator[pa.Buffer]:
    """A table as Arrow streams of bounded size, each with `about` in its metadata."""
    if len(table):
        (batch,) = table.combine_chunks().to_batches()
        described = batch.replace_schema_metadata({**(table.schema.metadata or {}), ABOUT: json.dumps(about)})
        yield from _streams(described, largest or MOST_BYTES)


def unpack_table(parcel: pa.Buffer) -> tuple[pa.Table, dict[str, int]]:
    """The table of a parcel, as views of its bytes, and its `about`."""
    table = pa.ipc.open_stream(parcel).read_all()
    metadata = dict(table.schema.metadata)
    about = json.loads(metadata.pop(ABOUT))
    return table.replace_schema_metadata(metadata or None), about


def unite(pieces: Iterable[Rows]) -> dict[str, Rows]:
    """The rows of each stream as one, with NULLs in columns that some pieces lack because no table needs them there."""
    by_stream: dict[str, list[Rows]] = {}
    for piece in pieces:
        by_stream.setdefault(piece.stream, []).append(piece)
    found = {}
    for stream, own in by_stream.items():
        if len(own) == 1:
            found[stream] = own[0]
            continue
        whole = pa.concat_tables([pa.table(dict(rows.columns)) for rows in own], promote_options="default")
        columns = {name: one_array(whole.column(name)) for name in whole.column_names}
        found[stream] = Rows(stream, columns, np.concatenate([rows.masks for rows in own]))
    return found


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
