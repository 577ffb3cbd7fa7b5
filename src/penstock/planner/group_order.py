"""Normalizes the order of GROUP BY, so that queries with the same groups share state.

Groups are numbered by their texts. They keep the written order where it matters: with LIMIT, which orders ties by their
groups, and after windows that count rows, whose partition is the last of the groups.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.model import Expression, Item, PerRow, Query, Ref, SlidingRows
from penstock.model.aggregate import group_ref
from penstock.model.expression import GROUP_ROLE
from penstock.planner.remap import rename_expression


def in_one_order(query: Query) -> Query:
    """The same query with its groups in the order of their texts, if the order does not matter."""
    aggregation = query.aggregation
    if aggregation is None or aggregation.top is not None or isinstance(aggregation.window, SlidingRows | PerRow):
        return query
    groups = aggregation.groups
    order = sorted(range(len(groups)), key=lambda n: _text(groups[n].expression))
    places = {group_ref(number).column: group_ref(place) for place, number in enumerate(order)}

    def renamed(expression: Expression) -> Expression:
        return rename_expression(expression, lambda ref: places[ref.column] if ref.role == GROUP_ROLE else ref)

    return replace(
        query,
        items=tuple(Item(item.name, renamed(item.expression)) for item in query.items),
        aggregation=replace(
            aggregation,
            groups=tuple(groups[n] for n in order),
            having=None if aggregation.having is None else renamed(aggregation.having),
        ),
    )


def _text(expression: Expression) -> str:
    return "".join(f"\0{p.role}.{p.column}\0" if isinstance(p, Ref) else p for p in expression.parts)
