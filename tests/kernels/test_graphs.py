"""Joins of any shape through the kernels, with routes that change at every step, are what the reference and DuckDB say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.merge import merge_runs
from penstock.model import Query, Tumbling
from penstock.planner.network import StateTable
from penstock.reference import reachable, results
from tests.effort import examples
from tests.graphs import graph_workload, runnable_graph
from tests.oracle import bag
from tests.routes import any_routes
from tests.simulation import KeyHash, colliding, plain, row_tuples, simulate, spread, stored_form
from tests.workloads import Workload


@given(
    runnable_graph(),
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from((spread, plain, colliding)),
)
def test_any_graph_by_any_route_is_what_the_reference_says(
    workload: Workload, seed: int, tasks: int, key_hash: KeyHash
) -> None:
    done = simulate(workload, tasks=tasks, key_hash=key_hash, routes=any_routes(seed), merge_every=seed % 3)
    for found, query in zip(done.results, workload.parsed, strict=True):
        assert bag(found) == bag(results(query, workload.streams, workload.accepted)), query.sql


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
    for last in range(1, len(workload.batches) + 1):
        part = Workload(workload.streams, workload.queries, workload.batches[:last])
        done = simulate(part, tasks=tasks, merge_every=merge_every)
        wanted = reachable(part.parsed, part.streams, part.accepted, done.progress)
        for table in done.network.tables:
            alone = len(done.network.tables_of(table.stream)) == 1
            if table.stateless or not alone or not all_keys_in(part.parsed[0], table):
                continue
            stream = part.streams[table.stream]
            held = [rows for rows in done.held(table) if len(rows)]
            expected = bag(stored_form(table, stream, wanted[table.stream]))
            assert bag(row for rows in held for row in row_tuples(table, stream, rows)) >= expected
            merged = merge_runs(table, held, done.progress)
            assert bag([] if merged is None else row_tuples(table, stream, merged)) == expected, part.queries
            gone = [run for run in done.runs.values() if run.table == table.name and run.expired(done.progress)]
            assert all(merge_runs(table, done.held(table, [run]), done.progress) is None for run in gone)
