"""What scans cost: learned from tasks, by the last steps, and never far from the constants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, EngineCounters, StreamCounters, TableCounters
from penstock.planner.network import StandingQuery
from penstock.planner.scans import FEW, RECENT, WITHIN, Scans, fit, scanning
from penstock.planner.segments import Scan, Timing, segment_count
from penstock.sql import parse_query
from tests.planner.test_segments import run_of

STREAMS = {
    n: Stream(n, (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint")), "at", 0) for n in "abcd"
}


def network(*queries):
    return build_network(
        [StandingQuery(n, f"q{n}", parse_query(sql, STREAMS)) for n, sql in enumerate(queries)], STREAMS
    )


NETWORK = network(
    "SELECT a.v FROM a [RANGE 100], b [RANGE 100] WHERE a.v < b.v",
    "SELECT c.v FROM c [RANGE 9], d [RANGE 9] WHERE c.k = d.k",
)


def table(name, found=NETWORK):
    return next(t for t in found.tables if t.name == name)


def report(rows, *, pairs=0, shipped=None, **phases):
    """What one task says: accepted rows by stream, and of the tables pairs (of a) and rows shipped."""
    tables = {n: TableCounters(shipped=count) for n, count in (shipped or {}).items()}
    tables.setdefault("a()", TableCounters()).candidates = pairs
    streams = {n: StreamCounters(accepted=count) for n, count in rows.items()}
    return Counters(streams=streams, tables=tables), phases


@given(st.floats(2e-9, 4e-7), st.floats(1e-3, 0.05), st.lists(st.integers(10**4, 10**8), min_size=FEW, max_size=64))
def test_a_line_through_the_samples_is_found_even_if_some_tasks_stood_still(pair, task, pairs):
    samples = [(float(n), task + pair * n) for n in pairs]
    if max(pairs) >= 3 * min(pairs):
        each, fixed = fit(samples, Timing.pair, Timing.task)
        assert each == pytest.approx(pair, rel=1e-6)
        assert fixed == pytest.approx(task, abs=1e-6)
    stalled = sorted(samples)
    stalled[len(stalled) // 2] = (stalled[len(stalled) // 2][0], 60.0)
    each, fixed = fit(stalled, Timing.pair, Timing.task)
    assert Timing.pair / WITHIN <= each <= Timing.pair * WITHIN
    assert Timing.task / WITHIN <= fixed <= Timing.task * WITHIN


def test_one_stall_among_many_samples_changes_little():
    samples = [(n * 1e6, 0.002 + 5e-8 * n * 1e6) for n in range(1, 33)]
    samples[20] = (samples[20][0], 60.0)
    assert fit(samples, Timing.pair, Timing.task) == pytest.approx((5e-8, 0.002), rel=0.05)


def test_samples_of_one_size_leave_the_fixed_cost_as_it_was():
    each, fixed = fit([(1e6, 0.104)] * FEW, Timing.pair, Timing.task)
    assert fixed == Timing.task
    assert each == pytest.approx(1e-7)


def test_little_known_is_nothing_known():
    assert fit([(1e6, 9.0), (9e6, 9.0)], 1.0, 2.0) == (1.0, 2.0)
    assert Scans().timing == Timing()


def test_a_table_is_scanned_by_the_other_positions_of_its_joins():
    assert scanning(NETWORK, table("a()")) == {"b"}
    assert scanning(NETWORK, table("b()")) == {"a"}
    own = network("SELECT x.v FROM a [RANGE 9] AS x, a [RANGE 9] AS y, b [RANGE 9] WHERE x.v < y.v AND y.v < b.v")
    assert scanning(own, table("a()", own)) == {"a", "b"}
    assert scanning(own, table("b()", own)) == {"a"}


def test_only_the_last_steps_of_the_own_streams_count_and_only_rows_in_reach():
    scans = Scans()
    for step in range(2 * RECENT):
        rows = 1000 if step < RECENT else 10
        scans.observe(NETWORK, {0, 1}, [report({"a": 3 * rows, "b": rows, "c": 10**6})])
    runs = [run_of(range(1000), 2, life=100)]
    totals = Counters(EngineCounters(steps=10**6))
    assert scans.scan(NETWORK, table("a()"), runs, {"b": -1000}, totals) == Scan(10, 1000, 2)
    assert scans.scan(NETWORK, table("a()"), runs, {"b": 600}, totals) == Scan(10, pytest.approx(499, abs=50), 2)
    assert scans.scan(NETWORK, table("b()"), [], {}, totals) == Scan(30, 0, 2)


def test_a_search_that_meets_fewer_rows_than_are_in_reach_is_told_so():
    scans = Scans()
    scans.observe(NETWORK, {0, 1}, [report({"a": 100}, pairs=5000)])
    runs = [run_of(range(1000), 2, life=100)]
    assert scans.scan(NETWORK, table("b()"), runs, {}, Counters()) == Scan(100, 50, 2)


def test_after_a_start_the_averages_of_all_steps_stand_in():
    streams = {"b": StreamCounters(accepted=80), "c": StreamCounters(accepted=10**9)}
    totals = Counters(EngineCounters(steps=4), streams=streams)
    assert Scans().scan(NETWORK, table("a()"), [], {}, totals) == Scan(20, 0, 2)
    assert Scans().scan(NETWORK, table("a()"), [], {}, Counters()) == Scan(0, 0, 2)


def test_slow_comparing_asks_for_more_segments_and_quick_comparing_for_fewer():
    chosen = {}
    for pair in (2e-9, 4e-7):
        scans, random = Scans(), np.random.default_rng(5)
        for _ in range(20):
            pairs = int(random.integers(10**5, 10**7))
            scans.observe(
                NETWORK, {0, 1}, [report({"b": 500}, pairs=pairs, probe=0.004 + pairs * pair, shipped={"b()": 500},
                  receive=0.001)]
            )  # fmt: skip
        assert scans.timing.pair == pytest.approx(pair, rel=0.01)
        scan = scans.scan(NETWORK, table("a()"), [run_of(range(20_000), 8, life=10**6)], {}, Counters())
        assert scan == Scan(500, 20_000, 2)
        chosen[pair] = segment_count(scan, 8, scans.timing)
    assert chosen[2e-9] < chosen[4e-7] == 8


def test_rows_sent_to_every_task_cost_each_of_them():
    scans = Scans()
    for n in range(1, 9):
        shares = [{"a()": 1000 * n}, {"a()": 3000 * n}]
        scans.observe(
            NETWORK, {table("a()").index},
            [report({"a": 1}, shipped=s, prepare=0.002 + 4e-6 * 4000 * n) for s in shares]
        )  # fmt: skip
    assert {rows for rows, _ in scans.sent} == {4000 * n for n in range(1, 9)}
    assert scans.timing.send == pytest.approx(4e-6)
