"""Each row gets the first verdict that applies: by kind, by missing time or sequence, by lateness."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns.verdict import (
    ACCEPTED,
    BAD,
    BEFORE,
    LATE,
    MALFORMED,
    MALFORMED_MARK,
    MARK,
    PUNCTUATION,
    UNPLACED,
    event_time,
    judge,
    reasons,
    rows_of,
)
from penstock.model.time import DAY, EARLIEST, FOREVER, LATEST, NEVER

TIMES = st.none() | st.integers(0, 12) | st.sampled_from((EARLIEST - 1, EARLIEST, LATEST, LATEST + 1))


def verdict(time, mark, place, bound, progress, origin):
    """Of one row, in the order of the rules."""
    if mark is not None:
        return MALFORMED if mark == MALFORMED_MARK else PUNCTUATION
    if time is None or not EARLIEST <= time <= LATEST:
        return BAD
    if place is None:
        return UNPLACED
    if time < origin:
        return BEFORE
    return LATE if time < max(progress, bound) else ACCEPTED


@given(
    st.lists(st.tuples(TIMES, st.sampled_from((None, None, MARK, MALFORMED_MARK)), st.none() | st.integers(0, 3),
      st.integers(0, 12))),
    st.integers(0, 12) | st.sampled_from((NEVER, FOREVER)), st.just(NEVER) | st.integers(0, 12),
)  # fmt: skip
def test_the_verdict_of_a_row_follows_the_rules_one_after_the_other(rows, progress, origin):
    times, marks, places = (pa.array([row[i] for row in rows], pa.int64()) for i in range(3))
    bounds = np.array([row[3] for row in rows], dtype=np.int64)
    found = judge(times, progress, origin, bounds, marks, places)
    assert found.tolist() == [verdict(*row, progress, origin) for row in rows]
    plain = judge(times, progress, origin)
    assert plain.tolist() == [verdict(row[0], None, 0, NEVER, progress, origin) for row in rows]


def test_each_verdict_has_its_reason():
    codes = np.array([LATE, BAD, BAD, MALFORMED, UNPLACED, BEFORE], dtype=np.int8)
    times = pa.array([1, None, 2, 3, 4, 5], pa.int64())
    assert reasons(codes, times).to_pylist() == [
        "late", "event time is NULL or unreadable", "event time out of range", "malformed punctuation",
        "sequence is NULL",
        "event time before every ORIGIN",
    ]  # fmt: skip
    assert rows_of(codes, BAD, MALFORMED).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "value", "time"),
    [
        (pa.int32(), 7, 7),
        (pa.int64(), -(2**62), -(2**62)),
        (pa.date32(), -3, -3 * DAY),
        (pa.timestamp("us"), 123_456, 123_456),
        (pa.timestamp("us", "UTC"), -1, -1),
    ],
)
def test_an_event_time_is_counted_in_the_units_of_the_engine(kind, value, time):
    width = pa.int32() if kind in (pa.int32(), pa.date32()) else pa.int64()
    column = pa.array([None, value, value], width).view(kind)
    assert event_time(column.slice(1)).to_pylist() == [time, time]
    assert event_time(column).to_pylist() == [None, time, time]
