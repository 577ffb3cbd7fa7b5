"""Slots for the columns of streams: columns of equal type share one, so the union is as wide as the widest stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from penstock.model import Stream
from penstock.planner.network import Network


@dataclass(frozen=True)
class Layout:
    """The slot of each column read from each stream; fixed for the life of one streaming query."""

    order: tuple[str, ...]
    slots: Mapping[str, Mapping[str, str]]
    types: tuple[tuple[str, str], ...]
    marked: bool = False  # some rows may be punctuations
    placed: bool = False  # some stream has a delay in rows, so that the sequence is included

    def name(self, stream: str, column: str) -> str:
        """The exchange column of a declared column; computed columns keep their own name."""
        return self.slots[stream].get(column, column)


def lay_out(streams: Sequence[Stream], read: Mapping[str, Collection[str]] = MappingProxyType({})) -> Layout:
    """Assign each column a slot of its type; streams share slots. Streams in `read` have only these columns."""
    slots: dict[str, dict[str, str]] = {}
    names: dict[tuple[str, int], str] = {}
    types: list[tuple[str, str]] = []
    for stream in streams:
        used: dict[str, int] = {}
        own = slots.setdefault(stream.name, {})
        for column in stream.columns:
            if stream.name in read and column.name not in read[stream.name]:
                continue
            number = used.get(column.type, 0)
            used[column.type] = number + 1
            if (column.type, number) not in names:
                names[column.type, number] = f"c{len(types)}"
                types.append((names[column.type, number], column.type))
            own[column.name] = names[column.type, number]
    marked, placed = any(s.punctuated for s in streams), any(s.delay_rows is not None for s in streams)
    return Layout(tuple(s.name for s in streams), slots, tuple(types), marked, placed)


def lay_out_all(layout: Layout, network: Network) -> Layout:
    """The layout of the streams that Spark reads, followed by the derived ones; the former keep their slots."""
    own = [network.streams[name] for name in layout.order]
    whole = lay_out([*own, *(d.stream for d in network.derived_streams)], layout.slots)
    assert whole.types[: len(layout.types)] == layout.types
    return whole
