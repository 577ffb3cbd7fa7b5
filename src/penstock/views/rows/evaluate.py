"""Expressions of views over Arrow tables: their plain terms get the types and casts of Spark's ANSI mode.

Overflow and division by zero raise, as in Spark: no row of a view may be left out because of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa

from penstock.columns.parcels import one_array
from penstock.columns.terms.evaluation import Evaluation, Lookup
from penstock.columns.terms.values import WIDTHS, Flags
from penstock.columns.types import decimal_of, exact_digits, spark_type
from penstock.errors import StepError
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

Naming = Callable[[Ref], str]
Found = tuple[Term, str]  # with its Spark type

_VOID = "void"
_FLOATING = frozenset({"float", "double"})
_DAY_ONE = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def select(table: pa.Table, filters: Sequence[Expression], name: Naming) -> pa.Table:
    """The rows for which every filter is TRUE."""
    for expression in filters:
        term, _ = _typed(_term(expression), _kinds(table, name))
        found, raised = Evaluation(_lookup(table, name), table.num_rows).holds(term)
        _refuse(expression, raised)
        table = table.filter(pa.array(found))
    return table


def column(table: pa.Table, expression: Expression, name: Naming) -> pa.ChunkedArray:
    """The values of an expression, one per row; `name` maps its columns to the table's."""
    plain = _term(expression)
    if isinstance(plain, Ref):
        return table.column(name(plain))
    term, kind = _typed(plain, _kinds(table, name))
    if kind == _VOID:
        return pa.chunked_array([pa.nulls(table.num_rows)])
    found, raised = Evaluation(_lookup(table, name), table.num_rows).values(Typed(term, kind))
    _refuse(expression, raised)
    return pa.chunked_array([found])


def _term(expression: Expression) -> Term:
    assert expression.term is not None, "a view's expressions all have terms"
    return expression.term


def _lookup(table: pa.Table, name: Naming) -> Lookup:
    return lambda ref: one_array(table.column(name(ref)))


def _kinds(table: pa.Table, name: Naming) -> Naming:
    return lambda ref: spark_type(table.schema.field(name(ref)).type) or _VOID


def _refuse(expression: Expression, raised: Flags) -> None:
    if raised.any():
        text = expression.sql(lambda ref: f"`{ref.column}`")
        msg = f"{text} cannot be computed for every row: it overflows or divides by zero; guard it with a condition"
        raise StepError(msg)


def _typed(term: Term, kind_of: Naming) -> Found:
    """A plain term with casts wherever Spark has them, and its type."""

    def of(inner: Term) -> Found:
        return _typed(inner, kind_of)

    match term:
        case Ref():
            return Typed(term, kind_of(term)), kind_of(term)
        case Literal():
            return _constant(term)
        case Arithmetic(op, left, right):
            return _computed(op, of(left), of(right))
        case Compare(op, left, right):
            return _compared(op, of(left), of(right))
        case In(inner, options):
            return Or(tuple(_compared("=", of(inner), of(option))[0] for option in options)), "boolean"
        case IsNull(inner):
            return IsNull(of(inner)[0]), "boolean"
        case And(terms):
            return And(tuple(of(t)[0] for t in terms)), "boolean"
        case Or(terms):
            return Or(tuple(of(t)[0] for t in terms)), "boolean"
        case Not(inner):
            return Not(of(inner)[0]), "boolean"
        case _:
            raise AssertionError(term)  # only queries over streams have typed terms


def _constant(constant: Literal) -> Found:
    """A constant; times are numbers."""
    value, kind = constant.value, _VOID if constant.value is None else constant.type
    if kind == "date":
        return Typed(Literal((date.fromisoformat(str(value)) - _DAY_ONE).days, "bigint"), kind), kind
    if kind in ("timestamp", "timestamp_ntz"):
        moment = datetime.fromisoformat(str(value))
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return Typed(Literal(micros, "bigint"), kind), kind
    return constant, kind


def _computed(op: str, left: Found, right: Found) -> Found:
    (_, one), (_, other) = left, right
    if _VOID in (one, other):
        kind = other if one == _VOID else one
        return Choice((), Literal(None, _VOID), kind), kind
    if op == "/" or _FLOATING & {one, other}:
        term = Call(op, (_double(left), _double(right)), "double")
        return (_cast(term, "double", "float"), "float") if one == other == "float" and op != "/" else (term, "double")
    if one in WIDTHS and other in WIDTHS:
        kind = max(_width(left), _width(right), key=WIDTHS.__getitem__)
        return Call(op, (left[0], right[0]), kind), kind
    kind = "decimal({},{})".format(*decimal_of(op, _digits(left), _digits(right)))
    return Call(op, (_decimal(left), _decimal(right)), kind), kind


def _compared(op: str, left: Found, right: Found) -> Found:
    terms = left[0], right[0]
    if _FLOATING & {left[1], right[1]} and _VOID not in (left[1], right[1]):
        terms = _double(left), _double(right)
    return Compare(op, *terms), "boolean"


def _double(side: Found) -> Term:
    term, kind = side
    return term if kind in _FLOATING else _cast(term, kind, "double")


def _decimal(side: Found) -> Term:
    term, kind = side
    return _cast(term, kind, "decimal({},{})".format(*_digits(side))) if kind in WIDTHS else term


def _width(side: Found) -> str:
    """The integer type of one side: a constant is an INT where it fits, as in Spark."""
    term, kind = side
    small = isinstance(term, Literal) and -(2**31) <= int(str(term.value)) < 2**31
    return "int" if small else kind


def _digits(side: Found) -> tuple[int, int]:
    term, kind = side
    if isinstance(term, Literal) and kind in WIDTHS:
        return len(str(abs(int(str(term.value))))), 0
    digits = exact_digits(kind)
    assert digits is not None
    return digits


def _cast(term: Term, source: str, target: str) -> Term:
    return Call("cast", (term,), target, (source,))
