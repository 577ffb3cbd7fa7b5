"""What travels between two stages of a step: rows or partials, accounts, composites, new runs' names, reports."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

PARCEL_SCHEMA = "_to int, _kind int, _join int, _start int, _done int, _body binary"
_PARCEL = pa.schema([
    *(pa.field(name, pa.int32()) for name in ("_to", "_kind", "_join", "_start", "_done")),
    pa.field("_body", pa.binary()),
])  # fmt: skip
REPORT, FRESH, COMPOSITES, ROWS, ACCOUNT, PARTIALS = range(6)


def parcel(to: int, kind: int, body: bytes | pa.Buffer, join: int = 0, start: int = 0, done: int = 0) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, len(body)], dtype=np.int32))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(body)])  # the body is not copied
    numbers = [pa.array([value], pa.int32()) for value in (to, kind, join, start, done)]
    return pa.RecordBatch.from_arrays([*numbers, whole], schema=_PARCEL)
