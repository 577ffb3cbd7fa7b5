"""Which terms may raise, and where Spark's optimizer may skip what raises: such an expression gets no term.

Spark skips an operand that may raise where the rest decides the value: beside a constant, under IS NULL of a non-null
value, in a comparison whose cast Spark rewrites, in a condition of CASE that chooses between equal values.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.columns.terms.values import WIDTHS
from penstock.model import And, Arithmetic, Call, Choice, Compare, In, IsNull, Literal, Not, Or, Ref, Term, Typed

_CHECKED = frozenset({"+", "-", "*", "negate", "abs"})
_DIVIDED = frozenset({"/", "%", "div"})


def may_raise(term: Term) -> bool:
    """Whether evaluating the term may raise for some values of its columns."""
    if isinstance(term, Call):
        return _raises(term) or any(map(may_raise, term.arguments))
    if isinstance(term, Arithmetic):
        return True
    return any(map(may_raise, _inside(term)))


def _raises(call: Call) -> bool:
    if call.function in _CHECKED:
        return call.type in WIDTHS
    if call.function in _DIVIDED:
        divisor = call.arguments[1]
        divisor = divisor.arguments[0] if isinstance(divisor, Call) and divisor.function == "cast" else divisor
        return not (isinstance(divisor, Literal) and divisor.value not in (None, 0, -1))
    if call.function == "cast" and call.type in WIDTHS:
        source = str(call.options[0])
        return source == "double" or (source in WIDTHS and WIDTHS[source] > WIDTHS[call.type])
    return call.function == "midnight"


def _inside(term: Term) -> Sequence[Term]:
    match term:
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(terms) | Or(terms) | Call(_, terms):
            return terms
        case Not(inner) | IsNull(inner) | In(inner, _) | Typed(inner, _):
            return (inner,)
        case Choice(branches, default):
            return (*(t for pair in branches for t in pair), default)
    return ()


def has_columns(term: Term) -> bool:
    return isinstance(term, Ref) or any(map(has_columns, _inside(term)))


def is_computed_whole(operands: Sequence[Term]) -> bool:
    """Whether Spark evaluates all operands of a NULL-propagating operator, as far as known: no constant may be NULL."""
    if not any(map(may_raise, operands)):
        return True
    constants = [t for t in operands if not has_columns(t)]
    return all(_is_value(t) for t in constants) and len(set(operands)) == len(operands)


def _is_value(term: Term) -> bool:
    if isinstance(term, Call) and term.function in ("cast", "negate"):
        return _is_value(term.arguments[0])
    return isinstance(term, Literal) and term.value is not None


def is_decided_in_order(terms: Sequence[Term]) -> bool:
    """Whether Spark evaluates the conditions of AND or OR in written order: no two are equal, and none is constant."""
    if not any(map(may_raise, terms)):
        return True
    atoms = [atom for term in terms for atom in _atoms(term)]
    return all(map(has_columns, atoms)) and len(set(atoms)) == len(atoms)


def _atoms(term: Term) -> list[Term]:
    if isinstance(term, And | Or | Not):
        return [atom for inner in _inside(term) for atom in _atoms(inner)]
    return [term]
