"""Rejected rows, late or invalid: whole rows as text, in files that count once a manifest names them.

Why they are text is decision 0032.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.model.time import NEVER
from penstock.state.side_files import SideFile
from penstock.storage.parquet import write
from penstock.storage.store import Store, file_name


def write_side(
    store: Store, step: int, progress: int, stream: str, reason: str, rows: pa.Array, why: pa.Array
) -> SideFile:
    """Write rejected rows of a stream with this progress, and the reason of each; returns the manifest's record."""
    steps = pa.array(np.full(len(rows), step, dtype=np.int64))
    known = pa.repeat(pa.scalar(progress if progress > NEVER else None, pa.int64()), len(rows))
    table = pa.table({"_row": rows, "_step": steps, "_reason": why, "_progress": known})
    name = file_name("sides", step, "parquet")
    return SideFile(name, stream, reason, step, len(rows), write(store, name, table))
