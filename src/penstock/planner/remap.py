"""Replacing columns inside expressions, e.g. a query's own roles by the positions of a shared join."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.model import (
    And,
    Arithmetic,
    Call,
    Choice,
    Compare,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Ref,
    Term,
    Typed,
)

Rename = Callable[[Ref], Ref]


def remap_expression(expression: Expression, roles: Mapping[int, int]) -> Expression:
    """The same expression with each role replaced; roles that are not named stay."""
    return rename_expression(expression, lambda ref: Ref(roles.get(ref.role, ref.role), ref.column))


def rename_expression(expression: Expression, rename: Rename) -> Expression:
    """The same expression with each column replaced."""
    parts = tuple(p if isinstance(p, str) else rename(p) for p in expression.parts)
    term = None if expression.term is None else map_term(expression.term, rename)
    written = tuple(p if isinstance(p, str) else rename(p) for p in expression.written)
    return Expression(parts, term, expression.total, written)


def map_term(term: Term, instead: Callable[[Ref], Term]) -> Term:
    """The same term with each column replaced by a term."""
    return instead(term) if isinstance(term, Ref) else rebuilt(term, lambda inner: map_term(inner, instead))


def rebuilt(term: Term, each: Callable[[Term], Term]) -> Term:
    """The same term with mapped subterms."""
    match term:
        case Compare(op, left, right):
            return Compare(op, each(left), each(right))
        case Arithmetic(op, left, right):
            return Arithmetic(op, each(left), each(right))
        case And(terms):
            return And(tuple(map(each, terms)))
        case Or(terms):
            return Or(tuple(map(each, terms)))
        case Not(inner):
            return Not(each(inner))
        case IsNull(inner):
            return IsNull(each(inner))
        case In(inner, values):
            return In(each(inner), values)
        case Typed(inner, kind):
            return Typed(each(inner), kind)
        case Call(function, arguments, kind, options):
            return Call(function, tuple(map(each, arguments)), kind, options)
        case Choice(branches, default, kind):
            return Choice(tuple((each(c), each(v)) for c, v in branches), each(default), kind)
        case Ref() | Literal():
            return term


def replace_columns(expression: Expression, instead: Mapping[Ref, Expression]) -> Expression:
    """The same expression with some columns replaced by expressions; it loses its term if one of them has none."""
    used = [instead[ref] for ref in expression.refs if ref in instead]
    if not used:
        return expression
    parts: list[str | Ref] = []
    for part in expression.parts:
        if isinstance(part, str) or part not in instead:
            parts.append(part)
        elif len(expression.parts) == 1 or instead[part].parts == (instead[part].term,):
            parts += instead[part].parts
        else:
            parts += ["(", *instead[part].parts, ")"]
    terms = {ref: found.term for ref, found in instead.items() if found.term is not None}
    whole = expression.term is not None and all(found.term is not None for found in used)
    term = map_term(expression.term, lambda ref: terms.get(ref, ref)) if whole and expression.term is not None else None
    return Expression(tuple(parts), term, expression.total and all(found.total for found in used))
