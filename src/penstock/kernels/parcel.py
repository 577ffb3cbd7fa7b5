"""Composites as bytes for an exchange: a parcel holds many (decision 0011).

A parcel carries of each joined row only what is still needed: columns of results and conditions, keys of later lookups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.hash import hash_bigint
from penstock.kernels.matches import Matches, gather
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.routes import Route
from penstock.planner.state_table import key_column
from penstock.state.buckets import BucketMap
from penstock.state.run import Ints, Rows

MOST = 1 << 17  # composites per parcel


def pack(
    network: Network, join: Join, route: Route, done: int, matches: Matches, tasks: npt.NDArray[np.int32]
) -> Iterator[tuple[int, bytes]]:
    """The matches as (task, parcel), for the task of each."""
    for task in np.unique(tasks).tolist():
        own = np.flatnonzero(tasks == task)
        for start in range(0, len(own), MOST):
            yield task, _encode(network, join, route, done, matches.take(own[start : start + MOST]))


def probers(matches: Matches, buckets: BucketMap) -> npt.NDArray[np.int32]:
    """The task that looks up the key of each match: its owner, or by turns the tasks that share its bucket."""
    to = buckets.owners(matches.keys)
    if buckets.splits:
        splits = buckets.split_of(matches.keys)
        places = np.flatnonzero(splits >= 0)
        to[places] = buckets.whose_turn(splits[places], _mixed(matches.times[places]))
    return to


def _mixed(times: Ints) -> Ints:
    """A hash of the times of each match."""
    mixed = hash_bigint(np.ascontiguousarray(times[:, 0]))
    for place in range(1, times.shape[1]):
        mixed = hash_bigint(mixed ^ times[:, place])
    return mixed


def _encode(network: Network, join: Join, route: Route, done: int, matches: Matches) -> bytes:
    columns: dict[str, pa.Array] = {"key": pa.array(matches.keys)}
    for place in range(len(matches.positions)):
        columns[f"time{place}"] = pa.array(np.ascontiguousarray(matches.times[:, place]))
    for word in range(matches.bits.shape[1]):
        columns[f"bits{word}"] = pa.array(np.ascontiguousarray(matches.bits[:, word]))
    needed, keys = carried(network, join, route, done)
    for place, position in enumerate(matches.positions):
        for name in needed[position]:
            columns[f"{place}:{name}"] = gather(matches.picks[place], name)
        for table in keys[position]:
            columns[f"{place}:{key_column(table)}"] = matches.key(position, table)
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(parcel: pa.Buffer | bytes, positions: Sequence[int]) -> Matches:
    """The composites of a parcel; `positions` in the order in which they were joined."""
    with pa.ipc.open_stream(parcel) as reader:
        table = reader.read_all().combine_chunks()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    count = len(table)
    rows = np.arange(count, dtype=np.int64)
    words = sum(name.startswith("bits") for name in columns)
    times = np.column_stack([columns[f"time{place}"].to_numpy() for place in range(len(positions))])
    bits = np.column_stack([columns[f"bits{word}"].to_numpy() for word in range(words)])
    picks = []
    for place in range(len(positions)):
        own = {n.split(":", 1)[1]: c for n, c in columns.items() if n.startswith(f"{place}:")}
        nobody = np.zeros(count, dtype=np.int32)
        time = np.ascontiguousarray(times[:, place])
        picks.append(([Rows(np.zeros(count, dtype=np.int64), time, nobody, ((),), own)], None, rows))
    return Matches(tuple(positions), tuple(picks), columns["key"].to_numpy(), times, bits)


def carried(
    network: Network, join: Join, route: Route, done: int
) -> tuple[Mapping[int, Sequence[str]], Mapping[int, Sequence[str]]]:
    """What later hops and results need of the rows of the first `done` hops: by position, (columns, key tables)."""
    known = (route.start, *route.order[:done])
    columns: dict[int, dict[str, None]] = {p: dict.fromkeys(join.columns[p]) for p in known}
    keys: dict[int, dict[str, None]] = {p: {} for p in known}
    for member in join.leads:
        for position, out in member.outs:
            if position in columns:
                columns[position][out] = None
        for residual in member.residuals:
            for ref in residual.refs:
                if ref.role != PSEUDO_ROLE and ref.role in columns:
                    columns[ref.role][ref.column] = None
    for hop in route.hops[done:]:
        lookup = [] if hop.source is None else [(hop.source, hop.key_class)]
        for source, key_class in [*lookup, *hop.checks]:
            if source in columns and key_class is not None:
                table = network.tables[join.classes[key_class].positions[source]]
                keys[source][table.name] = None
                columns[source].update(dict.fromkeys(table.verify))
    times = {p: network.streams[network.tables[join.tables[p]].stream].event_time for p in known}
    return {p: [c for c in own if c != times[p]] for p, own in columns.items()}, {
        p: list(own) for p, own in keys.items()
    }
