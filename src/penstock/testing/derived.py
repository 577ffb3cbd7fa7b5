"""Results of queries as rows of derived streams, even where Spark would compute a select list: tables as pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import RegistrationError
from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.step.pieces import Piece, Text, Types
from penstock.step.taken import Taken, laid_out


def pieces_of(taken: Taken, network: Network) -> Sequence[Piece]:
    """What a derived stream has for a step."""
    found = taken.pieces(network)
    return found if found is not None else [TablePiece(taken)]


@dataclass(frozen=True)
class TablePiece:
    """All rows of a derived stream for a step, read without Spark."""

    taken: Taken
    bytes: int = 0

    @property
    def stream(self) -> str:
        return self.taken.name

    def split(self) -> Sequence[Piece]:
        return [self]

    def read(
        self,
        network: Network,
        types: Types,
        limits: Limits | None = None,  # noqa: ARG002  (of rows in memory anyway)
    ) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        for view in self.taken.views:
            tables = view.tables(self.taken.manifest, self.taken.part)
            if tables is None:
                raise RegistrationError(f"query {view.record.name!r}: only Spark can read its results")
            for table in tables:
                yield laid_out(self.taken.derived, table, network, types, view.record.name)
