"""Rename the roles inside expressions, e.g. from a query's own order to the positions of a shared join."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term


def remap_expression(expression: Expression, roles: Mapping[int, int]) -> Expression:
    """The same expression with each role replaced; roles that are not named stay."""
    parts = tuple(p if isinstance(p, str) else _ref(p, roles) for p in expression.parts)
    term = None if expression.term is None else remap_term(expression.term, roles)
    return Expression(parts, term, expression.total)


def remap_term(term: Term, roles: Mapping[int, int]) -> Term:
    """The same term with each role replaced."""
    match term:
        case Ref():
            return _ref(term, roles)
        case Literal():
            return term
        case Arithmetic(op, left, right):
            return Arithmetic(op, remap_term(left, roles), remap_term(right, roles))
        case Compare(op, left, right):
            return Compare(op, remap_term(left, roles), remap_term(right, roles))
        case And(terms):
            return And(tuple(remap_term(t, roles) for t in terms))
        case Or(terms):
            return Or(tuple(remap_term(t, roles) for t in terms))
        case Not(inner):
            return Not(remap_term(inner, roles))
        case IsNull(inner):
            return IsNull(remap_term(inner, roles))
        case In(inner, values):
            return In(remap_term(inner, roles), values)


def _ref(ref: Ref, roles: Mapping[int, int]) -> Ref:
    return Ref(roles.get(ref.role, ref.role), ref.column)
