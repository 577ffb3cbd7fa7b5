"""The value of a term: SQL's three-valued logic over Spark's order of values, with checked 64-bit arithmetic.

NULL is `None`. An expression outside the kernel subset has no term and no value here: only Spark defines it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from penstock.errors import PenstockError
from penstock.model.expression import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term

SMALLEST = -(2**63)
LARGEST = 2**63 - 1

Lookup = Callable[[Ref], object]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Raised(PenstockError):  # noqa: N818  (a result of the query, not an error of the caller)
    """Evaluating a term overflowed where Spark's ANSI mode raises."""


class Unspecified(PenstockError):  # noqa: N818  (the specification is silent here)
    """The reference does not define this expression or these values."""


def evaluate(term: Term, lookup: Lookup) -> object:
    """The value of `term`, `None` for NULL; `lookup` gives the columns. AND and OR stop at the deciding term."""
    match term:
        case Ref():
            return lookup(term)
        case Literal(str(text), kind) if kind.startswith("decimal("):
            return Decimal(text)
        case Literal(constant):
            return constant
        case Arithmetic(op, left, right):
            return _operands(lambda a, b: _arithmetic(op, a, b), left, right, lookup)
        case Compare(op, left, right):
            return _operands(lambda a, b: _comparison(op, a, b), left, right, lookup)
        case And(terms):
            return _first_or_null(terms, lookup, decisive=False)
        case Or(terms):
            return _first_or_null(terms, lookup, decisive=True)
        case Not(inner):
            value = evaluate(inner, lookup)
            return None if value is None else not value
        case IsNull(inner):
            return evaluate(inner, lookup) is None
        case In(inner, literals):
            value = evaluate(inner, lookup)
            found = [_comparison("=", value, evaluate(literal, lookup)) for literal in literals]
            return True if True in found else None if None in found else False
    msg = f"the reference says nothing of {type(term).__name__} terms; compare with a batch query in Spark instead"
    raise Unspecified(msg)


def _operands(function: Callable[[object, object], object], left: Term, right: Term, lookup: Lookup) -> object:
    """A function of two operands; the right one is not evaluated where the left one is NULL."""
    first = evaluate(left, lookup)
    return None if first is None else function(first, evaluate(right, lookup))


def term_of(expression: Expression) -> Term:
    """The tree of an expression inside the kernel subset."""
    if expression.term is None:
        text = expression.sql(lambda ref: f"{ref.role}.{ref.column}")
        msg = f"the reference cannot evaluate {text!r}; compare with a batch query in Spark instead"
        raise Unspecified(msg)
    return expression.term


def value_of(expression: Expression, lookup: Lookup) -> object:
    """The value of a whole expression; one that raises counts as NULL."""
    try:
        return evaluate(term_of(expression), lookup)
    except Raised:
        return None


def holds(expression: Expression, lookup: Lookup) -> bool:
    """Whether a predicate is TRUE; NULL and an expression that raises are not."""
    return value_of(expression, lookup) is True


def compare(left: object, right: object) -> int:
    """-1, 0 or 1 in Spark's order: NaN equals itself and is largest, -0.0 equals 0.0, strings by their UTF-8 bytes."""
    match left, right:
        case (bool(), bool()):
            return (left > right) - (left < right)
        case (bool(), _) | (_, bool()):
            pass
        case (str(), str()):
            a, b = left.encode(), right.encode()
            return (a > b) - (a < b)
        case (int(), int()):
            return (left > right) - (left < right)
        case (Decimal(), Decimal()):
            return (left > right) - (left < right)
        case (int() | float(), int() | float()):
            # Spark widens the integer to double, even where that loses digits.
            x, y = float(left), float(right)
            if math.isnan(x) or math.isnan(y):
                return math.isnan(x) - math.isnan(y)
            return (x > y) - (x < y)
        case (Decimal() | float(), Decimal() | float()):
            return compare(float(left), float(right))
        case (Decimal() | int(), Decimal() | int()):
            return (left > right) - (left < right)
        case (datetime(), datetime()):
            return (left > right) - (left < right)
        case (date(), date()) if not isinstance(left, datetime) and not isinstance(right, datetime):
            return (left > right) - (left < right)
    msg = f"the reference does not compare {left!r} with {right!r}"
    raise Unspecified(msg)


def _comparison(op: str, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    sign = compare(left, right)
    match op:
        case "=":
            return sign == 0
        case "<>":
            return sign != 0
        case "<":
            return sign < 0
        case "<=":
            return sign <= 0
        case ">":
            return sign > 0
        case ">=":
            return sign >= 0
    msg = f"unknown comparison {op!r}"
    raise Unspecified(msg)


def _arithmetic(op: str, left: object, right: object) -> int | float | Decimal | None:
    if left is None or right is None:
        return None
    if op not in ("+", "-", "*", "/"):
        msg = f"unknown arithmetic {op!r}"
        raise Unspecified(msg)
    match left, right:
        case (bool(), _) | (_, bool()):
            pass
        case (int() | float() | Decimal(), int() | float() | Decimal()) if op == "/":
            if right == 0:
                msg = f"{left} / {right} divides by zero"
                raise Raised(msg)
            return float(left) / float(right)
        case (int(), int()):
            total = _OPERATORS[op](left, right)
            if not SMALLEST <= total <= LARGEST:
                msg = f"{left} {op} {right} does not fit 64 bits"
                raise Raised(msg)
            return int(total)
        case (int() | float(), int() | float()):
            return float(_OPERATORS[op](float(left), float(right)))
        case (int() | Decimal(), int() | Decimal()):
            return Decimal(_OPERATORS[op](left, right))
    msg = f"the reference does not compute {left!r} {op} {right!r}"
    raise Unspecified(msg)


def _first_or_null(terms: tuple[Term, ...], lookup: Lookup, *, decisive: bool) -> bool | None:
    """AND (FALSE decides) or OR (TRUE decides), left to right; a term after the deciding one cannot raise."""
    undecided: bool | None = not decisive
    for term in terms:
        value = evaluate(term, lookup)
        if value is decisive:
            return decisive
        if value is None:
            undecided = None
    return undecided
