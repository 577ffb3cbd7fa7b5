"""Pieces: what mappers read themselves of the rows that a step takes in, instead of getting them from a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.columns.hash import Ints
from penstock.planner.network import Network

Text = Callable[[Ints], pa.Array]  # the whole rows at those places
Types = Mapping[str, Mapping[str, pa.DataType]]  # stream -> declared column -> type


class Unreadable(Exception):  # noqa: N818  (not an error: Spark reads such pieces)
    """A piece that Arrow cannot read, or might read otherwise than Spark."""


class Piece(Protocol):
    """Some rows of one stream, which lie in a file."""

    @property
    def stream(self) -> str: ...

    @property
    def bytes(self) -> int:
        """About how much work it is."""
        ...

    def read(self, network: Network, types: Types) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        """All its rows as a mapper takes them; raises Unreadable."""
        ...

    def split(self) -> Sequence[Piece]:
        """The same rows in pieces of no more than a fair size, where they can be cut."""
        ...


def shared_out(pieces: Sequence[Piece], shares: int) -> list[list[Piece]]:
    """The pieces, cut where that is possible, in shares of about the same size."""
    found: list[list[Piece]] = [[] for _ in range(shares)]
    sizes = [0] * shares
    parts = [part for piece in pieces for part in piece.split()]
    for part in sorted(parts, key=lambda part: -part.bytes):
        least = sizes.index(min(sizes))
        sizes[least] += part.bytes
        found[least].append(part)
    return found


def is_scannable(network: Network, streams: Collection[str]) -> bool:
    """Whether mappers can do with columns of these streams alone: no expression needs Spark, not even that of a key, and rows tell no progress."""
    return (
        not any(d.stream in streams and d.term is None for d in network.derived)
        and not any(network.streams[n].punctuated or network.streams[n].delay_rows is not None for n in streams)
        and all(t.hashed is not None for t in network.tables if t.stream in streams)
    )
