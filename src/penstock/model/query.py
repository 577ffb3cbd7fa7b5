"""What a standing query is: roles with windows, the keys that join them, bands, predicates and a select list."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from penstock.model.aggregate import Aggregation
from penstock.model.expression import Expression
from penstock.model.item import Item
from penstock.model.secrets import masked, withheld
from penstock.model.windows import AggregateWindow

_WRITTEN_TO = ("path", "dbtable", "table", "topic")


@dataclass(frozen=True)
class Window:
    """`[RANGE length]`: a row counts for result times in [ts, ts + length). `length` None is `[RANGE ALL]`."""

    length: int | None


@dataclass(frozen=True)
class Rows:
    """`[ROWS count]`: at result time T the last `count` rows of the stream with ts <= T, before any predicate.

    With `partition` (columns of the stream) the last `count` rows per combination of their values, NULL included.
    """

    count: int
    partition: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tumbling:
    """`[TUMBLING length]`: time is cut at `origin` + n * `length`, rows join only within a piece. All roles have it."""

    length: int
    origin: int = 0

    def start(self, time: int) -> int:
        """The start of the piece that contains a time."""
        return time - (time - self.origin) % self.length


@dataclass(frozen=True)
class Branch:
    """One SELECT of a union: the rows of its stream for which all `predicates` are true, with its `columns`.

    Its expressions refer to that stream as role 0. All branches have columns of the same names and types, in order.
    """

    predicates: tuple[Expression, ...]
    columns: tuple[Item, ...]


@dataclass(frozen=True)
class Role:
    """One item of FROM. A stream that occurs twice has two roles. No window means: bounded by bands alone.

    `stream` may name a query, whose results are then the rows. `union` are further streams whose rows belong to this
    role too, with columns named and typed as those of `stream`. The window uses column `on`, or event time if it is
    None. With `branches`, one for each of these streams, the role has the branches' columns and rows instead.
    """

    alias: str
    stream: str
    window: Window | Rows | Tumbling | AggregateWindow | None
    union: tuple[str, ...] = ()
    on: str | None = None
    branches: tuple[Branch, ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams whose rows belong to this role, possibly with repetition."""
        return (self.stream, *self.union)


@dataclass(frozen=True)
class Band:
    """`ts(later) - ts(earlier) <= upper`, closed, from a time condition in WHERE; binds this pair only."""

    earlier: int
    later: int
    upper: int


@dataclass(frozen=True)
class Sink:
    """A target of Spark's batch writer, e.g. `Sink("jdbc", url=.., dbtable=..)`."""

    format: str
    options: tuple[tuple[str, str], ...] = field(repr=False)

    def __init__(self, format: str, **options: object) -> None:  # noqa: A002  (Spark's own word for it)
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "options", tuple(sorted((k, str(v)) for k, v in options.items())))

    def __str__(self) -> str:
        """Its format, its target, and a checksum over all options but secrets, which distinguishes sinks."""
        told = masked(self.options)
        shown = "".join(f" {value}" for key, value in told if key.lower() in _WRITTEN_TO)
        return f"{self.format}{shown} #{zlib.crc32(repr(told).encode()):08x}"

    @property
    def stored(self) -> Sink:
        """The sink as registered: without literal secrets."""
        return Sink(self.format, **dict(withheld(self.options)))

    def same(self, other: object) -> bool:
        """Whether this is the same sink, apart from its secrets."""
        return isinstance(other, Sink) and (self.format, masked(self.options)) == (other.format, masked(other.options))


@dataclass(frozen=True)
class Query:
    """A parsed standing query.

    `keys` has one entry per class of equal expressions: one expression per role, in order of roles, or None where the
    class does not include the role (it includes two at least). `predicates` are the conjuncts over one role (or none),
    `residuals` those over several that are neither key nor band. `ordered` results are delivered in order of result
    time, as progress passes it. With `aggregation` the items refer to its groups and aggregates instead of the roles.
    """

    sql: str
    roles: tuple[Role, ...]
    keys: tuple[tuple[Expression | None, ...], ...]
    bands: tuple[Band, ...]
    predicates: tuple[Expression, ...]
    residuals: tuple[Expression, ...]
    items: tuple[Item, ...]
    ordered: bool = False
    aggregation: Aggregation | None = None
