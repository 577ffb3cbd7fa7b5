"""Terms with their types, and how Spark's analysis casts several of them to a common type in ANSI mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.columns.terms.raising import may_raise
from penstock.columns.types import decimal_of, exact_digits
from penstock.model import Call, Literal, Term
from penstock.sql.inference import NUMBER_RANK, VOID
from penstock.sql.types import family

MOST_DIGITS = 38
MOST_SCALE = 18  # of decimals converted from integers
_COMPARED = frozenset({"string", "boolean", "date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True)
class Found:
    """A term, its Spark type, and whether it is a constant as written."""

    term: Term
    type: str
    constant: bool = False


def condition(found: Found | None) -> Term | None:
    """The term as a condition: it must be of type boolean, or NULL."""
    return found.term if found is not None and found.type in ("boolean", VOID) else None


def text_constant(found: Found | None) -> str | None:
    """The text of a constant string."""
    constant = found is not None and found.constant and isinstance(found.term, Literal) and found.type == "string"
    return str(found.term.value) if constant and found is not None and isinstance(found.term, Literal) else None


def whole_constant(found: Found | None) -> int | None:
    """The value of a constant 32-bit integer."""
    if found is None or not found.constant or found.type != "int" or not isinstance(found.term, Literal):
        return None
    return int(found.term.value or 0)


def cast(found: Found, kind: str) -> Term:
    """A cast, explicit or inserted by Spark."""
    return found.term if found.type == kind else Call("cast", (found.term,), kind, (found.type,))


def digits_of(found: Found) -> tuple[int, int] | None:
    """Precision and scale of a decimal or integer; of a constant, only the digits it needs."""
    if found.constant and family(found.type) == "integer" and isinstance(found.term, Literal):
        return len(str(abs(int(found.term.value or 0)))), 0
    return exact_digits(found.type)


def in_type(found: Found, kind: str) -> Term | None:
    """The same value in a wider type; None where Spark would cast differently."""
    if found.type in (kind, VOID):
        return found.term
    if exact_digits(kind) is not None and found.type != "double" and not kind.endswith("int"):
        own, wanted = digits_of(found), exact_digits(kind)
        if own is None or wanted is None or own[1] > wanted[1] or own[0] - own[1] > wanted[0] - wanted[1]:
            return None
        return None if family(found.type) == "integer" and wanted[1] > MOST_SCALE else cast(found, kind)
    if kind == "double" and (family(found.type) in ("integer", "floating") or exact_digits(found.type)):
        return cast(found, kind)
    narrower = {found.type, kind} <= NUMBER_RANK.keys() and NUMBER_RANK[found.type] <= NUMBER_RANK[kind]
    return cast(found, kind) if narrower and family(kind) == "integer" else None


def widest(several: Sequence[Found]) -> str | None:
    """The type of a value that is one of several."""
    kinds = {found.type for found in several} - {VOID}
    if len(kinds) == 1:
        return kinds.pop()
    return max(kinds, key=lambda k: NUMBER_RANK[k]) if {family(k) for k in kinds} == {"integer"} else None


def aligned(left: Found, right: Found) -> tuple[Term, Term] | None:
    """Both sides of a comparison in the type in which Spark compares them."""
    kinds = {left.type, right.type}
    if left.type != right.type and any(_is_cast(found, other) for found, other in ((left, right), (right, left))):
        return None  # Spark may rewrite the cast, and skip its operand
    if VOID in kinds or left.type == right.type or {family(k) for k in kinds} == {"integer"}:
        known = all(
            k == VOID or k in _COMPARED or family(k) in ("integer", "floating") or exact_digits(k) for k in kinds
        )
        return (left.term, right.term) if known else None
    common = _common(left, right)
    sides = (None, None) if common is None else (in_type(left, common), in_type(right, common))
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def _is_cast(found: Found, other: Found) -> bool:
    """Whether a side that may raise is cast to the type of the other."""
    ranks = NUMBER_RANK.get(found.type, 0), NUMBER_RANK.get(other.type, 6)
    return ranks[0] < ranks[1] and may_raise(found.term)


def _common(left: Found, right: Found) -> str | None:
    if "float" in (left.type, right.type) and "double" not in (left.type, right.type):
        return None  # 32 bits
    if "double" in (left.type, right.type):
        return "double"
    one, other = digits_of(left), digits_of(right)
    if one is None or other is None:
        return None
    scale = max(one[1], other[1])
    precision = max(one[0] - one[1], other[0] - other[1]) + scale
    return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else None


def together(operator: str, left: Found, right: Found) -> tuple[Term, Term, str] | None:
    """The operands of `+ - * / % div` as Spark casts them, and the result type."""
    kinds = {left.type, right.type}
    families = {family(k) for k in kinds}
    if families == {"integer"}:
        wide = max(left.type, right.type, key=lambda k: NUMBER_RANK[k])
        if operator == "/":
            return cast(left, "double"), cast(right, "double"), "double"
        return left.term, right.term, "bigint" if operator == "div" else wide
    if operator == "div" or not all(family(k) in ("integer", "floating") or exact_digits(k) for k in kinds):
        return None
    if "double" in kinds:
        one, other = in_type(left, "double"), in_type(right, "double")
        return None if one is None or other is None else (one, other, "double")
    return None if "float" in kinds else _decimals(operator, left, right)


def _decimals(operator: str, left: Found, right: Found) -> tuple[Term, Term, str] | None:
    """By Spark's rule of precision, if it holds every result."""
    one, other = digits_of(left), digits_of(right)
    if one is None or other is None or operator not in ("+", "-", "*"):
        return None
    precision, scale = decimal_of(operator, one, other)
    if precision > MOST_DIGITS:
        return None
    sides = [in_type(found, f"decimal({p},{s})") for found, (p, s) in ((left, one), (right, other))]
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1], f"decimal({precision},{scale})")
