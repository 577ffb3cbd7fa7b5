"""Rename the columns inside expressions, e.g. their roles from a query's own order to the positions of a shared join."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term

Rename = Callable[[Ref], Ref]


def remap_expression(expression: Expression, roles: Mapping[int, int]) -> Expression:
    """The same expression with each role replaced; roles that are not named stay."""
    return rename_expression(expression, lambda ref: Ref(roles.get(ref.role, ref.role), ref.column))


def rename_expression(expression: Expression, rename: Rename) -> Expression:
    """The same expression with each column replaced."""
    parts = tuple(p if isinstance(p, str) else rename(p) for p in expression.parts)
    term = None if expression.term is None else rename_term(expression.term, rename)
    return Expression(parts, term, expression.total)


def rename_term(term: Term, rename: Rename) -> Term:
    """The same term with each column replaced."""
    match term:
        case Ref():
            return rename(term)
        case Literal():
            return term
        case Arithmetic(op, left, right):
            return Arithmetic(op, rename_term(left, rename), rename_term(right, rename))
        case Compare(op, left, right):
            return Compare(op, rename_term(left, rename), rename_term(right, rename))
        case And(terms):
            return And(tuple(rename_term(t, rename) for t in terms))
        case Or(terms):
            return Or(tuple(rename_term(t, rename) for t in terms))
        case Not(inner):
            return Not(rename_term(inner, rename))
        case IsNull(inner):
            return IsNull(rename_term(inner, rename))
        case In(inner, values):
            return In(rename_term(inner, rename), values)
