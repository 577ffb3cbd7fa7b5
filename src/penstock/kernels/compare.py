"""Evaluate terms of the kernel subset over whole columns: three-valued logic, Spark's order of values, checked sums."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import And, Arithmetic, Compare, In, IsNull, Literal, Not, Or, Ref, Term

Flags = npt.NDArray[np.bool_]
Lookup = Callable[[Ref], pa.Array]

_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARROW = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """A column of numbers or strings: `data` is NumPy (numbers, Booleans, decimals as objects) or Arrow (strings)."""

    data: Any
    valid: Flags
    raised: Flags


def holds(term: Term, lookup: Lookup, rows: int) -> tuple[Flags, Flags]:
    """(rows where the term is TRUE, rows where evaluating it raised)."""
    truth = _evaluate(term, lookup, rows)
    return truth.valid & ~truth.raised & np.asarray(truth.data, dtype=np.bool_), truth.raised


def values(term: Term, lookup: Lookup, rows: int) -> tuple[pa.Array, Flags]:
    """(the term as an Arrow column, NULL where it raised; rows where it raised)."""
    found = _evaluate(term, lookup, rows)
    valid = found.valid & ~found.raised
    if isinstance(found.data, pa.Array):
        return pc.if_else(pa.array(valid), found.data, None), found.raised
    return pa.array(found.data, mask=~valid), found.raised


def _evaluate(term: Term, lookup: Lookup, rows: int) -> Values:
    match term:
        case Ref():
            return _column(lookup(term), rows)
        case Literal(value, kind):
            return _literal(value, kind, rows)
        case Arithmetic(op, left, right):
            return _arithmetic(op, _evaluate(left, lookup, rows), _evaluate(right, lookup, rows))
        case Compare(op, left, right):
            return _compare(op, _evaluate(left, lookup, rows), _evaluate(right, lookup, rows))
        case In(inner, options):
            tested = _evaluate(inner, lookup, rows)
            return reduce(_or, [_compare("=", tested, _literal(o.value, o.type, rows)) for o in options])
        case IsNull(Ref() as column):  # of any type, also one that nothing else here can read
            found = lookup(column).is_null().to_numpy(zero_copy_only=False)
            return Values(found, np.ones(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_))
        case IsNull(inner):
            tested = _evaluate(inner, lookup, rows)
            return Values(~tested.valid, np.ones(rows, dtype=np.bool_), tested.raised)
        case And(terms):
            return _negate(reduce(_or, [_negate(_evaluate(t, lookup, rows)) for t in terms]))
        case Or(terms):
            return reduce(_or, [_evaluate(t, lookup, rows) for t in terms])
        case Not(inner):
            return _negate(_evaluate(inner, lookup, rows))


def _column(array: pa.Array, rows: int) -> Values:
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    none = np.zeros(rows, dtype=np.bool_)
    if pa.types.is_null(array.type):  # stored before any query wanted the column
        return Values(np.zeros(rows, dtype=np.int64), none, none)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return Values(array, valid, none)
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    data = array.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(array.type):
        data = data.astype(np.int64, copy=False)
    elif pa.types.is_floating(array.type):
        data = data.astype(np.float64, copy=False)
    return Values(data, valid, none)


def _literal(value: Any, kind: str, rows: int) -> Values:
    none = np.zeros(rows, dtype=np.bool_)
    if value is None:
        return Values(none, none, none)
    valid = np.ones(rows, dtype=np.bool_)
    if kind == "string":
        return Values(pa.scalar(value, pa.string()), valid, none)
    if kind.startswith("decimal("):
        return Values(np.full(rows, Decimal(value), dtype=np.object_), valid, none)
    types = {"bigint": np.int64, "double": np.float64, "boolean": np.bool_}
    return Values(np.full(rows, value, dtype=types[kind]), valid, none)


def _compare(op: str, left: Values, right: Values) -> Values:
    valid, raised = left.valid & right.valid, left.raised | right.raised
    if not valid.any():
        return Values(np.zeros(len(valid), dtype=np.bool_), valid, raised)
    if isinstance(left.data, pa.Array | pa.Scalar):
        truth = _ARROW[op](left.data, right.data)
        if isinstance(truth, pa.Scalar):
            return Values(np.full(len(valid), truth.as_py()), valid, raised)
        return Values(pc.fill_null(truth, False).to_numpy(zero_copy_only=False), valid, raised)
    truth = np.asarray(_NUMPY[op](left.data, right.data), dtype=np.bool_)
    if left.data.dtype.kind == "f" or right.data.dtype.kind == "f":
        # Spark: NaN equals NaN and is greater than any other value; IEEE says neither.
        a, b = np.isnan(left.data), np.isnan(right.data)
        truth = np.where(a | b, _NUMPY[op](a.astype(np.int8), b.astype(np.int8)), truth)
    return Values(truth, valid, raised)


def _arithmetic(op: str, left: Values, right: Values) -> Values:
    valid, raised = left.valid & right.valid, left.raised | right.raised
    a, b = left.data, right.data
    with np.errstate(over="ignore", invalid="ignore"):
        data = a + b if op == "+" else a - b
    if a.dtype.kind == "i" and b.dtype.kind == "i":
        # Overflow iff the signs of the operands (of a and -b for a difference) agree and the result's differs.
        overflow = ((a ^ data) & (b ^ data)) < 0 if op == "+" else ((a ^ b) & (a ^ data)) < 0
        raised = raised | (overflow & valid)
    return Values(data, valid, raised)


def _or(left: Values, right: Values) -> Values:
    # Evaluated from left to right: a true left side keeps the right one from raising.
    a = np.asarray(left.data, dtype=np.bool_) & left.valid & ~left.raised
    b = np.asarray(right.data, dtype=np.bool_) & right.valid
    truth = a | b
    return Values(truth, truth | (left.valid & right.valid), left.raised | (right.raised & ~a))


def _negate(value: Values) -> Values:
    return Values(~np.asarray(value.data, dtype=np.bool_), value.valid, value.raised)
