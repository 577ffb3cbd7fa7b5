"""What a standing query is: roles with windows, a key they share, bands, predicates and a select list."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.expression import Expression


@dataclass(frozen=True)
class Window:
    """`[RANGE length]`: a row counts for result times in [ts, ts + length). `length` None is `[RANGE ALL]`."""

    length: int | None


@dataclass(frozen=True)
class Role:
    """One item of FROM. A stream that occurs twice has two roles. No window means: bounded by bands alone."""

    alias: str
    stream: str
    window: Window | None


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

    `keys` has one entry per part of the join key, each with one expression per role (in order of roles); it is empty
    for a query over one stream. `predicates` are the conjuncts over one role (or none), `residuals` those
    over several. `ordered` results come in order of result time, released by progress.
    """

    sql: str
    roles: tuple[Role, ...]
    keys: tuple[tuple[Expression, ...], ...]
    bands: tuple[Band, ...]
    predicates: tuple[Expression, ...]
    residuals: tuple[Expression, ...]
    items: tuple[Item, ...]
    ordered: bool = False
