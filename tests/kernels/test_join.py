"""Through plan, probe, state and expiry every query gets exactly the bag that the reference gives it."""

import math
import struct
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.merge import merge_runs
from penstock.model import Column, Stream
from penstock.reference import bounds, reachable, results, serves
from tests.driven import KEY_HASHES, colliding, driven, row_tuples, stepwise, stored_form, without_spark
from tests.effort import examples
from tests.oracle import bag, duckdb_results
from tests.workloads import Workload, workload

ways = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 3),
        "merge_every": st.integers(0, 2),
        "renumber": st.booleans(),
        "chunk": st.sampled_from((3, 1, 1 << 19)),
        "key_hash": st.sampled_from(KEY_HASHES),
    }
)


def assert_answers(work, found):
    for number, query in enumerate(work.parsed):
        assert bag(found.answer(number)) == bag(results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(100), deadline=None)
@given(workload().map(without_spark), ways)
def test_every_query_gets_the_answer_of_the_reference(work, way):
    assert_answers(work, driven(work, **way))


@settings(max_examples=examples(40), deadline=None)
@given(workload(late=True).map(without_spark), ways)
def test_late_and_bad_rows_take_part_in_nothing(work, way):
    assert_answers(work, driven(work, **way))


@settings(max_examples=examples(25), deadline=None)
@given(workload().map(without_spark), ways)
def test_every_query_gets_the_answer_of_duckdb(work, way):
    found = driven(work, **way)
    for number, query in enumerate(work.parsed):
        assert bag(found.answer(number)) == bag(duckdb_results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(40), deadline=None)
@given(workload(late=True).map(without_spark), ways)
def test_every_row_is_accounted_for(work, way):
    found = driven(work, **(way | {"renumber": False}))
    for step, batch in zip(found.steps, work.batches, strict=True):
        for name in work.streams:
            counts = step.record.counters.stream(name)
            assert len(batch.get(name, ())) == counts.rows == counts.accepted + counts.late + counts.bad
        for table in found.network.tables:
            counts, accepted = step.table(table.name), step.record.counters.stream(table.stream).accepted
            assert accepted == counts.stored + counts.unwanted + counts.out_of_reach


@settings(max_examples=examples(60), deadline=None)
@given(workload(late=True).map(without_spark), st.integers(1, 3), st.integers(0, 2))
def test_state_holds_the_rows_in_reach_and_a_merge_leaves_exactly_these(work, tasks, merge_every):
    for last, found in enumerate(stepwise(work, tasks=tasks, merge_every=merge_every), 1):
        progress = found.steps[-1].progress
        accepted = Workload(work.streams, work.queries, work.batches[:last]).accepted
        wanted = reachable(work.parsed, work.streams, accepted, progress)
        for name, stream in work.streams.items():
            stateful = [t for t in found.network.tables_of(name) if not t.stateless]
            if len(stateful) != 1:
                continue
            table = stateful[0]
            held = found.held(table)
            expected = bag(stored_form(table, stream, wanted[name]))
            assert bag(row for rows in held for row in row_tuples(table, stream, rows)) >= expected
            merged = merge_runs(table, held, progress)
            left = [] if merged is None else row_tuples(table, stream, merged)
            assert bag(left) == expected


@settings(max_examples=examples(60), deadline=None)
@given(workload().map(without_spark), st.integers(1, 3), st.integers(0, 2), st.sampled_from((None, colliding)))
def test_compared_pairs_are_those_that_share_a_query_by_windows_and_bits(work, tasks, merge_every, key_hash):
    pairs_only = tuple(t for t, q in zip(work.queries, work.parsed, strict=True) if len(q.roles) == 2)
    work = Workload(work.streams, pairs_only, work.batches)
    found = driven(work, tasks=tasks, merge_every=merge_every, key_hash=key_hash)
    expected = sum(shared_pairs(work, found.network, join, key_hash) for join in found.network.joins)
    assert sum(step.compared for step in found.steps) == expected


