"""Small runs and their lines in the manifest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.state.run import Rows, RunEntry, checksum, encode_run


def rows_of(keys: Sequence[int], times: Sequence[int] | None = None, **columns: pa.Array) -> Rows:
    """Rows of these sorted keys, all of one pattern."""
    times = range(len(keys)) if times is None else times
    return Rows(
        np.array(keys, dtype=np.int64),
        np.array(times, dtype=np.int64),
        np.zeros(len(keys), dtype=np.int32),
        ((16, 33),),
        columns,
    )


def entry_of(name: str = "runs/0-a.arrow", **facts: object) -> RunEntry:
    known = {
        "table": "a(k)",
        "level": 0,
        "step": 0,
        "rows": 1,
        "bytes": 1,
        "min_time": 0,
        "max_time": 0,
        "min_key": 0,
        "max_key": 0,
        "life": 8,
        "until": (("b", 8),),
        "version": 0,
        "checksum": 0,
    }
    return RunEntry(name=name, **(known | facts))


def encoded(rows: Rows, name: str = "runs/0-a.arrow") -> tuple[pa.Buffer, RunEntry]:
    data = encode_run(rows, "a(k)")
    return data, entry_of(name, rows=len(rows), bytes=data.size, checksum=checksum(data))
