"""What a standing query is: roles with windows, the keys that join them, bands, predicates and a select list."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.expression import Expression


@dataclass(frozen=True)
class Window:
    """`[RANGE length]`: a row counts for result times in [ts, ts + length). `length` None is `[RANGE ALL]`."""

    length: int | None


@dataclass(frozen=True)
class Rows:
    """`[ROWS count]`: at result time T the last `count` rows of the stream with ts <= T, whatever the predicates say.

    With `partition` (columns of the stream) the last `count` of each combination of their values, NULL being one of them.
    """

    count: int
    partition: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tumbling:
    """`[TUMBLING length]`: time is cut at `origin` + n * `length`, and rows join only within one piece. The same on all roles."""

    length: int
    origin: int = 0

    def start(self, time: int) -> int:
        """When the piece begins in which a time lies."""
        return time - (time - self.origin) % self.length


@dataclass(frozen=True)
class Role:
    """One item of FROM. A stream that occurs twice has two roles. No window means: bounded by bands alone."""

    alias: str
    stream: str
    window: Window | Rows | Tumbling | None


@dataclass(frozen=True)
class Band:
    """`ts(later) - ts(earlier) <= upper`, closed, from a time condition in WHERE; binds this pair only."""

    earlier: int
    later: int
    upper: int


@dataclass(frozen=True)
class Item:
    """One column of the select list; `name` is None where Spark shall name it."""

    name: str | None
    expression: Expression


@dataclass(frozen=True)
class Sink:
    """A place that Spark's batch writer can write to, e.g. `Sink("jdbc", url=.., dbtable=..)`."""

    format: str
    options: tuple[tuple[str, str], ...]

    def __init__(self, format: str, **options: object) -> None:  # noqa: A002  (Spark's own word for it)
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "options", tuple(sorted((k, str(v)) for k, v in options.items())))


@dataclass(frozen=True)
class Query:
    """A parsed standing query.

    `keys` has one entry per class of equal expressions: one expression per role, in order of roles, or None where the
    class does not reach the role (it reaches two at least). `predicates` are the conjuncts over one role (or none),
    `residuals` those over several that no key or band says. `ordered` results come in order of result time, released by
    progress.
    """

    sql: str
    roles: tuple[Role, ...]
    keys: tuple[tuple[Expression | None, ...], ...]
    bands: tuple[Band, ...]
    predicates: tuple[Expression, ...]
    residuals: tuple[Expression, ...]
    items: tuple[Item, ...]
    ordered: bool = False
