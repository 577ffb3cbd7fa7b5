from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.delta import alive, build_delta, compact_patterns, count_keys, select
from penstock.model import Column, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from penstock.state.run import Rows
from tests.effort import examples
from tests.kernels.tables import entry, state_table

STREAMS = {
    name: Stream(
        name, (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"), Column("n", kind)), "at", 0
    )
    for name, kind in (("a", "bigint"), ("b", "string"))
}
WIDE = "SELECT x.v FROM a [RANGE 50] x, b [RANGE 50] y WHERE x.k = y.k"
NARROW = "SELECT x.v FROM a [RANGE 5] x, b [RANGE 5] y WHERE x.k = y.k AND x.v > 3"


def table_a(*texts):
    queries = [StandingQuery(n + 1, f"q{n}", parse_query(t, STREAMS)) for n, t in enumerate(texts)]
    return build_network(queries, STREAMS).tables[0]


def delta_of(table, rows, sequence=None, kind=None):
    """The delta of rows (key or None, time, v[, sequence])."""
    key = np.array([r[0] or 0 for r in rows], dtype=np.int64)
    has_key = np.array([r[0] is not None for r in rows], dtype=bool)
    time = np.array([r[1] for r in rows], dtype=np.int64)
    columns = {"v": pa.array([r[2] for r in rows], pa.int64())}
    if sequence:
        columns[sequence] = pa.array([r[3] for r in rows], kind)
    return build_delta(replace(table, sequence=sequence), key, has_key, time, columns, {})


def plain(table, delta):
    rows = delta.rows
    served = [{i // 16 for i in rows.patterns[b]} for b in rows.bits]
    return list(zip(rows.key.tolist(), rows.time.tolist(), rows.columns["v"].to_pylist(), served, strict=True))


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from((1, -(2**63), 2**63 - 1, -5))),
            st.integers(0, 5),
            st.one_of(st.none(), st.integers(0, 9)),
        )
    )
)
def test_a_delta_is_the_wanted_rows_in_order_of_key_and_time(rows):
    table = table_a(WIDE + " AND x.v < 8", NARROW)
    delta = delta_of(table, rows)
    expected = []
    for key, time, v in sorted((r for r in rows if r[0] is not None), key=lambda r: r[:2]):
        served = {q for q, wanted in ((1, v is not None and v < 8), (2, v is not None and v > 3)) if wanted}
        if served:
            expected.append((key, time, v, served))
    found = plain(table, delta)
    assert [r[:2] for r in found] == [r[:2] for r in expected]
    # Rows of one key and time have no order without a sequence.
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert delta.unwanted == len(rows) - len(expected)
    assert count_keys([delta]) == len({r[0] for r in expected})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [2**60 + 1, None, 2**60]),
        (pa.string(), ["b", None, "a"]),
        (pa.float64(), [1.0, None, 0.5]),
        (pa.timestamp("us"), [9, None, 3]),
    ],
)
def test_rows_of_equal_time_are_in_order_of_their_sequence(kind, values):
    table = table_a(WIDE)
    rows = [(1, 5, n, value) for n, value in enumerate(values)]
    delta = delta_of(table, [*rows, (1, 4, 9, values[0])], "n", kind)
    assert delta.rows.columns["v"].to_pylist() == [9, 1, 2, 0]


def test_rows_of_a_single_stream_query_need_no_key():
    table = table_a("SELECT x.v FROM a x WHERE x.v > 3")
    assert table.stateless
    delta = delta_of(table, [(None, 5, 4), (None, 5, 3)])
    assert (len(delta.rows), delta.unwanted) == (1, 1)


def test_an_empty_delta_is_empty():
    delta = delta_of(table_a(WIDE), [])
    assert (len(delta.rows), delta.unwanted) == (0, 0)
    assert len(select(delta.rows, np.zeros(0, dtype=bool))) == 0


# ------------------------------------------------------------------------------------------------------------ reach


def stored(rows, patterns):
    """Rows (time, pattern) as a run would hold them."""
    time = np.array([t for t, _ in rows], dtype=np.int64)
    bits = np.array([b for _, b in rows], dtype=np.int32)
    return Rows(np.zeros(len(rows), dtype=np.int64), time, bits, tuple(patterns), {"v": pa.array(time)})


@settings(max_examples=examples(200))
@given(st.data())
def test_a_row_lives_while_some_role_may_meet_some_stream(data):
    lengths = st.one_of(st.integers(-4, 12), st.just(FOREVER))
    lives = data.draw(st.lists(st.dictionaries(st.sampled_from("bcd"), lengths, min_size=1), min_size=1, max_size=4))
    steps = st.one_of(st.integers(0, 20), st.sampled_from((NEVER, FOREVER)))
    progress = {s: p for s in "bcd" if (p := data.draw(steps)) > NEVER or data.draw(st.booleans())}
    entries = [entry(n + 1, live.items()) for n, live in enumerate(lives)]
    table = state_table(entries)
    ids = [e.id for e in entries]
    gone = [9000]  # a role of a query that was dropped
    patterns = data.draw(
        st.lists(st.lists(st.sampled_from(ids + gone), min_size=1, unique=True), min_size=1, max_size=3)
    )
    rows = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, len(patterns) - 1)), max_size=8))
    expected = [
        any(
            progress.get(stream, NEVER) < min(time + length, FOREVER)
            for role, live in zip(entries, lives, strict=True)
            if role.id in patterns[pattern]
            for stream, length in live.items()
        )
        for time, pattern in rows
    ]
    assert alive(table, stored(rows, patterns), progress).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=10))
def test_select_keeps_chosen_rows_and_only_the_patterns_in_use(rows):
    patterns = ((16,), (32,), (16, 32), (48,))
    keep = np.array([k for *_, k in rows], dtype=bool)
    kept = select(stored([r[:2] for r in rows], patterns), keep)
    chosen = [(t, patterns[b]) for t, b, k in rows if k]
    assert [(t, kept.patterns[b]) for t, b in zip(kept.time.tolist(), kept.bits, strict=True)] == chosen
    assert kept.columns["v"].to_pylist() == [t for t, _ in chosen]
    assert set(kept.patterns) == {p for _, p in chosen}
    assert compact_patterns(kept) == kept
