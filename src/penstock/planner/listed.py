"""Queries with a folder as sink: whether the tasks that find their rows can write them as the select list says.

If so, the rows are in files of their own, which the folder links. All other rows are in the result table of their join,
which all its queries share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.model import Expression, Literal, PerRow, Ref, Rows, SlidingRows
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.keys import is_typed
from penstock.planner.network import StandingQuery


class Derive(Protocol):
    """Lets Spark compute a value for each row of a stream before it is mapped; returns the name of the column."""

    def __call__(self, parts: tuple[str | Ref, ...], *, risky: bool) -> str: ...


_TIMES = {"timestamp", "bigint", "int"}


def listed_items(
    standing: StandingQuery, items: Sequence[Expression], *, mapped: bool = False
) -> tuple[Expression, ...]:
    """The select list if tasks can write it, else nothing; `items` are its expressions as the tasks see them.

    For a query that is `mapped`, Spark can compute any value of a row beforehand.
    """
    kinds = [kind for _, kind in standing.listed]
    able = _can_map if mapped else _can_list
    listed = len(kinds) == len(items) and all(able(e, kind) for e, kind in zip(items, kinds, strict=True))
    return tuple(items) if listed else ()


def computed_items(items: Sequence[Expression], listed: Sequence[Expression]) -> tuple[tuple[int, Expression], ...]:
    """The items to compute before results are written: what may raise; if the select is `listed`, all but columns."""
    return tuple((n, e) for n, e in enumerate(items) if not e.total or (listed and bare(e) is None))


def is_mapped(standing: StandingQuery) -> bool:
    """Whether mappers can answer a query by themselves: each row of its only stream is a result or none."""
    query = standing.query
    alone = len(query.roles) == 1 and not isinstance(query.roles[0].window, Rows)
    return alone and bool(listed_items(standing, [item.expression for item in query.items], mapped=True))


def as_mapped(standing: StandingQuery, derive: Derive) -> tuple[Expression, ...]:
    """The select list of a mapped query; what no kernel computes is a column of Spark, under the name from `derive`."""
    found = []
    for item, (_, kind) in zip(standing.query.items, standing.listed, strict=True):
        expression = item.expression
        if not _is_known(expression, kind):
            column = Ref(0, derive(expression.parts, risky=not expression.total))
            expression = Expression((column,), column, total=True)
        found.append(expression)
    return tuple(found)


def watched_items(standing: StandingQuery, derive: Derive) -> tuple[str, ...]:
    """The predicates that report the rows on which Spark could not compute an item of a mapped query."""
    items = zip((item.expression for item in standing.query.items), standing.listed, strict=True)
    raising = [e.parts for e, (_, kind) in items if not (_is_known(e, kind) or e.total)]
    return tuple(derive(("(", *parts, ") IS NULL"), risky=True) for parts in raising)


def listed_windows(standing: StandingQuery) -> tuple[Expression, ...]:
    """As `listed_items` for a window aggregate: if tasks alone decide its results and it selects plain columns."""
    aggregation = standing.query.aggregation
    assert aggregation is not None
    decided = aggregation.having is None or aggregation.having.term is not None
    cut = aggregation.top is None or isinstance(aggregation.window, SlidingRows | PerRow)
    items = [item.expression for item in standing.query.items]
    plain = all(bare(item) is not None for item in items)
    return listed_items(standing, items) if decided and cut and plain and aggregation.emit is None else ()


def bare(expression: Expression) -> Ref | None:
    """The column that an expression is."""
    part = expression.parts[0] if len(expression.parts) == 1 else None
    return part if isinstance(part, Ref) else None


def _can_list(item: Expression, kind: str) -> bool:
    ref = bare(item)
    if ref is not None:
        return ref.role != PSEUDO_ROLE or kind in _TIMES
    if item.term is None:
        return not item.total  # what may raise is computed before it is written, the rest on read
    return _is_made(item, kind)


def _can_map(item: Expression, kind: str) -> bool:
    if bare(item) is not None:
        return _can_list(item, kind)
    return _is_made(item, kind) or all(ref.role != PSEUDO_ROLE for ref in item.refs)


def _is_known(item: Expression, kind: str) -> bool:
    """Whether a mapper can compute an item from the columns of its stream."""
    return bare(item) is not None or _is_made(item, kind)


def _is_made(item: Expression, kind: str) -> bool:
    """Whether kernels compute an item, as a column of its type."""
    return item.term is not None and not isinstance(item.term, Literal) and is_typed(kind)