def shared_pairs(work, network, join, key_hash):
    """Pairs of rows with one hash that some query of the join wants, by its predicates, windows and bands."""
    sides = [network.tables[t] for t in join.tables]
    count = 0
    of = {q.id: q.query for q in network.queries}
    for one in work.accepted[sides[0].stream]:
        for other in work.accepted[sides[1].stream]:
            count += hashed(sides[0], one, key_hash) == hashed(sides[1], other, key_hash) and any(
                fits(work, of[member.id], dict(zip(member.roles, (one, other), strict=True))) for member in join.members
            )
    return count


def hashed(table, row, key_hash):
    parts = [row[next(p.column for p in part if not isinstance(p, str))] for part in table.key]
    return (key_hash or repr)(tuple(0.0 if p == 0 and isinstance(p, float) else p for p in parts))


def fits(work, query, rows):
    return all(serves(query, work.streams, role, row) for role, row in rows.items()) and all(
        rows[j]["at"] - rows[i]["at"] <= bound for (i, j), bound in bounds(query).items()
    )


# ------------------------------------------------------------------------------------------------ worked examples


def streams(*names):
    return {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=1000) for n in names}


def answer(query, *steps, **how):
    """The sorted answer; each step gives times by stream, all under one key."""
    names = sorted({name for step in steps for name in step})
    batches = tuple({n: [{"at": t, "k": 7} for t in times] for n, times in step.items()} for step in steps)
    return sorted(driven(Workload(streams(*names), (query,), batches), **how).answer(0))


THREE = (
    "SELECT x.at, y.at, z.at FROM s1 [RANGE 100] x, s2 [RANGE 100] y, s3 [RANGE 100] z WHERE x.k = y.k AND y.k = z.k"
)
TWO = "SELECT x.at, y.at FROM a [RANGE {}] x, b [RANGE {}] y WHERE x.k = y.k"


@pytest.mark.parametrize(
    "steps",
    [
        [{"s1": [90, 100], "s2": [150, 180], "s3": [195, 205]}],
        [{"s1": [90]}, {"s1": [100], "s2": [150]}, {"s3": [205]}, {"s2": [180]}, {"s3": [195]}],
        [{"s3": [205, 195]}, {"s2": [180, 150]}, {"s1": [100, 90]}],
    ],
)
def test_a_three_way_join_takes_what_is_live_at_the_newest_rows_time(steps):
    assert answer(THREE, *steps) == [(100, 150, 195), (100, 180, 195)]


def test_what_new_rows_look_for_and_do_not_find_is_counted_as_none():
    found = driven(Workload(streams("s1", "s2", "s3"), (THREE,), ({"s1": [{"at": 1, "k": 7}]},)))
    (step,) = found.steps
    (join,) = found.network.joins
    assert step.flows == {(join.name, 0, 0b001): 1, (join.name, 0, 0b011): 0, (join.name, 0, 0b111): 0}


@pytest.mark.parametrize(
    ("windows", "pairs"),
    [
        ((2, 1), [(3, 4)]),
        ((4, 1), [(1, 4), (2, 4), (2, 5), (3, 4), (3, 5)]),
        ((2, 4), [(3, 4), (8, 5)]),
    ],
)
def test_a_stream_of_each_side_has_its_own_window(windows, pairs):
    arrival = [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("a", 8)]
    one_by_one = [{name: [time]} for name, time in arrival]
    assert answer(TWO.format(*windows), *one_by_one) == pairs
    assert answer(TWO.format(*windows), {"a": [1, 2, 3, 8], "b": [4, 5]}) == pairs


@pytest.mark.parametrize("length", [1, 2, 1000])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_as_old_as_its_window_is_out_and_one_unit_younger_is_in(length, together):
    query = TWO.format(length, 1)
    for age, pairs in ((length, []), (length - 1, [(0, length - 1)])):
        steps = [{"a": [0], "b": [age]}] if together else [{"a": [0]}, {"b": [age]}]
        assert answer(query, *steps) == pairs
        assert answer(query, *reversed(steps)) == pairs


