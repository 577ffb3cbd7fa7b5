from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.model.time import FOREVER
from penstock.state.compaction import MOST_INTERVALS, interval_length
from penstock.state.run import Rows
from tests.effort import examples
from tests.kernels.tables import entry, state_table

LIVES = {1: 4, 2: 10, 3: 100, 4: FOREVER}
ENTRIES = tuple(entry(q, [("b", life)]) for q, life in LIVES.items())
IDS = [e.id for e in ENTRIES]
DROPPED = 99 * 16
TABLE = state_table(ENTRIES, ("v", "w"))


def run_of(rows, *, columns=("v", "w")):
    """Rows (key, time, roles, v) sorted as a run; w is v as text."""
    rows = sorted(rows, key=lambda r: r[:2])
    patterns = tuple(dict.fromkeys(r[2] for r in rows))
    arrays = {"v": pa.array([r[3] for r in rows], pa.int64()), "w": pa.array([str(r[3]) for r in rows])}
    return Rows(
        np.array([r[0] for r in rows], dtype=np.int64),
        np.array([r[1] for r in rows], dtype=np.int64),
        np.array([patterns.index(r[2]) for r in rows], dtype=np.int32),
        patterns,
        {c: arrays[c] for c in columns},
    )


def plain(rows, *names):
    columns = [rows.columns[n].to_pylist() for n in names]
    roles = [rows.patterns[b] for b in rows.bits]
    return list(zip(rows.key.tolist(), rows.time.tolist(), roles, *columns, strict=True))


rows = st.tuples(
    st.sampled_from((-(2**63), -1, 0, 1, 2**63 - 1)),
    st.integers(0, 30),
    st.lists(st.sampled_from([*IDS, DROPPED]), min_size=1, max_size=3, unique=True).map(lambda r: tuple(sorted(r))),
    st.integers(0, 3),
)
runs = st.lists(st.lists(rows, min_size=1, max_size=6), max_size=4)


def in_reach(row, progress):
    return any(progress < row[1] + LIVES[r // 16] for r in row[2] if r != DROPPED)


@settings(max_examples=examples(200))
@given(runs, st.integers(0, 40))
def test_a_merge_is_the_sorted_union_of_the_rows_in_reach(parts, progress):
    merged = merge_runs(TABLE, [run_of(p) for p in parts], {"b": progress})
    expected = [
        (key, time, tuple(r for r in roles if r != DROPPED), v, str(v))
        for key, time, roles, v in (row for part in parts for row in part if in_reach(row, progress))
    ]
    if merged is None:
        assert expected == []
        return
    assert sorted(plain(merged, "v", "w")) == sorted(expected)
    assert [r[:2] for r in plain(merged)] == sorted(r[:2] for r in expected)
    assert set(merged.patterns) == {r[2] for r in expected}
    assert len(set(merged.patterns)) == len(merged.patterns)


def test_a_column_that_an_older_run_lacks_is_null_there():
    old, new = run_of([(1, 5, (16,), 7)], columns=("v",)), run_of([(0, 6, (16,), 8)])
    merged = merge_runs(TABLE, [old, new], {})
    assert merged.columns["w"].to_pylist() == ["8", None]
    assert merged.columns["v"].to_pylist() == [8, 7]


def test_a_column_that_no_run_has_yet_gets_its_type_later():
    old = merge_runs(TABLE, [run_of([(1, 5, (16,), 7)], columns=("v",))], {})
    merged = merge_runs(TABLE, [old, run_of([(0, 6, (16,), 8)])], {})
    assert merged.columns["w"].to_pylist() == ["8", None]


def test_a_column_that_no_query_wants_any_more_is_dropped():
    assert list(merge_runs(state_table(ENTRIES, ("v",)), [run_of([(1, 5, (16,), 7)])], {}).columns) == ["v"]


def own_link(row):
    return max(LIVES[r // 16] for r in row[2] if r != DROPPED)


@settings(max_examples=examples(100))
@given(st.lists(rows.filter(lambda r: r[2] != (DROPPED,)), min_size=1, max_size=12), st.sampled_from((0, 32, 64)))
def test_rows_are_laid_out_by_link_and_time_interval(part, least):
    whole = run_of(part)
    pieces = lay_out(TABLE, whole, least)
    assert sorted(r for _, piece in pieces for r in plain(piece, "v", "w")) == sorted(plain(whole, "v", "w"))
    intervals = [
        (life, 0 if life >= FOREVER else int(piece.time[0]) // interval_length(life)) for life, piece in pieces
    ]
    assert len(set(intervals)) == len(pieces)
    for life, piece in pieces:
        assert [r[:2] for r in plain(piece)] == sorted(r[:2] for r in plain(piece))
        assert least <= life
        assert max(own_link(row) for row in plain(piece)) <= life
        if life < FOREVER:
            assert piece.time.max() - piece.time.min() < interval_length(life)
    ((life, fresh),) = fresh_runs(TABLE, whole)
    assert (life, fresh) == (max(own_link(row) for row in plain(whole)), whole)


def test_rows_that_keep_to_their_link_are_laid_out_by_it():
    part = [(0, t, (IDS[0],), 0) for t in range(4)] + [(1, t, (IDS[2],), 0) for t in range(0, 100, 10)]
    assert {life for life, _ in lay_out(TABLE, run_of(part))} == {4, 100}


def test_rows_over_a_long_time_do_not_fall_into_very_many_pieces():
    part = [(0, t, (IDS[n % 2],), 0) for n, t in enumerate(range(0, 10**6, 100))]
    pieces = lay_out(TABLE, run_of(part))
    assert len(pieces) <= MOST_INTERVALS + 1
    assert len({life for life, _ in pieces}) == 1


@settings(max_examples=examples(100))
@given(st.lists(rows.filter(lambda r: r[2] != (DROPPED,)), min_size=1, max_size=12))
def test_under_a_chain_of_one_link_rows_stay_together_until_its_end(part):
    merged = replace(TABLE, chain=(FOREVER,))
    ((life, piece),) = lay_out(merged, run_of(part))
    assert life == FOREVER
    assert plain(piece, "v") == plain(run_of(part), "v")


@settings(max_examples=examples(100))
@given(st.lists(rows.filter(lambda r: r[2] != (DROPPED,)), min_size=1, max_size=12))
def test_rows_of_different_cells_never_share_a_run(part):
    split, whole = replace(TABLE, by_cell=True), run_of(part)
    for pieces in (lay_out(split, whole), fresh_runs(split, whole)):
        assert sorted(r for _, piece in pieces for r in plain(piece, "v")) == sorted(plain(whole, "v"))
        assert all(len({r[2] for r in plain(piece)}) == 1 for _, piece in pieces)
        assert all(life >= own_link(plain(piece)[0]) for life, piece in pieces)
    assert len(fresh_runs(split, whole)) == len({r[2] for r in plain(whole)})
