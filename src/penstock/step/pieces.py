"""Pieces: rows of a step that mappers read themselves, instead of getting them from a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.columns.hash import Ints
from penstock.model.memory import Limits
from penstock.planner.network import Network

Text = Callable[[Ints], pa.Array]  # the whole rows at those places
Types = Mapping[str, Mapping[str, pa.DataType]]  # stream -> declared column -> type


class Unreadable(Exception):  # noqa: N818  (not an error: Spark reads such pieces)
    """A piece that Arrow cannot read, or might read differently from Spark."""


class Piece(Protocol):
    """Some rows of one stream in a file."""

    @property
    def stream(self) -> str: ...

    @property
    def bytes(self) -> int:
        """The approximate amount of work."""
        ...

    def read(
        self, network: Network, types: Types, limits: Limits | None = None
    ) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        """All its rows in a mapper's form, some at a time; raises Unreadable."""
        ...

    def split(self) -> Sequence[Piece]:
        """The same rows in pieces of no more than a fair size, if they can be split."""
        ...


def shared_out(pieces: Sequence[Piece], shares: int) -> list[list[Piece]]:
    """The pieces, split where possible, in shares of about the same size."""
    found: list[list[Piece]] = [[] for _ in range(shares)]
    sizes = [0] * shares
    parts = [part for piece in pieces for part in piece.split()]
    for part in sorted(parts, key=lambda part: -part.bytes):
        least = sizes.index(min(sizes))
        sizes[least] += part.bytes
        found[least].append(part)
    return found


def is_scannable(network: Network, streams: Collection[str]) -> bool:
    """Whether these streams' columns suffice for mappers: no expression needs Spark, and no row is a punctuation."""
    return (
        not any(d.stream in streams and d.term is None for d in network.derived)
        and not any(network.streams[n].punctuated or network.streams[n].delay_rows is not None for n in streams)
        and all(t.hashed is not None for t in network.tables if t.stream in streams)
    )
