"""Verdicts on arriving rows, and what rows contribute to the progress of their stream.

Progress itself is computed once per step from what all mappers saw (`state/progress.py`, decision 0005).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import Ints, whole_numbers
from penstock.model import Stream
from penstock.model.time import DAY, EARLIEST, FOREVER, LATEST

ACCEPTED, LATE, BAD, PUNCTUATION, MALFORMED, UNPLACED, BEFORE = range(7)
SIDES = {"late": (LATE,), "bad": (BAD, MALFORMED, UNPLACED, BEFORE)}  # side outputs, each with its verdicts
MARK, MALFORMED_MARK = 1, 2  # marks of rows that are punctuations

Verdicts = npt.NDArray[np.int8]


def event_time(column: pa.Array) -> pa.Array:
    """A column of times in the engine's unit."""
    times = whole_numbers(column) * (DAY if pa.types.is_date(column.type) else 1)
    return pa.array(times, mask=column.is_null().to_numpy(zero_copy_only=False))


def judge(
    times: pa.Array, progress: int, origin: int, bounds: Ints | None = None, marks: pa.Array | None = None,
    sequence: pa.Array | None = None,
) -> Verdicts:  # fmt: skip
    """The verdict on each row of a stream; rows before `origin` are invalid.

    `bounds`: the progress of each row's group, where some groups are ahead of their stream. `marks` tell which rows are
    punctuations; `sequence` orders the rows of a stream with a delay in rows.
    """
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    values = whole_numbers(times)
    late = values < (progress if bounds is None else np.maximum(bounds, progress))
    found = np.where(late, np.int8(LATE), np.int8(ACCEPTED))
    found[values < origin] = BEFORE
    if sequence is not None and sequence.null_count:
        found[sequence.is_null().to_numpy(zero_copy_only=False)] = UNPLACED
    found[~valid | (values < EARLIEST) | (values > LATEST)] = BAD
    if marks is not None and marks.null_count < len(marks):
        mark = whole_numbers(marks)
        found[mark > 0] = PUNCTUATION
        found[mark == MALFORMED_MARK] = MALFORMED
    return found


def rows_of(verdict: Verdicts, *wanted: int) -> Ints:
    """The places of the rows with one of these verdicts."""
    found = verdict == wanted[0]
    for other in wanted[1:]:
        found |= verdict == other
    return np.flatnonzero(found)


def reasons(verdict: Verdicts, times: pa.Array) -> pa.Array:
    """Why each row was rejected."""
    timeless = pc.if_else(pc.is_null(times), "event time is NULL or unreadable", "event time out of range")
    texts = {
        LATE: "late", MALFORMED: "malformed punctuation", UNPLACED: "sequence is NULL",
        BEFORE: "event time before every ORIGIN",
    }  # fmt: skip
    why = pa.array([texts.get(code) for code in verdict.tolist()], pa.string())
    return pc.coalesce(why, timeless)


def saw(
    stream: Stream,
    verdict: Verdicts,
    times: pa.Array,
    sequence: pa.Array | None = None,
    patterns: pa.Array | None = None,
) -> dict[str, Any]:
    """What the rows contribute to the stream's progress, in the form that `state.progress.Seen` reads."""
    found: dict[str, Any] = {}
    timed = rows_of(verdict, ACCEPTED, LATE)
    if len(timed):
        own = whole_numbers(times)[timed]
        found["newest"] = int(own.max())
        if stream.delay_rows is not None:
            assert sequence is not None
            place = whole_numbers(sequence)[timed]
            order = np.lexsort((own, place))
            last, before = order[-stream.delay_rows :], order[: -stream.delay_rows]
            found["rows"] = len(order)
            found["last"] = list(zip(place[last].tolist(), own[last].tolist(), strict=True))
            if len(before):
                found["earlier"] = int(own[before].max())
    said = pa.array(rows_of(verdict, PUNCTUATION))
    if len(said):
        assert patterns is not None
        until = pc.fill_null(times.take(said), FOREVER).to_pylist()
        newest: dict[str, int] = {}
        for pattern, bound in zip(patterns.take(said).to_pylist(), until, strict=True):
            newest[pattern] = max(bound, newest.get(pattern, bound))
        found["said"] = list(newest.items())
    return found
