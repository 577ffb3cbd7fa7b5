"""Every way to share gives every query its own answer, whichever others come and go, without Spark."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.kernels.merge import merge_runs
from penstock.model import Column, Stream
from penstock.planner.build import MAX_CELLS, STRATEGIES, build_network, cells
from penstock.planner.network import StandingQuery
from penstock.reference import admit, reachable, results
from penstock.sql import parse_query
from tests.driven import driven, without_spark
from tests.effort import examples
from tests.oracle import bag
from tests.workloads import Workload, workload


@st.composite
def changing(draw):
    """A workload, and for each query the steps [first, end) in which it is there."""
    load = without_spark(draw(workload(late=True)))
    steps = len(load.batches)
    spans = st.tuples(st.integers(0, steps), st.integers(0, steps)).map(sorted).map(tuple)
    return load, [draw(st.one_of(st.just((0, steps)), spans)) for _ in load.queries]


def seen(load, first, end):
    """The accepted rows of the steps [first, end), by stream."""
    judged = {name: admit(stream, load.arrivals(name)) for name, stream in load.streams.items()}
    return {name: [row for step in steps[first:end] for row in step.accepted] for name, steps in judged.items()}


# The cuts of a chain for each step: rows are stored by one chain and merged by another, and the answer is the same.
CUTS = st.one_of(st.just(()), st.lists(st.integers(0, 63), min_size=1, max_size=8).map(tuple))
WAYS = st.fixed_dictionaries({
    "strategy": st.sampled_from(STRATEGIES),
    "tasks": st.integers(1, 3),
    "merge_every": st.integers(0, 3),
    "cuts": CUTS,
})  # fmt: skip


@settings(max_examples=examples(60))
@given(changing(), WAYS)
def test_queries_that_come_and_go_get_what_they_would_get_alone(case, way):
    load, lifetimes = case
    found = driven(load, lifetimes=lifetimes, **way)
    for number, (query, (first, end)) in enumerate(zip(load.parsed, lifetimes, strict=True)):
        expected = bag(results(query, load.streams, seen(load, first, end)))
        assert bag(found.answer(number)) == expected, query.sql
        event("some results" if expected else "no result")
    event(f"{len(set(way['cuts']))} sets of cuts")


@settings(max_examples=examples(40))
@given(changing(), st.integers(1, 3), st.integers(0, 3), CUTS)
def test_rows_in_reach_are_those_that_a_live_query_can_still_use(case, tasks, merge_every, cuts):
    load, lifetimes = case
    found = driven(load, lifetimes=lifetimes, tasks=tasks, merge_every=merge_every, cuts=cuts)
    last, progress = len(load.batches) - 1, found.steps[-1].progress
    for name, stream in load.streams.items():
        stateful = [t for t in found.network.tables_of(name) if not t.stateless]
        if len(stateful) != 1:
            continue
        wanted = {
            id(row): row
            for query, (first, end) in zip(load.parsed, lifetimes, strict=True)
            if first <= last < end
            for row in reachable([query], load.streams, seen(load, first, end), progress)[name]
        }
        merged = merge_runs(stateful[0], found.held(stateful[0]), progress)
        left = [] if merged is None else merged.time.tolist()  # a column that nobody wanted then is not held
        assert sorted(left) == sorted(row[stream.event_time] for row in wanted.values())
        event("some rows" if wanted else "no row")


STREAMS = {
    name: Stream(name, (Column("at", "bigint"), Column("k", "bigint"), Column("n", "bigint")), "at", 0)
    for name in "abc"
}


def network(*queries, strategy="state_slice", shares=()):
    standing = [
        StandingQuery(n, f"q{n}", parse_query(sql, STREAMS), share=dict(shares).get(n))
        for n, sql in enumerate(queries, start=1)
    ]
    return build_network(standing, STREAMS, strategy=strategy)


THREE = "SELECT a.n FROM a [RANGE {}] AS a, b [RANGE {}] AS b, c [RANGE {}] AS c WHERE a.k = b.k AND b.k = c.k"


def test_the_queries_of_a_result_are_those_that_every_window_allows():
    """Wang 2008, 20.1: window order on a: q2 < q3 < q1, on b: q1 < q2 < q3, on c: q3 < q1 < q2."""
    found = network(THREE.format(30, 10, 20), THREE.format(10, 20, 30), THREE.format(20, 30, 10))
    (join,) = found.joins
    served = {bit: set() for bit in range(3)}
    for bit, member in enumerate(join.members):
        # a arrives at 100; b is in the second slice of its chain, c in the third of its own
        ages = {"a": 0, "b": 15, "c": 25}
        times = [100 - ages[found.tables[t].stream] for t in join.tables]
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        if all(times[j] - times[i] <= member.bounds[i][j] for i, j in pairs):
            served[bit].add(member.name)
    assert [names for names in served.values() if names] == [{"q2"}]
    assert [t.chain for t in found.tables] == [(10, 20, 30)] * 3


@pytest.mark.parametrize("merge_every", [0, 1])
@pytest.mark.parametrize("first", ["b", "c"])
def test_a_result_found_through_the_slices_serves_the_queries_that_every_window_allows(first, merge_every):
    """The same through the kernels: a new row of a joins one of b and one of c in each slice of their chains."""
    queries = (THREE.format(30, 10, 20), THREE.format(10, 20, 30), THREE.format(20, 30, 10))
    longest = {"b": (10, 20, 30), "c": (20, 30, 10)}
    for age in ({"b": b, "c": c} for b in (5, 15, 25) for c in (5, 15, 25)):
        rows = {name: [{"at": 100 - old, "k": 1, "n": old}] for name, old in age.items()}
        steps = ({first: rows.pop(first)}, rows, {"a": [{"at": 100, "k": 1, "n": 7}]})
        found = driven(Workload(STREAMS, queries, steps), merge_every=merge_every)
        allowed = [all(old < longest[name][q] for name, old in age.items()) for q in range(3)]
        assert [bool(found.answer(q)) for q in range(3)] == allowed
        if age == {"b": 15, "c": 25}:
            assert allowed == [False, True, False]


def test_queries_over_parts_of_the_streams_share_the_tables_they_have_in_common():
    pair = "SELECT {0}.n FROM {0} [RANGE 5] AS {0}, {1} [RANGE 7] AS {1} WHERE {0}.k = {1}.k"
    found = network(pair.format("a", "b"), THREE.format(9, 3, 4), pair.format("b", "c"))
    assert [t.name for t in found.tables] == ["a(k)", "b(k)", "c(k)"]
    assert [len(t.entries) for t in found.tables] == [2, 3, 2]
    assert len(found.joins) == 3


def test_queries_that_differ_only_in_their_select_list_read_one_bit():
    pair = "SELECT {} FROM a [RANGE 5] AS a, b [RANGE 7] AS b WHERE a.k = b.k"
    found = network(pair.format("a.n"), pair.format("b.n"), pair.format("a.at"), shares={2: 1})
    assert [(m.name, m.bit) for m in found.joins[0].members] == [("q1", 0), ("q2", 0), ("q3", 1)]
    assert [e.query for e in found.tables[0].entries] == [1, 3]
    assert found.tables[0].entries[0].needs == {"n"}


def test_equal_windows_share_a_link():
    pair = "SELECT a.n FROM a [RANGE {}] AS a, b [RANGE 7] AS b WHERE a.k = b.k AND a.n > {}"
    found = network(pair.format(5, 1), pair.format(5, 2), pair.format(9, 3))
    assert found.tables[0].chain == (5, 9)


def test_isolated_queries_share_nothing():
    pair = "SELECT a.n FROM a [RANGE {}] AS a, b [RANGE 7] AS b WHERE a.k = b.k"
    found = network(pair.format(5), pair.format(9), strategy="isolated")
    assert [t.name for t in found.tables] == [
        "a(k) of query 1", "a(k) of query 2", "b(k) of query 1", "b(k) of query 2", "c",
    ]  # fmt: skip
    assert [len(t.entries) for t in found.tables] == [1, 1, 1, 1, 0]


def test_pull_up_keeps_every_row_and_selects_above_the_join():
    pair = "SELECT a.n FROM a [RANGE {}] AS a, b [RANGE 7] AS b WHERE a.k = b.k AND a.n > {}"
    found = network(pair.format(5, 1), pair.format(9, 2), strategy="pull_up")
    assert not found.tables[0].indexes
    assert [len(m.residuals) for m in found.joins[0].members] == [1, 1]


def test_push_down_counts_satisfiable_cells_and_refuses_very_many():
    pair = "SELECT a.n FROM a [RANGE 5] AS a, b [RANGE 7] AS b WHERE a.k = b.k AND a.n {}"
    found = network(pair.format("> 1"), pair.format("> 2"), pair.format("< 1"), strategy="push_down")
    # above 2: both; 2 itself (and nothing else between): the first; below 1: the third; 1 and NULL: nobody
    assert cells(found.tables[0]) == (0b001, 0b011, 0b100)
    many = [pair.format(f"= {n}") for n in range(MAX_CELLS + 1)]
    with pytest.raises(RegistrationError, match="more than 256 cells"):
        network(*many, strategy="push_down")
