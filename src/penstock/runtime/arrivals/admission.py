"""The verdicts on arriving rows, and what a task sees of a stream's progress in them.

Verdicts are given by Spark before the exchange (`ingest`); here they are read, in the worker. Nothing here decides about progress:
that is done once a step, from what all tasks saw (`state/progress.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import Stream
from penstock.model.time import FOREVER

ACCEPTED, LATE, BAD, PUNCTUATION, MALFORMED, UNPLACED, BEFORE = range(7)
VERDICTS = 8  # a row's `_table` is VERDICTS * table + verdict: one column less to ship
SIDES = {"late": (LATE,), "bad": (BAD, MALFORMED, UNPLACED, BEFORE)}  # what is put aside, and for which verdicts

Mask = npt.NDArray[np.bool_]


def of_verdicts(rows: Mask, verdict: npt.NDArray[np.integer[Any]], wanted: tuple[int, ...]) -> Mask:
    """Those of the rows with one of these verdicts."""
    found = verdict == wanted[0]
    for other in wanted[1:]:
        found |= verdict == other
    return np.asarray(rows & found)


def reasons(verdict: npt.NDArray[np.integer[Any]], times: pa.Array) -> pa.Array:
    """Why each row was put aside."""
    timeless = pc.if_else(pc.is_null(times), "event time is NULL or unreadable", "event time out of range")
    texts = {
        LATE: "late", MALFORMED: "malformed punctuation", UNPLACED: "sequence is NULL", BEFORE: "event time before every ORIGIN",
    }  # fmt: skip
    why = pa.array([texts.get(code) for code in verdict.tolist()], pa.string())
    return pc.coalesce(why, timeless)


def saw(stream: Stream, rows: Mask, verdict: npt.NDArray[np.integer[Any]], columns: Mapping[str, pa.Array]) -> dict[str, Any]:  # fmt: skip
    """What the task's rows say about the stream's progress, as `state.progress.Seen` reads it."""
    found: dict[str, Any] = {}
    timed = of_verdicts(rows, verdict, (ACCEPTED, LATE))
    times = columns["_ts"]
    if timed.any():
        own = times.filter(pa.array(timed)).to_numpy(zero_copy_only=False)
        found["newest"] = int(own.max())
        if stream.delay_rows is not None:
            sequence = columns["_seq"].filter(pa.array(timed)).to_numpy(zero_copy_only=False)
            order = np.lexsort((own, sequence))
            last, before = order[-stream.delay_rows :], order[: -stream.delay_rows]
            found["rows"] = len(order)
            found["last"] = list(zip(sequence[last].tolist(), own[last].tolist(), strict=True))
            if len(before):
                found["earlier"] = int(own[before].max())
    if stream.punctuated:
        said = of_verdicts(rows, verdict, (PUNCTUATION,))
        if said.any():
            marks = pa.array(said)
            until = pc.fill_null(times.filter(marks), FOREVER).to_pylist()
            newest: dict[str, int] = {}
            for pattern, bound in zip(columns["_pattern"].filter(marks).to_pylist(), until, strict=True):
                newest[pattern] = max(bound, newest.get(pattern, bound))
            found["said"] = list(newest.items())
    return found
