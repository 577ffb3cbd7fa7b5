"""Expressions as every package but `sql` sees them: canonical Spark SQL text, its columns, and properties.

An expression that kernels compute as Spark does also has its tree as a `Term`. The plain terms (comparisons,
AND/OR/NOT, IS NULL, IN over columns and literals, `+` and `-`) are what indexes, searches and the reference understand;
`Typed`, `Call` and `Choice` are for kernels only. Anything else is text for Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

RESULT_TIME = "result_time"
WINDOW_START = "window_start"
WINDOW_END = "window_end"
PSEUDO_ROLE = -1  # the role of columns that belong to the result as a whole
GROUP_ROLE = -2  # the role of the groups of an aggregated query
AGGREGATE_ROLE = -3  # the role of its aggregates


@dataclass(frozen=True)
class Ref:
    """A column of a role (an item of FROM), a pseudo-column (role -1), a group or an aggregate (-2, -3)."""

    role: int
    column: str


@dataclass(frozen=True)
class Literal:
    """A constant; `type` is bigint, double, string, boolean, or void for NULL; a decimal(p,s) is stored as its text."""

    value: int | float | str | bool | None
    type: str


@dataclass(frozen=True)
class Arithmetic:
    """`+` or `-` of int64 or double terms, checked for overflow."""

    op: str
    left: Term
    right: Term


# Each comparison with its sides swapped.
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@dataclass(frozen=True)
class Compare:
    """One of = <> < <= > >= under SQL's three-valued logic, with Spark's order of values (NaN is largest)."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True)
class And:
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Or:
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Not:
    term: Term


@dataclass(frozen=True)
class IsNull:
    term: Term


@dataclass(frozen=True)
class In:
    """`term IN (literals)`; a NULL literal makes a non-match unknown."""

    term: Term
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Typed:
    """A term as a value of a Spark type: a column may be stored otherwise, such as an event time as an integer."""

    term: Term
    type: str


@dataclass(frozen=True)
class Call:
    """An operator or a function of `columns/terms` over typed terms; `options` are its constant parameters."""

    function: str
    arguments: tuple[Term, ...]
    type: str
    options: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The value of the first branch (condition, value) whose condition is TRUE; other branches cannot raise."""

    branches: tuple[tuple[Term, Term], ...]
    default: Term
    type: str


Term = Ref | Literal | Arithmetic | Compare | And | Or | Not | IsNull | In | Typed | Call | Choice


@dataclass(frozen=True)
class Expression:
    """One scalar expression of a query.

    `parts` is its Spark SQL text with placeholders for columns, so that each package can insert its own column names.
    `total` means that evaluation never raises. `written` is the user's text, where `parts` also checks how large values
    become.
    """

    parts: tuple[str | Ref, ...]
    term: Term | None
    total: bool
    written: tuple[str | Ref, ...] = ()

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The columns used, each once, in order of first use."""
        return tuple(dict.fromkeys(p for p in self.parts if isinstance(p, Ref)))

    @property
    def roles(self) -> tuple[int, ...]:
        """The roles whose columns are used, ascending, without pseudo-columns, groups and aggregates."""
        return tuple(sorted({r.role for r in self.refs if r.role >= 0}))

    def sql(self, name: Callable[[Ref], str]) -> str:
        """The text, with every column named by `name`."""
        return _filled(self.parts, name)

    def shown(self, name: Callable[[Ref], str]) -> str:
        """The text as the user wrote it."""
        return _filled(self.written or self.parts, name)


def _filled(parts: tuple[str | Ref, ...], name: Callable[[Ref], str]) -> str:
    return "".join(p if isinstance(p, str) else name(p) for p in parts)
