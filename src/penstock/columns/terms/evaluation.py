"""Evaluate terms over columns: three-valued logic, Spark's order of values, checked sums, functions of `columns/terms`.

In Spark an operand is evaluated, and may raise, only if those before it are not NULL; a condition, only if none before
it decides. Here all are computed for all rows, and errors count only where Spark would have evaluated the term.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.terms import FUNCTIONS
from penstock.columns.terms.arithmetic import overflow
from penstock.columns.terms.values import Flags, Values, as_arrow, nulls, plain, typed
from penstock.model import And, Arithmetic, Call, Choice, Compare, In, IsNull, Literal, Not, Or, Ref, Term, Typed

Lookup = Callable[[Ref], pa.Array]

_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARROW = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_BACKWARDS = frozenset({"/", "%", "div"})  # Spark evaluates the divisor first


def holds(term: Term, lookup: Lookup, rows: int) -> tuple[Flags, Flags]:
    """(rows where the term is TRUE, rows where evaluating it raised)."""
    return Evaluation(lookup, rows).holds(term)


def values(term: Term, lookup: Lookup, rows: int) -> tuple[pa.Array, Flags]:
    """(the term as an Arrow column, NULL where it raised; rows where it raised)."""
    return Evaluation(lookup, rows).values(term)


class Evaluation:
    """Terms over the same rows: calls with the same arguments are computed once."""

    def __init__(self, lookup: Lookup, rows: int) -> None:
        self.lookup, self.rows = lookup, rows
        self._known: dict[Term, Values] = {}

    def holds(self, term: Term) -> tuple[Flags, Flags]:
        """(rows where the term is TRUE, rows where evaluating it raised)."""
        truth = self._of(term)
        return truth.valid & ~truth.raised & np.asarray(truth.data, dtype=np.bool_), truth.raised

    def values(self, term: Term) -> tuple[pa.Array, Flags]:
        """(the term as an Arrow column, NULL where it raised; rows where it raised)."""
        found = self._of(term)
        kind = term.type if isinstance(term, Typed | Call | Choice) else None
        return as_arrow(found, kind), found.raised

    def _of(self, term: Term) -> Values:
        match term:
            case Ref():
                return plain(self.lookup(term), self.rows)
            case Literal(value, kind):
                return _literal(value, kind, self.rows)
            case Arithmetic(op, left, right):
                return _arithmetic(op, self._of(left), self._of(right))
            case Compare(op, left, right):
                return _compare(op, self._of(left), self._of(right))
            case In(inner, options):
                tested = self._of(inner)
                return reduce(_or, [_compare("=", tested, _literal(o.value, o.type, self.rows)) for o in options])
            case IsNull(Typed(Ref() as column)):
                return self._of(IsNull(column))
            case IsNull(Ref() as column):  # of any type, even one that nothing else here reads
                found = self.lookup(column).is_null().to_numpy(zero_copy_only=False)
                return Values(found, np.ones(self.rows, dtype=np.bool_), np.zeros(self.rows, dtype=np.bool_))
            case IsNull(inner):
                tested = self._of(inner)
                return Values(~tested.valid, np.ones(self.rows, dtype=np.bool_), tested.raised)
            case And(terms):
                return _negate(reduce(_or, [_negate(self._of(t)) for t in terms]))
            case Or(terms):
                return reduce(_or, [self._of(t) for t in terms])
            case Not(inner):
                return _negate(self._of(inner))
            case Typed() | Call() | Choice():
                if term not in self._known:
                    self._known[term] = self._computed(term)
                return self._known[term]

    def _computed(self, term: Typed | Call | Choice) -> Values:
        match term:
            case Typed(Ref() as column, kind):
                return typed(self.lookup(column), kind, self.rows)
            case Typed(inner, _):
                return self._of(inner)
            case Call():
                return _called(term, [self._of(argument) for argument in term.arguments])
            case Choice(branches, default, kind):
                return self._chosen(branches, default, kind)

    def _chosen(self, branches: Sequence[tuple[Term, Term]], default: Term, kind: str) -> Values:
        found, open_rows = nulls(kind, self.rows), np.ones(self.rows, dtype=np.bool_)
        for condition, value in branches:
            truth = self._of(condition)
            wrong = open_rows & truth.raised
            chosen = open_rows & truth.valid & ~truth.raised & np.asarray(truth.data, dtype=np.bool_)
            if chosen.any():
                found = _instead(found, chosen, self._of(value))
            found = Values(found.data, found.valid, found.raised | wrong)
            open_rows &= ~(chosen | wrong)
        return _instead(found, open_rows, self._of(default)) if open_rows.any() else found


def _instead(found: Values, chosen: Flags, value: Values) -> Values:
    """Replace the values of some rows."""
    valid = np.where(chosen, value.valid, found.valid)
    raised = np.where(chosen, value.raised, found.raised)
    if not value.valid.any():
        return Values(found.data, valid, raised)
    if isinstance(found.data, pa.Array):
        return Values(pc.if_else(pa.array(chosen), value.data, found.data), valid, raised)
    return Values(np.where(chosen, value.data, found.data), valid, raised)


def _called(call: Call, arguments: Sequence[Values]) -> Values:
    before, *others = reversed(arguments) if call.function in _BACKWARDS else arguments
    valid, raised = before.valid, before.raised
    for argument in others:
        valid, raised = valid & argument.valid, raised | (valid & argument.raised)
    data, wrong = FUNCTIONS[call.function](call, arguments)
    if wrong is not None and wrong.any():
        raised = raised | (wrong & valid)
        if isinstance(data, np.ndarray):
            data = np.where(wrong, data.dtype.type(0), data)  # so that any result computed from it fits its type
    return Values(data, valid, raised)


def _literal(value: Any, kind: str, rows: int) -> Values:
    none = np.zeros(rows, dtype=np.bool_)
    if value is None:
        return Values(none, none, none)
    valid = np.ones(rows, dtype=np.bool_)
    if kind == "string":
        return Values(pa.scalar(value, pa.string()), valid, none)
    if kind.startswith("decimal("):
        return Values(pa.scalar(Decimal(value)), valid, none)
    types = {"bigint": np.int64, "double": np.float64, "boolean": np.bool_}
    return Values(np.full(rows, value, dtype=types[kind]), valid, none)


def _compare(op: str, left: Values, right: Values) -> Values:
    valid, raised = left.valid & right.valid, left.raised | (left.valid & right.raised)
    if not valid.any():
        return Values(np.zeros(len(valid), dtype=np.bool_), valid, raised)
    if any(isinstance(side.data, pa.Array | pa.Scalar) for side in (left, right)):
        truth = _ARROW[op](*_exact(left.data, right.data))
        if isinstance(truth, pa.Scalar):
            return Values(np.full(len(valid), truth.as_py()), valid, raised)
        return Values(pc.fill_null(truth, False).to_numpy(zero_copy_only=False), valid, raised)
    truth = np.asarray(_NUMPY[op](left.data, right.data), dtype=np.bool_)
    if left.data.dtype.kind == "f" or right.data.dtype.kind == "f":
        # Spark: NaN equals NaN and is greater than any other value; IEEE says neither.
        a, b = np.isnan(left.data), np.isnan(right.data)
        truth = np.where(a | b, _NUMPY[op](a.astype(np.int8), b.astype(np.int8)), truth)
    return Values(truth, valid, raised)


def _exact(left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides as one Arrow type without loss of digits: decimals of two types, or a decimal and integers."""
    sides = [
        pa.array(side).cast(pa.decimal128(19, 0)) if isinstance(side, np.ndarray) else side for side in (left, right)
    ]
    if not all(pa.types.is_decimal(side.type) for side in sides) or sides[0].type == sides[1].type:
        return sides[0], sides[1]
    both = pa.decimal256(76, max(side.type.scale for side in sides))
    return sides[0].cast(both), sides[1].cast(both)


def _arithmetic(op: str, left: Values, right: Values) -> Values:
    valid, raised = left.valid & right.valid, left.raised | (left.valid & right.raised)
    a, b = left.data, right.data
    with np.errstate(over="ignore", invalid="ignore"):
        data = a + b if op == "+" else a - b
    if a.dtype.kind == "i" and b.dtype.kind == "i":
        raised = raised | (overflow(op, a, b, data) & valid)
    return Values(data, valid, raised)


def _or(left: Values, right: Values) -> Values:
    # Evaluated from left to right: where the left side is true, the right one does not raise.
    a = np.asarray(left.data, dtype=np.bool_) & left.valid & ~left.raised
    b = np.asarray(right.data, dtype=np.bool_) & right.valid
    truth = a | b
    return Values(truth, truth | (left.valid & right.valid), left.raised | (right.raised & ~a))


def _negate(value: Values) -> Values:
    return Values(~np.asarray(value.data, dtype=np.bool_), value.valid, value.raised)
