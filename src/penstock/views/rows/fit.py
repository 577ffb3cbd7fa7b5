"""Numbers of one type as values of another, exactly as Spark compares them: other values fit nowhere.

With a floating column the values compare as doubles, else as decimals (`match.common_type`). The SQL front end decides
which columns may be compared at all.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 38
_WHOLE = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def as_double(values: Any) -> Any:
    """Numbers as the nearest doubles. Arrow refuses large integers, and rounds decimals unlike Spark and PostgreSQL."""
    if pa.types.is_decimal(values.type):
        return pc.cast(pc.cast(values, pa.string()), pa.float64())
    return pc.cast(values, pa.float64(), safe=False)


def fitted(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """The values in another numeric type, and which of them have an equal one there; the others are NULL."""
    if pa.types.is_floating(values.type):
        return _from_double(as_double(values), wanted)
    if pa.types.is_floating(wanted):
        return _from_double(as_double(values), wanted)
    scale = max(kind.scale if pa.types.is_decimal(kind) else 0 for kind in (values.type, wanted))
    return _from_decimal(pc.cast(values, pa.decimal128(_DIGITS, scale)), wanted)


def _from_double(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
    plain = pc.fill_null(values, float("nan")).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(wanted):
        found = pc.cast(values, wanted, safe=False)
        same = (as_double(found).to_numpy(zero_copy_only=False) == plain) | np.isnan(plain)
        return _where(found, pc.and_(pa.array(same), values.is_valid()))
    scale = wanted.scale if pa.types.is_decimal(wanted) else 0
    # With at most 15 digits the product is less than half a unit off, and the nearest integer is the right one.
    digits = wanted.precision if pa.types.is_decimal(wanted) else 15
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = np.rint(plain * 10.0**scale)
        inside = np.abs(shifted) < 10.0**digits
    unscaled = np.where(inside, shifted, 0).astype(np.int64)
    candidate = _decimals(unscaled, pa.decimal128(max(digits, 15), scale))
    same = inside & (as_double(candidate).to_numpy(zero_copy_only=False) == plain)
    kept, fits = _from_decimal(pc.cast(candidate, pa.decimal128(_DIGITS, scale)), wanted)
    return _where(kept, pc.and_(fits, pa.array(same)))


def _from_decimal(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
    scale = wanted.scale if pa.types.is_decimal(wanted) else 0
    cut = pc.cast(values, pa.decimal128(_DIGITS, scale), safe=False)
    fits = pc.equal(pc.cast(cut, values.type), values)
    if pa.types.is_decimal(wanted):
        most = Decimal(10**wanted.precision - 1).scaleb(-scale)
        least = -most
    else:
        most, least = Decimal(2 ** (_WHOLE[wanted] - 1) - 1), Decimal(-(2 ** (_WHOLE[wanted] - 1)))
    if not pa.types.is_decimal(wanted) or wanted.precision < _DIGITS:
        bounds = (pa.scalar(bound, cut.type) for bound in (least, most))
        fits = pc.and_(fits, pc.and_(pc.less_equal(next(bounds), cut), pc.less_equal(cut, next(bounds))))
    kept, fits = _where(cut, fits)
    return pc.cast(kept, wanted), fits


def _where(values: pa.Array, fits: pa.Array) -> tuple[pa.Array, pa.Array]:
    fits = pc.fill_null(fits, False)
    return pc.if_else(fits, values, pa.scalar(None, values.type)), fits


def _decimals(unscaled: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(words.tobytes())])
