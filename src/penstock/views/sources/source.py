"""The interface of a live source: its change position, its changes, and rows by key or all of them.

The modules beside this one implement it, one per system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.model.expression import Expression
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate


@dataclass(frozen=True)
class Answer:
    """Rows (with `COUNT`) of one snapshot, and the change position of that very snapshot."""

    rows: pa.Table
    position: int


class SourceReader(Protocol):
    """A live connection to one source.

    Positions only grow. The content at position q is the content at p plus `changes(p, q)`, for all p <= q; a repeated
    request returns the same changes. `lookup`, `scan` and `changes` may be called from several threads at once;
    `connections` is how many of them run concurrently. Filters are conjuncts over columns of this source alone,
    whatever `Ref.role` says, and the answer contains only rows for which all are TRUE. NaN equals NaN and -0.0 equals
    0.0; a NULL key finds nothing.
    """

    source: Source
    requests: int  # physical requests made so far
    connections: int

    def position(self) -> int:
        """The position of the newest change."""
        ...

    def changes(self, after: int, until: int | None = None) -> tuple[pa.Table, int]:
        """Signed rows (all columns and `COUNT`) of the changes in (after, until], and the position they reach.

        Without `until`: all changes so far. Rows need not be consolidated.
        """
        ...

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        """Rows whose key is among `keys`: distinct rows, no NULL, named and typed as columns of the source.

        Columns of the answer: `columns` and `COUNT`. Additional rows do no harm, missing ones do.
        """
        ...

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        """All rows."""
        ...

    def close(self) -> None: ...


class EstimatingReader(SourceReader, Protocol):
    """A reader with an estimate of its source without reading it."""

    def estimate(self, columns: Sequence[str]) -> Estimate | None: ...


class LiveReader(EstimatingReader, Protocol):
    """A reader whose positions outlive the process."""

    def mark(self, position: int) -> str: ...

    def resume(self, mark: str) -> int: ...

    def settle(self, position: int) -> None: ...
