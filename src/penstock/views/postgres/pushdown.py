"""Conditions that PostgreSQL evaluates exactly as Spark would, as text in its dialect; others are left to the reader.

Only comparisons of a column with a constant are sent: they never raise, use indexes, and mean the same on both sides
(NaN is equal to itself and largest in both; strings are compared byte by byte, which needs the collation "C"). That
holds for columns that are `exact`.
"""

from __future__ import annotations

from penstock.model import And, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term
from penstock.model.expression import FLIPPED
from penstock.model.view import Source
from penstock.views.postgres.capture import quoted, text_literal
from penstock.views.postgres.comparable_columns import Exact

_ORDERED = ("<", "<=", ">", ">=")


def condition(expression: Expression, source: Source, exact: Exact) -> str | None:
    """The condition in PostgreSQL's dialect; None if it must be evaluated here."""
    return None if expression.term is None else _condition(expression.term, source, exact)


def _condition(term: Term, source: Source, exact: Exact) -> str | None:
    match term:
        case Compare(op, Ref() as ref, Literal() as value):
            return _compare(op, ref, value, source, exact)
        case Compare(op, Literal() as value, Ref() as ref):
            return _compare(FLIPPED[op], ref, value, source, exact)
        case In(Ref() as ref, values):
            tests = [_compare("=", ref, value, source, exact) for value in values]
            return _joined(" OR ", tests)
        case IsNull(Ref() as ref):
            return f"{quoted(ref.column)} IS NULL"
        case And(terms):
            return _joined(" AND ", [_condition(t, source, exact) for t in terms])
        case Or(terms):
            return _joined(" OR ", [_condition(t, source, exact) for t in terms])
        case Not(inner):
            text = _condition(inner, source, exact)
            return None if text is None else f"NOT {text}"
        case _:
            return None


def _joined(word: str, parts: list[str | None]) -> str | None:
    found = [part for part in parts if part is not None]
    return f"({word.join(found)})" if len(found) == len(parts) else None


def _compare(op: str, ref: Ref, value: Literal, source: Source, exact: Exact) -> str | None:
    declared = source.column(ref.column)
    if declared is None or ref.column not in exact:
        return None
    constant = _literal(value)
    if constant is None:
        return None
    collation = ' COLLATE "C"' if declared.type == "string" and op in _ORDERED else ""
    return f"({quoted(ref.column)}{collation} {op} {constant})"


def _literal(value: Literal) -> str | None:
    content = value.value
    if content is None:
        return "NULL"
    if isinstance(content, bool):
        return "true" if content else "false"
    if value.type == "bigint":
        return f"'{content}'::bigint"
    if value.type == "double":
        return f"'{content!r}'::double precision"
    if value.type == "string":
        return None if "\0" in str(content) else text_literal(str(content))
    if value.type in ("date", "timestamp", "timestamp_ntz"):
        kind = {"date": "date", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}[value.type]
        return f"{text_literal(str(content))}::{kind}"
    if value.type.startswith("decimal("):
        return f"'{content}'::numeric"
    return None
