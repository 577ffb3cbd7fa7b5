"""Join keys: the common type in which the parts of a key are compared, and the SQL that casts a column to it.

Keys compare as in Spark: NULL never matches, NaN equals NaN, -0.0 equals 0.0. A key travels as one 64-bit hash; for a
single integral part the hash is one-to-one, so that equal hashes are equal keys and need no verification.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.model import Call, Choice, Compare, Expression, Literal, Ref, Stream, Term, Typed
from penstock.model.stream import INTEGER_TYPES

# Types whose value is one integer: the hash of a single such part is a bijection on 64 bits.
INTEGRAL = {"bigint": "{}", "date": "unix_date({})", "timestamp": "unix_micros({})", "boolean": "CAST({} AS BIGINT)"}
_PLAIN = {"string", "binary", "timestamp_ntz", "date", "timestamp", "boolean"}
_FLOATING = {"float", "double"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def is_typed(kind: str) -> bool:
    """Whether terms can have values of a type."""
    return kind in INTEGER_TYPES | _FLOATING | _PLAIN - {"binary"} or _DECIMAL.fullmatch(kind) is not None


def common_type(types: Sequence[str]) -> str | None:
    """The type in which values of all these types compare without loss, or None."""
    kinds = set(types)
    if kinds <= INTEGER_TYPES:
        return "bigint"
    if kinds <= INTEGER_TYPES | _FLOATING:
        return "double"
    if len(kinds) == 1 and (kinds <= _PLAIN or _DECIMAL.fullmatch(types[0])):
        return types[0]
    widths = [_precision(t) for t in types]
    known = [w for w in widths if w is not None]
    if len(known) == len(widths):
        scale = max(s for _, s in known)
        whole = max(p - s for p, s in known)
        if whole + scale <= 38:
            return f"decimal({whole + scale},{scale})"
    return None


def normalized(expression: Expression, declared: str | None, common: str) -> tuple[str | Ref, ...]:
    """SQL (with placeholders for columns) of a key part in its common type, so that equal keys have equal bytes."""
    parts = expression.parts
    if common == "double":
        return ("(CASE WHEN CAST(", *parts, " AS DOUBLE) = 0 THEN 0D ELSE CAST(", *parts, " AS DOUBLE) + 0D END)")
    if declared == common:
        return parts
    return ("CAST(", *parts, f" AS {common.upper()})")


def normalized_term(expression: Expression, declared: str | None, common: str) -> Term | None:
    """The same as a term, if kernels can compute it."""
    term = typed(expression.term, declared)
    if term is None or declared is None:
        return None
    if common == "double":
        wide = term if declared == common else Call("cast", (term,), common, (declared,))
        zero = Literal(0.0, "double")
        return Choice(((Compare("=", wide, zero), zero),), wide, common)
    if declared == common:
        return term
    whole = declared in INTEGER_TYPES and common in INTEGER_TYPES
    decimals = _precision(declared) is not None and _DECIMAL.fullmatch(common) is not None
    return Call("cast", (term,), common, (declared,)) if whole or decimals else None


def typed(term: Term | None, declared: str | None) -> Term | None:
    """A term with values of Spark's type; None if that type is unknown."""
    match term:
        case Ref() if declared is not None and is_typed(declared):
            return Typed(term, declared)
        case Ref() | Literal():
            return None
    return term


def bare_columns(key: Sequence[tuple[str | Ref, ...]], types: Sequence[str], stream: Stream) -> tuple[str, ...] | None:
    """The columns that are the parts of a key, unchanged or widened; None if some part is anything else.

    Kernels hash such keys as Spark does (`columns/hash.py`); all others Spark hashes itself.
    """
    found = []
    for part, common in zip(key, types, strict=True):
        refs = {p for p in part if isinstance(p, Ref)}
        declared = stream.column(next(iter(refs)).column) if len(refs) == 1 else None
        if declared is None or not _widens(declared.type, common):
            return None
        if part != normalized(Expression(tuple(refs), None, total=True), declared.type, common):
            return None
        found.append(declared.name)
    return tuple(found)


def _widens(declared: str, common: str) -> bool:
    if common in ("bigint", "double"):
        return declared in INTEGER_TYPES | (_FLOATING if common == "double" else set())
    return declared == common and (common in _PLAIN or _DECIMAL.fullmatch(common) is not None)


def _precision(kind: str) -> tuple[int, int] | None:
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None
