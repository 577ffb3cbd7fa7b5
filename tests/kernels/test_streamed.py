"""Sorted rows taken in ranges are the same rows, and no range has more bytes than allowed unless a row has."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.matches import Matches
from penstock.kernels.streamed import Weights, in_ranges, parts_of
from penstock.state.run import Rows
from tests.effort import examples

ROW = st.tuples(
    st.integers(-3, 3) | st.sampled_from((-(2**63), 2**63 - 1)), st.integers(0, 4), st.integers(0, 300)
)  # key, time, length of a text


def rows_of(drawn):
    drawn = sorted(drawn)
    key, time, length = (np.array(column, dtype=np.int64) for column in zip(*drawn, strict=True))
    texts = pa.array(["x", *(chr(65 + n % 26) * size for n, size in enumerate(length.tolist()))])[1:]
    columns = {"s": texts, "n": pa.array(range(len(drawn)))}
    return Rows(key, time, np.zeros(len(drawn), dtype=np.int32), ((16,),), columns)


def plain(rows):
    return list(
        zip(rows.key.tolist(), rows.time.tolist(), *(c.to_pylist() for c in rows.columns.values()), strict=True)
    )


@settings(max_examples=examples(200))
@given(st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=5), st.sampled_from((1, 100, 1000, 10**6)))
def test_ranges_ascend_and_have_all_rows_once(drawn, most):
    runs = [rows_of(own) for own in drawn]
    ranges = list(in_ranges(runs, most))
    found = sorted(row for parts in ranges for rows in parts for row in plain(rows))
    assert found == sorted(row for rows in runs for row in plain(rows))
    last = None
    for parts in ranges:
        places = [place for rows in parts for place in zip(rows.key.tolist(), rows.time.tolist(), strict=True)]
        assert last is None or min(places) > last
        last = max(places)
        # Rows of one place stay together, whatever they weigh.
        assert len(set(places)) == 1 or sum(_bytes(rows) for rows in parts) <= most + sum(
            max(Weights(rows).of(np.arange(len(rows)))) for rows in parts
        ) + _together(parts)


def _bytes(rows):
    return int(Weights(rows).of(np.arange(len(rows))).sum())


def _together(parts):
    """The bytes of the largest place: a cut cannot lie in it."""
    weight = {}
    for rows in parts:
        sizes = Weights(rows).of(np.arange(len(rows))).tolist()
        for key, time, size in zip(rows.key.tolist(), rows.time.tolist(), sizes, strict=True):
            weight[key, time] = weight.get((key, time), 0) + size
    return max(weight.values())


@settings(max_examples=examples(100))
@given(st.lists(st.lists(ROW, min_size=1, max_size=9), min_size=1, max_size=3), st.data())
def test_parts_of_matches_are_bounded_and_have_all_of_them_in_order(drawn, data):
    runs = [rows_of(own) for own in drawn]
    picks = data.draw(st.lists(st.integers(0, len(runs) - 1).flatmap(
        lambda run: st.tuples(st.just(run), st.integers(0, len(runs[run]) - 1))), max_size=20,
    ))  # fmt: skip
    most = data.draw(st.sampled_from((1, 200, 10**6)))
    run, row = (np.array(column, dtype=np.int64) for column in ([r for r, _ in picks], [n for _, n in picks]))
    numbers = np.arange(len(picks))
    whole = Matches((0,), ((runs, run, row),), numbers, numbers[:, None], np.ones((len(picks), 1), dtype=np.uint64))
    parts = list(parts_of(whole, most))
    assert [n for part in parts for n in part.keys.tolist()] == numbers.tolist()
    for part in parts:
        if len(part) > 1:
            assert sum(len(s) for s in part.column(0, "s", None).to_pylist()) <= most
