"""Queries over unions as several queries without unions, whose results together are the answer.

A join, like a filter, distributes over a bag union: each result takes one row of each role, and that row is of one
stream. So there is one query per combination of the streams. Windows that count rows do not distribute, since the rows
of all streams count; SQL refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from penstock.model import Expression, Item, Query, Ref, Role, Stream
from penstock.planner.remap import remap_expression, replace_columns

Shown = Mapping[Ref, Expression]  # the expressions of a union's columns in one of its streams


def distribute(query: Query, streams: Mapping[str, Stream]) -> tuple[Query, ...]:
    """Queries with one stream per role whose united results are the query's; itself if aggregated or without unions."""
    if not is_united(query):
        return (query,)
    choices = product(*(range(len(role.streams)) for role in query.roles))
    return tuple(_combination(query, chosen, streams) for chosen in choices)


def is_united(query: Query) -> bool:
    """Whether there is more than one combination, or columns of a union to replace."""
    return query.aggregation is None and any(role.union or role.branches for role in query.roles)


def reunited(query: Query, streams: Mapping[str, Stream]) -> Query:
    """The first combination, with all streams of the query in its roles: it determines progress and lives."""
    if not is_united(query):
        return query
    first = _combination(query, [0] * len(query.roles), streams)
    roles = tuple(replace(own, union=role.union) for own, role in zip(first.roles, query.roles, strict=True))
    return replace(first, roles=roles)


def _combination(query: Query, chosen: Sequence[int], streams: Mapping[str, Stream]) -> Query:
    shown: dict[Ref, Expression] = {}
    extra: list[Expression] = []
    roles = []
    for number, (role, branch) in enumerate(zip(query.roles, chosen, strict=True)):
        stream = role.streams[branch]
        roles.append(replace(role, stream=stream, union=(), branches=()))
        shown |= _shown(number, role, branch, streams)
        if role.branches:
            extra += [remap_expression(p, {0: number}) for p in role.branches[branch].predicates]

    def over(expression: Expression) -> Expression:
        return replace_columns(expression, shown)

    conditions = [over(p) for p in (*query.predicates, *query.residuals)]
    # A key may be a constant on one side: so its types, and the state table of the other side, are always the same.
    keys = [tuple(None if end is None else over(end) for end in key) for key in query.keys]
    return replace(
        query,
        roles=tuple(roles),
        keys=tuple(keys),
        predicates=(*extra, *(c for c in conditions if len(c.roles) < 2)),
        residuals=tuple(c for c in conditions if len(c.roles) > 1),
        items=tuple(Item(item.name, over(item.expression)) for item in query.items),
    )


def _shown(number: int, role: Role, branch: int, streams: Mapping[str, Stream]) -> dict[Ref, Expression]:
    """A role's columns in one of its streams: those of its SELECT, or those of the same name (ignoring case)."""
    if role.branches:
        columns = role.branches[branch].columns
        return {Ref(number, str(c.name)): remap_expression(c.expression, {0: number}) for c in columns}
    first, own = (streams[role.streams[n]] for n in (0, branch))
    found = {}
    for column in first.columns:
        same = own.column(column.name)
        if same is not None and same.name != column.name:
            ref = Ref(number, same.name)
            found[Ref(number, column.name)] = Expression((ref,), ref, total=True)
    return found
