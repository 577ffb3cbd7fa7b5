"""Queries whose rows go to a folder: whether the tasks that find them can write them as the select list says.

Then they lie in files of their own, which the folder gets by links. All other rows lie in the result table of their join, which all its queries share.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import Expression, Literal, PerRow, Ref, SlidingRows
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.network import StandingQuery

_MADE = {"bigint", "double", "boolean", "string"}  # what kernels make of terms is of these types
_TIMES = {"timestamp", "bigint", "int"}


def listed_items(standing: StandingQuery, items: Sequence[Expression]) -> tuple[Expression, ...]:
    """The select list if it can be written as it is, else nothing; `items` are its expressions as the tasks see them."""
    kinds = [kind for _, kind in standing.listed]
    listed = len(kinds) == len(items) and all(_can_list(e, kind) for e, kind in zip(items, kinds, strict=True))
    return tuple(items) if listed else ()


def listed_windows(standing: StandingQuery) -> tuple[Expression, ...]:
    """The same of a window aggregate: its select list, if tasks decide alone what its results are and it is columns as they stand."""
    aggregation = standing.query.aggregation
    assert aggregation is not None
    decided = aggregation.having is None or aggregation.having.term is not None
    cut = aggregation.top is None or isinstance(aggregation.window, SlidingRows | PerRow)
    items = [item.expression for item in standing.query.items]
    plain = all(bare(item) is not None for item in items)
    return listed_items(standing, items) if decided and cut and plain and aggregation.emit is None else ()


def bare(expression: Expression) -> Ref | None:
    """The column that an expression is as it stands."""
    part = expression.parts[0] if len(expression.parts) == 1 else None
    return part if isinstance(part, Ref) else None


def _can_list(item: Expression, kind: str) -> bool:
    ref = bare(item)
    if ref is not None:
        return ref.role != PSEUDO_ROLE or kind in _TIMES
    if item.term is None:
        return not item.total  # what may raise is computed before it is written, the rest when it is read
    return kind in _MADE and not isinstance(item.term, Literal)
