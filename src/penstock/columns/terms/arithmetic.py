"""`+ - * / % div`, negation and absolute value, as in Spark's ANSI mode: overflow and division by zero raise."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.terms.values import WIDTHS, Flags, Ints, Values
from penstock.columns.types import arrow_type
from penstock.model import Call

SMALLEST = np.iinfo(np.int64).min
Outcome = tuple[Any, Flags | None]  # (data, where it raises)

_NUMPY: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_ARROW = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def combined(call: Call, arguments: Sequence[Values]) -> Outcome:
    """`+`, `-` or `*` of values of one kind."""
    left, right = (a.data for a in arguments)
    if call.type.startswith("decimal("):  # wide enough for every value, by the rule that Spark and Arrow share
        if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
            left = pa.repeat(left, len(arguments[0].valid))
        return _ARROW[call.function](left, right).cast(arrow_type(call.type)), None
    with np.errstate(over="ignore", invalid="ignore"):
        data = _NUMPY[call.function](left, right)
    if call.type == "double":
        return data, None
    return data, overflow(call.function, left, right, data) if call.type == "bigint" else outside(data, call.type)


def overflow(op: str, left: Ints, right: Ints, data: Ints) -> Flags:
    """Where a 64-bit result is not the exact one."""
    if op == "+":  # the operands have the same sign and the result has the other
        return ((left ^ data) & (right ^ data)) < 0
    if op == "-":
        return ((left ^ right) & (left ^ data)) < 0
    most = _largest(left) * _largest(right)
    if most < 2**63:
        return np.zeros(len(data), dtype=np.bool_)
    divisor = np.where((right == 0) | (right == -1), 1, right)
    wrong = (data // divisor != left) & (right != 0) & (right != -1)
    # Dividing a wrapped product back may give the operand by chance, but only with a remainder.
    wrong |= (data % divisor != 0) & (right != 0) & (right != -1)
    return np.asarray(wrong | ((right == -1) & (left == SMALLEST)))


def _largest(numbers: Ints) -> int:
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0


def outside(data: Ints, kind: str) -> Flags | None:
    """Where an integer exceeds its type."""
    if kind == "bigint":
        return None
    limit = 1 << (WIDTHS[kind] - 1)
    return np.asarray((data < -limit) | (data >= limit))


def divided(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """`/` of doubles."""
    left, right = (a.data for a in arguments)
    zero = right == 0
    with np.errstate(all="ignore"):
        return left / np.where(zero, 1.0, right), zero


def remainder(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """`%`, with the sign of the dividend."""
    left, right = (a.data for a in arguments)
    zero = right == 0
    if left.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.fmod(left, np.where(zero, 1.0, right)), zero
    plain = np.where(zero | (right == -1), 1, right)  # division by -1 leaves no remainder
    return np.fmod(left, plain), zero


def quotient(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """`div` of integers: the truncated quotient, always of 64 bits."""
    left, right = (a.data for a in arguments)
    zero, back = right == 0, right == -1
    plain = np.where(zero | back, 1, right)
    with np.errstate(over="ignore"):
        data = np.where(back, -left, (left - np.fmod(left, plain)) // plain)
    return data, zero | (back & (left == SMALLEST))


def negated(call: Call, arguments: Sequence[Values]) -> Outcome:
    data = arguments[0].data
    if isinstance(data, pa.Array | pa.Scalar):
        return pc.negate(data), None
    if data.dtype.kind == "f":
        return -data, None
    with np.errstate(over="ignore"):
        found = -data
    return found, data == SMALLEST if call.type == "bigint" else outside(found, call.type)


def absolute(call: Call, arguments: Sequence[Values]) -> Outcome:
    data = arguments[0].data
    if isinstance(data, pa.Array | pa.Scalar):
        return pc.abs(data), None
    if data.dtype.kind == "f":
        return np.abs(data), None
    with np.errstate(over="ignore"):
        found = np.abs(data)
    return found, data == SMALLEST if call.type == "bigint" else outside(found, call.type)


def piece(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """The index of the time interval, of some length counted from some start, that contains a time."""
    time, start, length = (a.data for a in arguments)
    return (time - start) // length, None


FUNCTIONS = {
    "+": combined, "-": combined, "*": combined, "/": divided, "%": remainder, "div": quotient, "negate": negated,
    "abs": absolute,
    "piece": piece,
}  # fmt: skip
