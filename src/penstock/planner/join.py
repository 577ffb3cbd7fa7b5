"""A join of the network: queries over the same streams and keys, whose state tables are probed once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from penstock.model import Expression, Stream
from penstock.model.time import NEVER
from penstock.planner.bounds import Bounds
from penstock.planner.reached import Closing, Reached


@dataclass(frozen=True)
class KeyClass:
    """Positions of a join whose rows share a key, each with its state table sorted by it: (position, table)."""

    tables: tuple[tuple[int, int], ...]

    @cached_property
    def positions(self) -> dict[int, int]:
        return dict(self.tables)


@dataclass(frozen=True)
class Member:
    """A query as part of a join; `bit` is its bit in result rows, `roles[p]` its role at join position p.

    Members of one `share` have one bit. `reads[p]` = the columns that it reads of rows at position p. `outs` =
    (position, column with the time when a row there leaves its window) for windows that count rows. `bands` = pairs of
    positions with a time condition in WHERE. `listed` is the select list of a member whose rows are written in that
    form, to files of its own; empty for rows in the result table.
    """

    id: int
    name: str
    bit: int
    roles: tuple[int, ...]
    bounds: Bounds
    residuals: tuple[Expression, ...]
    computed: tuple[tuple[int, Expression], ...]
    on_error: str
    share: int
    reads: tuple[frozenset[str], ...]
    outs: tuple[tuple[int, str], ...] = ()
    bands: tuple[tuple[int, int], ...] = ()
    listed: tuple[Expression, ...] = ()

    @property
    def finished_by_spark(self) -> bool:
        """Whether Spark must evaluate a residual or a select item between the probe and the write."""
        return any(r.term is None for r in self.residuals) or any(e.term is None for _, e in self.computed)


@dataclass(frozen=True)
class Join:
    """Queries over the same state tables and keys: probed together, stored in one result table.

    `tables[p]` is the first state table of position p; one with several keys has more, in `classes`. `closes` are the
    streams of windows that count rows: rows take part only once the progress of all of these has passed them.
    """

    index: int
    name: str
    tables: tuple[int, ...]
    members: tuple[Member, ...]
    classes: tuple[KeyClass, ...]
    columns: tuple[tuple[str, ...], ...]
    kind: str = "join"
    closes: tuple[str, ...] = ()

    @cached_property
    def leads(self) -> tuple[Member, ...]:
        """One member for each bit of a result row, in the order of bits."""
        by_bit = {m.bit: m for m in self.members}
        return tuple(by_bit[bit] for bit in range(len(by_bit)))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """All pairs of a position and one of its state tables."""
        keyed = [pair for key_class in self.classes for pair in key_class.tables]
        return tuple(dict.fromkeys([*enumerate(self.tables), *keyed]))

    @cached_property
    def ties(self) -> frozenset[frozenset[int]]:
        """The pairs of positions that a condition or a band of any query connects, besides keys."""
        conditions = [pair for m in self.leads for r in m.residuals for pair in combinations(r.roles, 2)]
        return frozenset(map(frozenset, [*conditions, *(band for m in self.leads for band in m.bands)]))

    def closed(self, progress: Reached) -> tuple[int, int]:
        """The times below which rows took part in the previous step, and do so in this one."""
        before = min(progress.get(Closing(stream), NEVER) for stream in self.closes)
        return before, min(progress.get(stream, NEVER) for stream in self.closes)

    @property
    def finished_by_spark(self) -> bool:
        return any(m.finished_by_spark for m in self.members)


def decided_early(residual: Expression) -> bool:
    """Whether a condition filters as soon as its positions are joined; conditions for Spark wait for whole results."""
    return residual.term is not None and len(residual.roles) > 1


def result_column(position: int, stream: Stream, column: str) -> str:
    """The name of a position's column in a result table."""
    ordinal = next(i for i, c in enumerate(stream.columns) if c.name == column)
    return f"r{position}_c{ordinal}"