def test_in_a_self_join_a_row_meets_itself_once_whatever_the_cut():
    query = "SELECT x.at, y.at FROM a [RANGE 3] x, a [RANGE 3] y WHERE x.k = y.k"
    pairs = [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert answer(query, {"a": [1, 2]}) == pairs
    assert answer(query, {"a": [2]}, {"a": [1]}) == pairs


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_keys_of_all_buckets_make_one_file_per_task_and_table(tasks):
    rows = [{"at": n, "k": n} for n in range(3000)]
    found = driven(Workload(streams("a", "b"), (TWO.format(9, 9),), ({"a": rows, "b": rows},)), tasks=tasks)
    buckets = {key >> 56 for table in found.network.tables for rows in found.held(table) for key in rows.key.tolist()}
    assert len(buckets) == 256
    assert len(found.steps[0].record.runs_added) == 2 * tasks
    assert Counter(found.answer(0)) == Counter((n, n) for n in range(3000))


@pytest.mark.parametrize("skew", [1, 5])
@pytest.mark.parametrize(("tasks", "merge_every"), [(1, 0), (2, 1), (3, 2)])
def test_a_stream_that_runs_windows_behind_loses_nothing(skew, tasks, merge_every):
    """A row per stream every 4 units of time; c arrives `skew` windows of 10 units after a and b, a row per step."""
    window, moments = 10, range(0, 80, 4)
    arrivals = [(t + lag, name, t) for t in moments for name, lag in (("a", 0), ("b", 0), ("c", skew * window))]
    batches = tuple({name: [{"at": t, "k": 1}]} for _, name, t in sorted(arrivals))
    alike = {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=0) for n in "abc"}
    sql = (
        f"SELECT a.at, b.at, c.at FROM a [RANGE {window}], b [RANGE {window}], c [RANGE {window}] "
        "WHERE a.k = b.k AND b.k = c.k"
    )
    found = driven(Workload(alike, (sql,), batches), tasks=tasks, merge_every=merge_every)
    close = [c for c in product(moments, repeat=3) if max(c) - min(c) < window]
    assert bag(found.answer(0)) == bag(close)


def test_a_run_goes_when_all_its_rows_are_out_of_reach():
    found = driven(
        Workload(
            {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=0) for n in "ab"},
            (TWO.format(10, 10),),
            tuple({n: [{"at": t, "k": 1}] for n in "ab"} for t in (0, 9, 10, 11)),
        )
    )
    # A run of step n is judged at the start of a step, by the progress that the step before has left.
    assert [sorted(r.step for r in step.manifest.runs_of("a(k)")) for step in found.steps] == [
        [0], [0, 1], [0, 1, 2], [1, 2, 3],
    ]  # fmt: skip


def test_a_row_out_of_reach_on_arrival_probes_but_is_not_stored():
    found = driven(
        Workload(
            streams("a", "b"), (TWO.format(10, 50),), ({"b": [{"at": 2000, "k": 7}]}, {"a": [{"at": 960, "k": 7}]})
        )
    )
    counts = found.steps[1].table("a(k)")
    assert (counts.out_of_reach, counts.stored, counts.probed) == (1, 0, 1)


def test_a_nan_key_equals_any_other_nan():
    double = {n: Stream(n, (Column("at", "bigint"), Column("k", "double")), "at", delay=0) for n in "ab"}
    batch = {
        n: [{"at": 1, "k": nan}] for n, nan in (("a", math.nan), ("b", struct.unpack("d", b"\x01" + b"\xff" * 7)[0]))
    }
    assert driven(Workload(double, (TWO.format(9, 9),), (batch,)), key_hash=lambda key: 5).answer(0) == [(1, 1)]


def test_a_hash_that_two_keys_share_joins_neither():
    text = {n: Stream(n, (Column("at", "bigint"), Column("k", "string")), "at", delay=0) for n in "ab"}
    batch = {n: [{"at": 1, "k": key} for key in keys] for n, keys in (("a", "xy"), ("b", "yz"))}
    found = driven(
        Workload(text, ("SELECT x.k, y.k FROM a [RANGE 9] x, b [RANGE 9] y WHERE x.k = y.k",), (batch,)),
        key_hash=lambda key: 5,
    )
    assert found.answer(0) == [("y", "y")]
    assert found.steps[0].compared == 4
