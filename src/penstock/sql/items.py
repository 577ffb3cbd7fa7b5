"""The select list of a query without groups, as bound trees with their names; stars are expanded."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.errors import did_you_mean
from penstock.model import Ref
from penstock.sql.position import Text, start_of
from penstock.sql.scope import Scope, bind, bound_column, ref_of

Selected = tuple[str | None, exp.Expr]


def is_star(node: exp.Expr) -> bool:
    """Whether an entry of the select list is `*` or `alias.*`."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def select_items(node: exp.Expr, scope: Scope) -> Iterator[Selected]:
    """The columns of one entry of the select list: name, if it has one, and bound tree."""
    if isinstance(node, exp.Star):
        _refuse_star_options(scope.source, node, node)
        for role in range(len(scope.roles)):
            yield from _all_columns(role, scope)
        return
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        _refuse_star_options(scope.source, node, node.this)
        qualifier = node.table
        found = scope.role(qualifier) if len(node.parts) == 2 else None
        if found is None:
            known = (r.alias for r in scope.roles)
            raise scope.source.error(
                start_of(node), f"{qualifier} is no stream or alias of this query", did_you_mean(qualifier, known)
            )
        yield from _all_columns(found, scope)
        return
    if isinstance(node, exp.Aliases):
        raise scope.source.unsupported(start_of(node), "Several names for one item are not supported")
    name: str | None = None
    inner = node
    if isinstance(node, exp.Alias):
        name, inner = node.alias, node.this
    bound = bind(inner, scope, selecting=True)
    yield name if name is not None else _natural_name(bound), bound


def _natural_name(bound: exp.Expr) -> str | None:
    """The name of a column, or of a field taken from one."""
    ref = ref_of(bound)
    if ref is not None:
        return ref.column
    if isinstance(bound, exp.Dot) and isinstance(bound.expression, exp.Identifier):
        return bound.expression.name
    return None


def _all_columns(role: int, scope: Scope) -> Iterator[Selected]:
    for column in scope.streams[role].columns:
        yield column.name, bound_column(Ref(role, column.name), column.type or None)


def _refuse_star_options(source: Text, node: exp.Expr, star: exp.Expr) -> None:
    if any(value for key, value in star.args.items() if key != "this"):
        raise source.unsupported(start_of(node), "* with EXCEPT or other options is not supported", "name the columns")
