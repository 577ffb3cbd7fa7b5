"""Joins of any shape through the kernels, with routes that change every step, agree with the reference and DuckDB."""

from __future__ import annotations

import random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.catalog.activate import shared_form
from penstock.kernels.merge import merge_runs
from penstock.model import Column, Query, Stream, Tumbling
from penstock.planner.build import STRATEGIES, build_network
from penstock.planner.network import Network, StandingQuery
from penstock.planner.state_table import StateTable
from penstock.reference import reachable, results
from penstock.state.registry import QueryRecord
from tests.driven import KEY_HASHES, KeyHash, driven, row_tuples, stepwise, stored_form
from tests.effort import examples
from tests.graphs import graph_workload, runnable_graph
from tests.oracle import bag
from tests.routes import any_routes
from tests.workloads import Workload


@given(
    runnable_graph(),
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from(KEY_HASHES),
)
def test_any_graph_by_any_route_is_what_the_reference_says(
    workload: Workload, seed: int, tasks: int, key_hash: KeyHash | None
) -> None:
    done = driven(workload, tasks=tasks, key_hash=key_hash, routes=any_routes(seed), merge_every=seed % 3, end=True)
    for number, query in enumerate(workload.parsed):
        assert bag(done.answer(number)) == bag(results(query, workload.streams, workload.accepted)), query.sql


def shared_by_several_keys(network: Network) -> list[StateTable]:
    """The state tables, of streams that are stored by more than one key, that several queries use."""
    keyed = [t for t in network.tables if t.key and not t.stateless]
    several = [t for t in keyed if sum(other.stream == t.stream for other in keyed) > 1]
    return [t for t in several if len({e.query for e in t.entries}) > 1]


def shares(workload: Workload) -> bool:
    """Whether queries that differ in more than their select lists use them."""
    queries = list(enumerate(workload.parsed))
    standing = [StandingQuery(n, f"q{n}", query) for n, query in queries]
    one, other = (shared_form(QueryRecord(n, f"q{n}", ""), query) for n, query in queries)
    differ = one is None or one != other
    return differ and bool(shared_by_several_keys(build_network(standing, workload.streams)))


@settings(max_examples=examples(60))
@given(
    runnable_graph(("range", "rows", "mixed"), queries=2, alike=True).filter(shares),
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(STRATEGIES),
)
def test_queries_that_share_tables_of_several_keys_get_what_each_would_get_alone(
    workload: Workload, seed: int, tasks: int, merge_every: int, strategy: str
) -> None:
    how = {"tasks": tasks, "merge_every": merge_every, "strategy": strategy}
    done = driven(workload, routes=any_routes(seed), end=True, **how)
    assert bool(shared_by_several_keys(done.network)) == (strategy != "isolated")
    for number, query in enumerate(workload.parsed):
        expected = bag(results(query, workload.streams, workload.accepted))
        assert bag(done.answer(number)) == expected, query.sql
        event("some results" if expected else "no result")


TWO_CLASSES = {
    n: Stream(n, (Column("at", "bigint"), Column("x", "bigint"), Column("y", "bigint")), "at", 0) for n in "abc"
}
BY_TWO_KEYS = "SELECT a.at, b.at, c.at FROM a [RANGE {0}], b [RANGE {0}], c [RANGE {0}] WHERE a.x = b.x AND b.y = c.y"


@settings(max_examples=examples(40))
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 10**6),
)
def test_rows_in_state_are_window_rows_times_the_key_classes_of_the_stream(
    steps: list[int], window: int, tasks: int, merge_every: int, seed: int
) -> None:
    """All streams move together by `steps`; each step brings five rows of each, all of one time."""
    draw, now, batches = random.Random(seed), 0, []
    for moved in steps:
        now += moved
        batches.append(
            {n: [{"at": now, "x": draw.randrange(3), "y": draw.randrange(3)} for _ in range(5)] for n in TWO_CLASSES}
        )
    load = Workload(TWO_CLASSES, (BY_TWO_KEYS.format(window),), tuple(batches))
    done = driven(load, tasks=tasks, merge_every=merge_every, routes=any_routes(seed))
    assert bag(done.answer(0)) == bag(results(load.parsed[0], load.streams, load.accepted))
    by_stream = {n: [t for t in done.network.tables_of(n) if not t.stateless] for n in TWO_CLASSES}
    assert {n: [t.name for t in tables] for n, tables in by_stream.items()} == {
        "a": ["a(x)"], "b": ["b(x)", "b(y)"], "c": ["c(y)"],
    }  # fmt: skip
    # A row at t meets later ones before t + window; all streams have come to `now`.
    inside = 5 * sum(now - sum(steps[: n + 1]) < window for n in range(len(steps)))
    for name, tables in by_stream.items():
        merged = [merge_runs(table, done.held(table), done.manifest.reached()) for table in tables]
        assert sum(0 if rows is None else len(rows) for rows in merged) == inside * len(tables), name


def all_keys_in(query: Query, table: StateTable) -> bool:
    """Whether a row without some key is not in the table: then what it holds depends on time and predicates alone."""
    pieces = len(query.roles) > 1 and isinstance(query.roles[0].window, Tumbling)
    keys = [
        sum(key[i] is not None for key in query.keys) for i, r in enumerate(query.roles) if r.stream == table.stream
    ]
    return all(count == len(table.key) - pieces for count in keys)


@settings(max_examples=examples(60))
@given(graph_workload(("tumbling", "range")), st.integers(1, 2), st.integers(0, 2))
def test_each_state_table_of_a_graph_holds_the_rows_in_reach(workload: Workload, tasks: int, merge_every: int) -> None:
    for last, done in enumerate(stepwise(workload, tasks=tasks, merge_every=merge_every), 1):
        part = Workload(workload.streams, workload.queries, workload.batches[:last])
        progress = done.steps[-1].progress
        wanted = reachable(workload.parsed, part.streams, part.accepted, progress)
        for table in done.network.tables:
            alone = len(done.network.tables_of(table.stream)) == 1
            if table.stateless or not alone or not all_keys_in(workload.parsed[0], table):
                continue
            stream = part.streams[table.stream]
            held = [rows for rows in done.held(table) if len(rows)]
            expected = bag(stored_form(table, stream, wanted[table.stream]))
            assert bag(row for rows in held for row in row_tuples(table, stream, rows)) >= expected
            merged = merge_runs(table, held, progress)
            assert bag([] if merged is None else row_tuples(table, stream, merged)) == expected, part.queries
            gone = [run for run in done.manifest.runs_of(table.name) if run.expired(progress)]
            assert all(merge_runs(table, [done.engine.rows(run)], progress) is None for run in gone)
