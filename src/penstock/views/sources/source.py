"""What maintenance asks of a live source: its change position, its changes, and rows by key or all of them.

Implementations stand beside this module, one for each system. Nothing here says how changes are captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.model.expression import Expression
from penstock.model.view import Source

COUNT = "_count"  # the column of signed multiplicities, int64


@dataclass(frozen=True)
class Answer:
    """Rows (with `COUNT`) of one snapshot, and the change position of that very snapshot."""

    rows: pa.Table
    position: int


class SourceReader(Protocol):
    """A live connection to one source.

    Positions only grow. The content at position q is the content at p plus `changes(p, q)`, for all p <= q; asked
    again, the same changes come back. `lookup`, `scan` and `changes` may be called from several threads at once;
    `connections` says how many of them run side by side. Filters are conjuncts over columns of this source alone,
    whatever `Ref.role` says, and the answer holds only rows for which all are TRUE. NaN equals NaN and -0.0 equals
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

        Without `until`: all there are by now. Rows need not be consolidated.
        """
        ...

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        """Rows whose key is among `keys`: distinct rows, no NULL, named and typed as columns of the source.

        Columns of the answer: `columns` and `COUNT`. Rows that were not asked for do no harm, missing ones do.
        """
        ...

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        """All rows."""
        ...

    def close(self) -> None: ...
