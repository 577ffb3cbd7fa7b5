"""What mappers send follows from counts of the last steps: rows at first, partials if many rows make one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.model import Column, Stream
from penstock.planner import folding
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, PaneCounters, StreamCounters, TableCounters
from penstock.planner.decisions import Decided
from penstock.planner.explain import explain_network
from penstock.planner.folding import FoldingStatistics, check, costs_of, folded_in, observe
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query

STREAM = Stream(
    "s", (Column("t", "bigint"), Column("k", "bigint"), Column("g", "bigint"), Column("v", "bigint")), "t", delay=0
)
BY_K = "SELECT k, count(*), sum(v) FROM s [RANGE 60 SLIDE 20] GROUP BY k"
BY_G = "SELECT g, max(v) FROM s [RANGE 60 SLIDE 20] GROUP BY g"
JOIN = "SELECT x.v FROM s [RANGE 5] AS x, s [RANGE 3] AS y WHERE x.k = y.k"
K, G = "s by k in panes", "s by g in panes"


def network_of(*texts):
    queries = [StandingQuery(n + 1, f"q{n}", parse_query(text, {"s": STREAM})) for n, text in enumerate(texts)]
    return build_network(queries, {"s": STREAM})


def counts(rows, made, mappers=2, sent=None):
    """What a step counts of an aggregate: with `sent`, mappers have made so many partials."""
    found = TableCounters(exchanged=rows, mappers=mappers, panes=PaneCounters(partials={20: made}))
    found.add(TableCounters(shipped=rows) if sent is None else TableCounters(folded=rows, partials=sent))
    return found


def after(network, stored, tasks=2, times=1, rows=10_000, **tables):
    """What is known after steps with these counts, by the group of the aggregate, and the changes."""
    names = {"k": K, "g": G}
    counted = {names[name]: own for name, own in tables.items()}
    step = Counters(streams={"s": StreamCounters(accepted=rows)}, tables=counted)
    changes = []
    for _ in range(times):
        stored, found = check(network, observe(network, stored, step, tasks))
        changes += found
    return stored, changes


def test_rows_are_sent_first_and_partials_once_a_step_has_shown_that_few_come_of_them():
    network = network_of(BY_K)
    assert folded_in(network, {}) == frozenset()
    assert "rows are sent to tasks by mappers, if any" in explain_network(network)
    stored, changes = after(network, {}, k=counts(10_000, 100))
    assert folded_in(network, stored) == {0}
    (change,) = changes
    assert (change.before, change.after, change.query) == ("rows", "partials", K)
    assert change.reason == "a partial stands for 50.0 rows of a mapper"
    assert change.new_cost < change.old_cost == folding.ROW
    assert Decided(3, change).shown()["mode"] == "folding"
    assert "partials are sent to tasks by mappers, 50.0 rows per partial estimated" in explain_network(
        network, folding=stored
    )
    stored, changes = after(network, stored, k=counts(10_000, 100, sent=150), times=40)
    assert not changes
    assert "66.7 rows per partial measured" in explain_network(network, folding=stored)


def test_no_partials_are_sent_where_few_rows_make_one_and_none_any_more_when_that_is_so():
    network = network_of(BY_K)
    stored, changes = after(network, {}, k=counts(10_000, 9_000), times=9)
    assert not changes
    stored, _ = after(network, stored, k=counts(10_000, 100), times=20)
    assert folded_in(network, stored) == {0}
    stored, changes = after(network, stored, k=counts(10_000, 9_000, sent=9_500), times=20)
    assert [change.after for change in changes] == ["rows"]
    assert folded_in(network, stored) == frozenset()


def test_what_mappers_have_counted_corrects_what_is_expected():
    """Each mapper has its own times, so that all partials are distinct; or each group comes to one mapper only."""
    network = network_of(BY_K)
    stored, _ = after(network, {}, k=counts(10_000, 2_000, mappers=8))
    guessed = stored[K].reduction
    stored = {K: structs.replace(stored[K], folded=True)}
    stored, _ = after(network, stored, k=counts(10_000, 2_000, mappers=8, sent=2_000), times=20)
    assert stored[K].folded
    assert stored[K].reduction == pytest.approx(5, rel=0.01)
    stored = {K: structs.replace(stored[K], folded=False)}
    stored, _ = after(network, stored, k=counts(10_000, 2_000, mappers=8), times=20)
    assert stored[K].reduction == pytest.approx(5, rel=0.01) != guessed


@given(st.integers(1, 20), st.integers(1, 10_000), st.integers(1, 10_000))
def test_mappers_are_expected_to_make_no_fewer_partials_than_tasks_and_no_more_than_rows(mappers, rows, made):
    made = min(made, rows)
    found = folding._expected(rows, mappers, TableCounters(stored=7, panes=PaneCounters(7, {20: made})))
    assert made * 0.999 <= found <= min(rows, mappers * made) * 1.001


def test_rows_that_are_sent_for_others_anyway_save_less():
    alone, beside = network_of(BY_K), network_of(BY_K, JOIN)
    step = {"k": counts(10_000, 2_600, mappers=1)}
    assert folded_in(alone, after(alone, {}, **step)[0]) == {0}
    assert folded_in(beside, after(beside, {}, **step)[0]) == frozenset()
    # With many tasks the join's are seldom the same.
    stored, changes = after(beside, {}, tasks=40, **step)
    assert folded_in(beside, stored) == {0}
    assert changes[0].reason.endswith("and 3% of the rows are sent for other tables anyway")
    # Two aggregates that are both well worth it do not stand in each other's way for longer than a step.
    both = network_of(BY_K, BY_G)
    stored, _ = after(both, {}, k=counts(10_000, 2_600, mappers=1), g=counts(10_000, 2_600, mappers=1), times=3)
    assert folded_in(both, stored) == {0, 1}


@given(st.floats(1, 100), st.booleans())
def test_a_decision_stands_while_counts_do(reduction, folded):
    network = network_of(BY_K)
    known = FoldingStatistics(1e4, 1e4, 1e4 / reduction, folded=folded)
    stored, changes = check(network, {K: known})
    assert check(network, stored) == (stored, [])
    costs = costs_of(network.aggregates[0], known)
    assert bool(changes) == (costs[not folded] < 0.8 * costs[folded])


def test_steps_without_mappers_and_few_rows_change_nothing():
    network = network_of(BY_K)
    stored, changes = after(
        network, {}, k=TableCounters(shipped=10_000, aggregated=10_000, panes=PaneCounters(partials={20: 10}))
    )
    assert (stored, changes) == ({}, [])
    stored, changes = after(network, {}, k=counts(100, 1), rows=100, times=3)
    assert not changes
    assert folded_in(network, stored) == frozenset()


def test_what_is_no_smaller_or_dear_to_merge_is_sent_as_rows():
    for call in ("count(DISTINCT v)", "approx_percentile(v, 0.5)"):
        network = network_of(f"SELECT k, {call} FROM s [RANGE 60 SLIDE 20] GROUP BY k")
        stored, changes = after(network, {}, k=counts(10_000, 200), times=3)
        assert not changes
        assert stored[K].reduction > 20
    listed = network_of("SELECT k, collect_list(v) FROM s [RANGE 60 SLIDE 20] GROUP BY k")
    assert not after(listed, {listed.aggregates[0].name: FoldingStatistics(folded=True)}, k=counts(10_000, 20))[1]
    assert folded_in(listed, {listed.aggregates[0].name: FoldingStatistics(folded=True)}) == frozenset()
    assert "sent to tasks by mappers" not in explain_network(listed)
