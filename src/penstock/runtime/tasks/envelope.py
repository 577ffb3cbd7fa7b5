"""What travels between two stages of a step: composites, the names of runs just written, and reports."""

from __future__ import annotations

import pyarrow as pa

PARCEL_SCHEMA = "_to int, _kind int, _join int, _start int, _done int, _body binary"
_PARCEL = pa.schema([
    *(pa.field(name, pa.int32()) for name in ("_to", "_kind", "_join", "_start", "_done")), pa.field("_body", pa.binary()),
])  # fmt: skip
REPORT, FRESH, COMPOSITES = 0, 1, 2


def parcel(to: int, kind: int, body: bytes, join: int = 0, start: int = 0, done: int = 0) -> pa.RecordBatch:
    values = [[to], [kind], [join], [start], [done], [body]]
    return pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, _PARCEL, strict=True)], schema=_PARCEL
    )
