"""Rows as JSON in the form of Spark's `to_json`, which Spark reads back: late and invalid rows of files.

Only for types with a unique text; rows with other types Spark writes itself.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa


def has_text(kind: pa.DataType) -> bool:
    return _writer(kind) is not None


def rows_as_text(rows: pa.Table) -> pa.Array:
    """Each row as an object, without NULLs. Raises ValueError or a subclass on values that only Spark can write."""
    written = []
    for name in rows.column_names:
        column = rows.column(name)
        write = _writer(column.type)
        assert write is not None
        written.append([None if value is None else write(value) for value in column.to_pylist()])
    names = [json.dumps(name, ensure_ascii=False) for name in rows.column_names]
    return pa.array(
        [
            "{" + ",".join(f"{name}:{text}" for name, text in zip(names, row, strict=True) if text is not None) + "}"
            for row in zip(*written, strict=True)
        ],
        pa.string(),
    )


def _writer(kind: pa.DataType) -> Callable[[Any], str] | None:
    return next((write for test, write in _WRITERS if test(kind)), None)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _moment(value: datetime) -> str:
    if value.tzinfo:
        value = value.astimezone(UTC)
    return f'"{value.year:04d}-{value:%m-%dT%H:%M:%S.%f}{"Z" if value.tzinfo else ""}"'


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_boolean, json.dumps),
    (pa.types.is_signed_integer, str),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_string, lambda value: json.dumps(value, ensure_ascii=False)),
    (pa.types.is_binary, lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_date32, lambda value: f'"{value.isoformat()}"'),
    (pa.types.is_timestamp, _moment),
)
