"""Terms over Arrow tables, as in Spark's ANSI mode: three-valued logic, NaN equal to NaN and greater than all others.

More than plain terms: `*` and `/` of numbers, and constants of type date, timestamp and decimal. Overflow and division
by zero raise, as in Spark: no row of a view may be left out because of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.types import arrow_type
from penstock.errors import StepError
from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term
from penstock.views.rows.fit import as_double

Naming = Callable[[Ref], str]

_COMPARE = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_ARITHMETIC = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def select(table: pa.Table, filters: Sequence[Expression], name: Naming) -> pa.Table:
    """The rows for which every filter is TRUE."""
    for expression in filters:
        table = table.filter(column(table, expression, name), null_selection_behavior="drop")
    return table


def column(table: pa.Table, expression: Expression, name: Naming) -> pa.ChunkedArray:
    """The values of an expression, one per row; `name` maps its columns to the table's."""
    assert expression.term is not None, "a view's expressions all have terms"
    try:
        found = _value(expression.term, table, name)
    except pa.ArrowInvalid as error:
        text = expression.sql(lambda ref: f"`{ref.column}`")
        raise StepError(f"{text} cannot be computed for every row: {error}; guard it with a condition") from None
    if isinstance(found, pa.Scalar):
        return pa.chunked_array([pa.repeat(found, table.num_rows)])
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def literal(value: Literal) -> pa.Scalar:
    """A constant in Arrow."""
    if value.value is None:
        return pa.scalar(None)
    text = str(value.value)
    if value.type == "date":
        return pa.scalar(date.fromisoformat(text), pa.date32())
    if value.type == "timestamp":
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return pa.scalar(moment, pa.timestamp("us", tz="UTC"))
    if value.type == "timestamp_ntz":
        return pa.scalar(datetime.fromisoformat(text), pa.timestamp("us"))
    if value.type.startswith("decimal("):
        return pa.scalar(Decimal(text), arrow_type(value.type))
    return pa.scalar(value.value, arrow_type(value.type))


def _value(term: Term, table: pa.Table, name: Naming) -> Any:
    match term:
        case Ref():
            return table.column(name(term))
        case Literal():
            return literal(term)
        case Arithmetic(op, left, right):
            return _arithmetic(op, _value(left, table, name), _value(right, table, name))
        case Compare(op, left, right):
            return _compare(op, _value(left, table, name), _value(right, table, name))
        case In(inner, options):
            return _membership(_value(inner, table, name), [literal(option) for option in options])
        case IsNull(inner):
            return pc.is_null(_value(inner, table, name))
        case And(terms):
            return reduce(pc.and_kleene, [_truth(_value(t, table, name)) for t in terms])
        case Or(terms):
            return reduce(pc.or_kleene, [_truth(_value(t, table, name)) for t in terms])
        case Not(inner):
            return pc.invert(_truth(_value(inner, table, name)))


def _truth(value: Any) -> Any:
    return pc.cast(value, pa.bool_()) if pa.types.is_null(value.type) else value


def _arithmetic(op: str, left: Any, right: Any) -> Any:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        other = left if pa.types.is_null(right.type) else right
        return pc.if_else(pc.is_null(other), None, pa.scalar(None, other.type))
    one, other = left, right
    if pa.types.is_floating(one.type) != pa.types.is_floating(other.type) or op == "/":
        one, other = (as_double(side) if side.type != pa.float64() else side for side in (one, other))
    elif pa.types.is_integer(one.type) and pa.types.is_integer(other.type):
        kind = max(_integer_type(one), _integer_type(other), key=lambda t: t.bit_width)
        one, other = pc.cast(one, kind), pc.cast(other, kind)
    elif pa.types.is_decimal(one.type) != pa.types.is_decimal(other.type):
        one, other = _as_decimal(one), _as_decimal(other)
    if op != "/":
        return _ARITHMETIC[op](one, other)
    # In Arrow 1.0 / 0.0 is infinite; in Spark's ANSI mode it raises.
    if pc.any(pc.and_kleene(pc.equal(other, 0.0), pc.is_valid(one))).as_py():
        raise pa.ArrowInvalid("divide by zero")
    return pc.divide(one, other)


def _integer_type(value: Any) -> pa.DataType:
    """An integer constant is an INT where it fits, as in Spark."""
    small = isinstance(value, pa.Scalar) and value.is_valid and -(2**31) <= value.as_py() < 2**31
    return pa.int32() if small else value.type


def _as_decimal(value: Any) -> Any:
    if pa.types.is_decimal(value.type):
        return value
    if isinstance(value, pa.Scalar) and value.is_valid:
        return pa.scalar(Decimal(value.as_py()), pa.decimal128(len(str(abs(value.as_py()))), 0))
    return pc.cast(value, pa.decimal128(_INTEGER_DIGITS[value.type], 0))


def _compare(op: str, left: Any, right: Any) -> Any:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        side = left if isinstance(right, pa.Scalar) else right
        return pa.scalar(None, pa.bool_()) if isinstance(side, pa.Scalar) else pa.nulls(len(side), pa.bool_())
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        return _COMPARE[op](left, right)
    left, right = (as_double(side) if side.type != pa.float64() else side for side in (left, right))
    truth = _COMPARE[op](left, right)
    a, b = pc.is_nan(left), pc.is_nan(right)
    ranked = _COMPARE[op](pc.cast(a, pa.int8()), pc.cast(b, pa.int8()))
    return pc.if_else(pc.or_(a, b), ranked, truth)


def _membership(tested: Any, options: list[pa.Scalar]) -> Any:
    return reduce(pc.or_kleene, [_compare("=", tested, option) for option in options])
