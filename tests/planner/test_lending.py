"""Joins of one network take over from each other what they counted of the same sets, and nothing else."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, JoinCounters, bits_of, positions_of
from penstock.planner.network import StandingQuery
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.statistics import Statistics
from penstock.planner.routes import build_routes
from penstock.planner.shared_counts import Lending
from penstock.planner.steering import Steering
from penstock.sql import parse_query
from tests.driven import driven
from tests.state.runs import entry_of
from tests.workloads import Workload

STREAMS = {name: Stream(name, tuple(Column(c, "bigint") for c in ("at", "k", "j", "v")), "at", 100) for name in "abcd"}


def network_of(*queries):
    standing = [StandingQuery(n, f"q{n}", parse_query(text, STREAMS)) for n, text in enumerate(queries)]
    return build_network(standing, STREAMS)


def joined(streams, where="", window=10):
    keys = [f"{streams[0]}.k = {name}.k" for name in streams[1:]]
    roles = ", ".join(f"{name} [RANGE {window}]" for name in streams)
    return f"SELECT {streams[0]}.v FROM {roles} WHERE " + " AND ".join([*keys, *([where] if where else [])])


def lends(text, other):
    """Whether the join of one query lends its set {a, b} to that of another."""
    network = network_of(text, other)
    lending = Lending(network)
    pairs = []
    for join in network.joins:
        streams = [network.tables[table].stream for table in join.tables]
        pairs.append(lending.asked(join.index, frozenset(map(streams.index, "ab"))))
    return len(pairs) == 2 and pairs[0] == pairs[1]


def test_what_two_joins_ask_of_a_set_is_the_same_whatever_else_they_join():
    assert lends(joined("ab"), joined("abc"))
    assert lends(joined("bad"), joined("abc"))
    assert lends(joined("ab", "a.v > 1"), joined("abc", "c.v > 7 AND a.v > 1"))
    assert lends(joined("ab", "a.v < b.v"), joined("abc", "a.v < b.v AND b.v < c.v"))
    star = "SELECT a.v FROM a [RANGE 10], b [RANGE 10], c [RANGE 10] WHERE a.k = b.k AND a.j = c.j"
    assert lends(joined("ab"), star)


def test_another_key_window_selection_or_condition_is_another_set():
    other_key = "SELECT a.v FROM a [RANGE 10], b [RANGE 10], c [RANGE 10] WHERE a.j = b.j AND b.j = c.j"
    assert not lends(joined("ab"), other_key)
    assert not lends(joined("ab", window=9), joined("abc"))
    assert not lends(joined("ab", "a.v > 1"), joined("abc"))
    assert not lends(joined("ab", "a.v > 1"), joined("abc", "a.v > 2"))
    assert not lends(joined("ab"), joined("abc", "a.v < b.v"))
    assert not lends(joined("ab"), joined("abc", "a.at - b.at <= 3"))


def test_a_stream_that_occurs_twice_in_a_join_is_not_told_which_it_is():
    twice = "SELECT a.v FROM a [RANGE 10], b [RANGE 10] AS b, b [RANGE 10] AS d WHERE a.k = b.k AND b.k = d.k"
    network = network_of(joined("ab"), twice)
    assert Lending(network).lenders(0) == Lending(network).lenders(1) == []


def test_own_counts_are_not_counted_twice():
    network = network_of(joined("ab"), joined("abc"))
    two, three = sorted(network.joins, key=lambda join: len(join.tables))
    pair = frozenset((0, 1))
    flows = {(0, pair): 5.0, (1, pair): 7.0}
    counted = {
        two.index: Statistics.counted((10, 10), (50, 60), flows),
        three.index: Statistics.counted((10, 10, 10), (50, 60, 70), {(0, pair): 5.0}),
    }
    lent = Lending(network).lent(counted, three.index)
    assert lent.flows == {(1, pair): 7.0}
    assert lent.chances == {(1, pair): 500.0}
    assert lent.rows == 0


FILTERS = ("", "{0}.v > 1", "{0}.v IS NULL")


@st.composite
def queries(draw, fewest):
    names = draw(st.permutations("abcd"))[: draw(st.integers(fewest, 3))]
    roles = ", ".join(f"{name} [RANGE {draw(st.sampled_from((4, 4, 9)))}]" for name in names)
    columns = [draw(st.sampled_from("kkj")) for _ in names[1:]]
    where = [f"{names[0]}.{c} = {name}.{c}" for name, c in zip(names[1:], columns, strict=True)]
    where += [draw(st.sampled_from(FILTERS[:1] * 3 + FILTERS)).format(name) for name in names]
    where += [f"{names[0]}.v <= {names[1]}.v"] if draw(st.integers(0, 3)) == 0 else []
    return f"SELECT {names[0]}.v FROM {roles} WHERE {' AND '.join(filter(None, where))}"


row = st.fixed_dictionaries(
    {"at": st.integers(0, 20), "k": st.integers(0, 1), "j": st.integers(0, 1), "v": st.sampled_from((0, 1, 2, None))}
)
batch = st.fixed_dictionaries({name: st.lists(row, max_size=5) for name in STREAMS})


@given(queries(3), queries(2), st.lists(batch, min_size=2, max_size=3), st.integers(0, 5), st.integers(1, 3))
def test_joins_that_ask_the_same_of_a_set_make_the_same_composites(one, other, batches, turn, tasks):
    def routes(network, _):
        orders = {
            join.index: {
                start: legal[turn % len(legal)]
                for start in range(len(join.tables))
                if (legal := list(permutations(p for p in range(len(join.tables)) if p != start)))
            }
            for join in network.joins
        }
        return build_routes(network, orders)

    found = driven(Workload(STREAMS, (one, other), tuple(batches)), tasks=tasks, routes=routes)
    lending, joins = Lending(found.network), found.network.joins
    for step in found.steps:
        by_set = {}
        for (name, start, bits), count in step.flows.items():
            index, positions = next(j.index for j in joins if j.name == name), positions_of(bits)
            streams = [found.network.tables[t].stream for t in joins[index].tables]
            place = streams[start], frozenset(streams[p] for p in positions)
            by_set.setdefault((*place, lending.asked(index, positions)), set()).add(count)
        assert all(len(counts) == 1 for counts in by_set.values())


def test_an_order_is_chosen_by_what_another_join_has_counted():
    """A star whose rows of `a` probe `c` first never sees the rare pair of a and b; a join of both does (1.3.2)."""
    star = "SELECT a.v FROM a [RANGE 10], b [RANGE 10], c [RANGE 10] WHERE a.k = b.k AND a.j = c.j"

    def order_after(network, steps=12):
        steering = Steering(network, "adaptive", Parameters(period=300, budget=0.0))
        index = next(join.index for join in network.joins if len(join.tables) == 3)
        names = {join.index: join.name for join in network.joins}
        steering.modes[index].orders = {0: (2, 1), 1: (0, 2), 2: (0, 1)}
        steering.modes[index].lost = 1.0  # no guess is tried: only what is measured may decide
        for _ in range(steps):
            made = {}
            order = steering.modes[index].orders[0]
            first = {1: 2, 2: 900}[order[0]]
            found = {bits_of((0,)): 100, bits_of((0, order[0])): first, bits_of((0, 1, 2)): 18}
            made[names[index]] = JoinCounters({0: found, 1: {bits_of((1,)): 0}, 2: {bits_of((2,)): 0}})
            for other in names.keys() - {index}:
                made[names[other]] = JoinCounters({0: {bits_of((0,)): 100, bits_of((0, 1)): 2}, 1: {bits_of((1,)): 0}})
            held = [entry_of(t.name, table=t.name, rows=900) for t in network.tables]
            came = [entry_of(t.name, table=t.name, rows=100) for t in network.tables if t.stream == "a"]
            steering.observe(Counters(joins=made), Counters(), held, came)
        return steering.modes[index].orders[0]

    assert order_after(network_of(star)) == (2, 1)
    assert order_after(network_of(star, joined("ac"))) == (2, 1)
    assert order_after(network_of(star, joined("ab"))) == (1, 2)
