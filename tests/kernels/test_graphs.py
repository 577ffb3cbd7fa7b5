"""Joins of any shape through the kernels, with routes that change at every step, are what the reference and DuckDB say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.reference import results
from tests.graphs import runnable_graph
from tests.oracle import bag
from tests.routes import any_routes
from tests.simulation import KeyHash, colliding, plain, simulate, spread
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
