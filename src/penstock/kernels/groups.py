"""Progress by group, for consumers that work on columns: window aggregates that close a group early, purge of join state.

What closes a group is remembered in `Progress.closed`; here it is only looked up, for many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.delta import alive
from penstock.kernels.hash import hash_bigint
from penstock.model import Range, Ref, Stream
from penstock.model.punctuation import Value
from penstock.model.time import FOREVER
from penstock.planner.network import Network, StateTable
from penstock.state.manifest import Progress
from penstock.state.progress import closed_groups
from penstock.state.run import Ints, Rows

Closed = tuple[
    tuple[int, tuple[tuple[str, int], ...]], ...
]  # key hash -> streams with how far that key of theirs has come


def group_bounds(stream: Stream, progress: Progress, columns: Mapping[str, pa.Array], rows: int) -> Ints:
    """For each of `rows` groups, given by columns of the stream: no later row of the group has a time below this.

    A punctuation counts for a group only if it names no other columns, since only then every row of the group matches it.
    """
    found = np.full(rows, progress.value, dtype=np.int64)
    for punctuation in closed_groups(stream, progress):
        if any(column not in columns for column, _ in punctuation.patterns):
            continue
        covered = np.ones(rows, dtype=np.bool_)
        for column, pattern in punctuation.patterns:
            covered &= _matching(pattern, columns[column])
        until = FOREVER if punctuation.until is None else punctuation.until
        found[covered] = np.maximum(found[covered], until)
    return found


def closed_keys(network: Network, progress: Mapping[str, Progress]) -> dict[int, Closed]:
    """For each state table the keys for which other streams are further than as a whole.

    Only where it is certain which rows of another stream a row can meet: all joins of the table have one key, a BIGINT column on
    every side, and the punctuation fixes just that column. Its hash is one-to-one, so no other key is mistaken for it.
    """
    ahead = {name: own for name, own in progress.items() if own.closed and name in network.streams}
    found = {}
    for table in network.tables if ahead else ():
        keys: dict[int, dict[str, int]] = {}
        for name, column in _met_by(network, table).items():
            for punctuation in closed_groups(network.streams[name], ahead[name]) if name in ahead else ():
                ((fixed, value), *more) = punctuation.patterns
                if fixed == column and not more and isinstance(value, int):
                    key = int(hash_bigint(np.array([value], dtype=np.int64))[0])
                    until = FOREVER if punctuation.until is None else punctuation.until
                    keys.setdefault(key, {})[name] = until
        if keys:
            found[table.index] = tuple((key, tuple(streams.items())) for key, streams in sorted(keys.items()))
    return found


def _met_by(network: Network, table: StateTable) -> dict[str, str]:
    """The streams that rows of a table are joined with, each with the column that equals the table's key."""
    if table.grouped:
        return {}
    columns: dict[str, set[str | None]] = {}
    for number in {entry.join for entry in table.entries}:
        join = network.joins[number]
        if len(join.classes) != 1 or len(join.classes[0].positions) != len(join.tables):
            return {}
        for index in join.classes[0].positions.values():
            other = network.tables[index]
            columns.setdefault(other.stream, set()).add(_key_column(other))
    if any(None in own for own in columns.values()):
        return {}
    return {name: str(next(iter(own))) for name, own in columns.items() if len(own) == 1}


def _key_column(table: StateTable) -> str | None:
    """The BIGINT column that is a table's whole key."""
    bare = table.key[0][0] if len(table.key) == 1 and len(table.key[0]) == 1 else None
    return bare.column if isinstance(bare, Ref) and table.key_types == ("bigint",) else None


def alive_by_key(table: StateTable, rows: Rows, progress: Mapping[str, int], closed: Closed) -> npt.NDArray[np.bool_]:
    """Rows that some query can still use, given how far other streams have come, as a whole and for single keys."""
    keep = alive(table, rows, progress)
    for key, ahead in closed:
        start, stop = (int(np.searchsorted(rows.key, key, side=side)) for side in ("left", "right"))
        if start < stop:
            part = Rows(rows.key[start:stop], rows.time[start:stop], rows.bits[start:stop], rows.patterns, {})
            keep[start:stop] = alive(table, part, {**progress, **dict(ahead)})
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
