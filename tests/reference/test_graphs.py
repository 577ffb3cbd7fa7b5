"""Joins of any graph and every kind of window: three definitions, one answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.reference import admit, combinations, reachable, results
from tests.effort import examples
from tests.graphs import WINDOWS, graph_workload
from tests.oracle import bag, duckdb_results
from tests.reference.contents import results_by_contents


@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_three_definitions_give_one_answer(kind, data):
    work = data.draw(graph_workload((kind,)))
    (query,) = work.parsed
    ours = bag(results(query, work.streams, work.accepted))
    assert ours == bag(duckdb_results(query, work.streams, work.accepted)), query.sql
    assert ours == bag(results_by_contents(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(100), deadline=None)
@given(graph_workload(), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_rows(work, random):
    (query,) = work.parsed
    shuffled = {name: random.sample(rows, len(rows)) for name, rows in work.accepted.items()}
    assert bag(results(query, work.streams, shuffled)) == bag(results(query, work.streams, work.accepted))


@settings(max_examples=examples(100), deadline=None)
@given(graph_workload())
def test_a_key_reaches_two_roles_at_least(work):
    (query,) = work.parsed
    for key in query.keys:
        assert len(key) == len(query.roles)
        assert len([end for end in key if end is not None]) >= 2
        assert all(end is None or end.roles == (role,) for role, end in enumerate(key))


@settings(max_examples=examples(60), deadline=None)
@given(graph_workload(("rows", "mixed", "tumbling")))
def test_a_row_out_of_reach_is_in_no_later_result(work):
    (query,) = work.parsed
    steps = {name: admit(declared, work.arrivals(name)) for name, declared in work.streams.items()}
    arrived = {name: [] for name in work.streams}
    gone = set()
    everything = combinations(query, work.streams, work.accepted)
    for n in range(len(work.batches)):
        new = {id(row) for name in work.streams for row in steps[name][n].accepted}
        arrived = {name: arrived[name] + steps[name][n].accepted for name in work.streams}
        known = {id(row) for rows in arrived.values() for row in rows}
        for combination in everything:
            members = set(map(id, combination))
            if members <= known and not members.isdisjoint(new):
                assert members.isdisjoint(gone - new), query.sql
        progress = {name: steps[name][n].progress for name in work.streams}
        kept = {id(row) for rows in reachable([query], work.streams, arrived, progress).values() for row in rows}
        gone = known - kept
