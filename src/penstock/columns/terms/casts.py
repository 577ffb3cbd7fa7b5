"""CAST between numbers, Booleans, dates and text, as in Spark's ANSI mode: what does not fit raises."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.terms.arithmetic import outside
from penstock.columns.terms.values import WIDTHS, Flags, Values
from penstock.columns.types import arrow_type, decimal_digits
from penstock.model import Call

Outcome = tuple[Any, Flags | None]
_EXACT = 2**53  # integers below are exact as doubles
_TENS = 22  # powers of ten up to this one are exact as doubles


def cast(call: Call, arguments: Sequence[Values]) -> Outcome:
    """`options[0]` is the type of the argument."""
    source, target = str(call.options[0]), call.type
    (given,) = arguments
    if target.startswith("decimal("):
        return _decimal(given, source, target)
    if source.startswith("decimal("):
        return _rounded(given, source)
    if target == "string":
        return _text(given, source)
    if target == "double":
        return given.data.astype(np.float64), None
    if target == "float":
        with np.errstate(over="ignore"):
            return given.data.astype(np.float32).astype(np.float64), None
    if target == "boolean":
        return given.data != 0, None
    return _whole(given, source, target)


def _whole(given: Values, source: str, target: str) -> Outcome:
    if source not in ("double", "float"):
        data = given.data.astype(np.int64, copy=False)
        narrower = source in WIDTHS and WIDTHS[source] > WIDTHS[target]
        return data, outside(data, target) if narrower else None
    least, most = -(2.0 ** (WIDTHS[target] - 1)), 2.0 ** (WIDTHS[target] - 1) - 1
    with np.errstate(invalid="ignore"):
        fits = (np.floor(given.data) <= most) & (np.ceil(given.data) >= least)
    inside = np.where(fits, given.data, 0.0)
    huge = inside >= 2.0**63  # Java saturates these to the largest integer
    data = np.where(huge, 0.0, inside).astype(np.int64)
    return np.where(huge, np.iinfo(np.int64).max, data), ~fits


def _decimal(given: Values, source: str, target: str) -> Outcome:
    """Only to decimals that hold every value of the source exactly."""
    kind = arrow_type(target)
    if source.startswith("decimal("):
        return given.data.cast(kind), None
    digits = decimal_digits(target)
    assert digits is not None
    whole = pa.array(given.data).cast(pa.decimal128(19, 0))
    return whole.cast(pa.decimal128(38, digits[1])).cast(kind), None


def _rounded(given: Values, source: str) -> Outcome:
    """The double nearest to a decimal."""
    digits = decimal_digits(source)
    assert digits is not None
    scale, data = digits[1], given.data
    if isinstance(data, pa.Scalar):
        return np.full(len(given.valid), float(data.as_py())), None
    if digits[0] <= 18 and scale <= _TENS:
        unscaled = pc.cast(pc.fill_null(data, Decimal(0)), pa.decimal128(38, scale)).view(pa.binary(16))
        numbers = np.frombuffer(unscaled.buffers()[1], dtype=np.int64)[2 * unscaled.offset :: 2][: len(unscaled)]
        found = numbers / 10.0**scale
        large = np.flatnonzero(np.abs(numbers) >= _EXACT)
    else:
        found, large = np.zeros(len(data)), np.arange(len(data))
    for row, value in zip(large.tolist(), data.take(pa.array(large)).to_pylist(), strict=True):
        found[row] = 0.0 if value is None else float(value)
    return found, None


def _text(given: Values, source: str) -> Outcome:
    if source == "string":
        return given.data, None
    if source == "boolean":
        return pc.if_else(pa.array(given.data), "true", "false"), None
    return pc.cast(pa.array(given.data), pa.string()), None


FUNCTIONS = {"cast": cast}
