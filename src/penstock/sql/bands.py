"""Time conditions between two roles as bounds on the difference of their event times.

Only comparisons that are exactly such a bound become bands; the caller keeps all others as ordinary conditions.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.model import Band
from penstock.model.stream import INTEGER_TYPES, TIME_TYPES
from penstock.model.time import DAY, LATEST
from penstock.sql.inference import integer_literal, type_of
from penstock.sql.lengths import interval_length, span_length
from penstock.sql.scope import Scope, ref_of, unwrapped


@dataclass(frozen=True)
class _Linear:
    """A sum of event times (by role, with signs) and a constant."""

    times: tuple[tuple[int, int], ...]
    constant: int
    types: frozenset[str]

    @property
    def order(self) -> int:
        """1 for a point in time, 0 for a difference of two points."""
        return sum(sign for _, sign in self.times)

    def plus(self, other: _Linear, sign: int) -> _Linear:
        signs = dict(self.times)
        for role, amount in other.times:
            signs[role] = signs.get(role, 0) + sign * amount
        times = tuple((role, s) for role, s in sorted(signs.items()) if s)
        return _Linear(times, self.constant + sign * other.constant, self.types | other.types)


def bands_of(node: exp.Expr, scope: Scope) -> tuple[Band, ...] | None:
    """The bands that are equivalent to a comparison; None if there are none."""
    node = unwrapped(node)
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    left, right = _linear(node.this, scope), _linear(node.expression, scope)
    if left is None or right is None:
        return None
    integer = scope.integer_time
    if not integer and left.order != right.order:
        return None
    difference = left.plus(right, -1)
    signs = {sign: role for role, sign in difference.times}
    if len(difference.times) != 2 or set(signs) != {1, -1}:
        return None
    if not integer and (len(difference.types) != 1 or not _whole_days(difference)):
        return None
    plus, minus, constant = signs[1], signs[-1], difference.constant
    # ts(plus) - ts(minus) + constant  <op>  0, over integers
    below = Band(minus, plus, -constant - (1 if isinstance(node, exp.LT) else 0))
    above = Band(plus, minus, constant - (1 if isinstance(node, exp.GT) else 0))
    if abs(constant) >= LATEST:
        return None  # sums of a time and a bound must stay within 64 bits
    if isinstance(node, exp.EQ):
        return below, above
    return (below,) if isinstance(node, exp.LT | exp.LTE) else (above,)


def _whole_days(difference: _Linear) -> bool:
    """Dates differ by whole days; with a finer interval Spark would compare timestamps instead."""
    return difference.types != {"date"} or difference.constant % DAY == 0


def _linear(node: exp.Expr, scope: Scope) -> _Linear | None:
    node = unwrapped(node)
    ref = ref_of(node)
    if ref is not None:
        declared = type_of(node)
        if ref.role < 0 or ref.column != scope.streams[ref.role].event_time or declared is None:
            return None
        known = INTEGER_TYPES if scope.integer_time else TIME_TYPES
        return _Linear(((ref.role, 1),), 0, frozenset({declared})) if declared in known else None
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _linear(node.this, scope), _linear(node.expression, scope)
        if left is None or right is None:
            return None
        total = left.plus(right, 1 if isinstance(node, exp.Add) else -1)
        # Spark has no sum of two times, and no interval minus a time.
        return total if scope.integer_time or total.order in (0, 1) else None
    if scope.integer_time:
        constant = integer_literal(node)
        return None if constant is None else _Linear((), constant[0], frozenset())
    length = _interval(node)
    return None if length is None else _Linear((), length, frozenset())


def _interval(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Neg):
        inner = _interval(unwrapped(node.this))
        return None if inner is None else -inner
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    unit = node.args.get("unit")
    amount = unwrapped(node.this)
    sign = "-" if isinstance(amount, exp.Neg) else ""
    literal = unwrapped(amount.this) if sign else amount
    if not isinstance(literal, exp.Literal):
        return None
    if isinstance(unit, exp.IntervalSpan):
        length = span_length(literal.name, unit.this.name, unit.expression.name) if literal.is_string else None
        return None if length is None else -length if sign else length
    if unit is not None and not isinstance(unit, exp.Var):
        return None
    return interval_length(sign + literal.name, unit.name if unit is not None else None)
