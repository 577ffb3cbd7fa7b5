import operator
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.multijoin.algorithms import AT_ONCE, Operator, eager, effective_orders, general, lazy, naive
from lab.multijoin.query import Edge, Last, MultiJoin, Within, equal_values
from lab.multijoin.windows import CircularWindow, CountWindow
from lab.workload import Arrival, LabError
from penstock import reference
from tests.effort import examples
from tests.reference.test_join import equijoin, stream

ALGORITHMS = ("naive", "naive at intervals", "eager", "lazy", "general")
CONDITIONS = (operator.eq, operator.eq, operator.lt, operator.ne, lambda a, b: abs(a - b) <= 1)
TIMES = st.builds(Within, st.integers(1, 12), st.booleans())
COUNTS = st.builds(Last, st.integers(1, 4))
INTERVALS = st.integers(1, 10)


@st.composite
def joins(draw, windows=TIMES | TIMES | COUNTS):
    """A join of two to four windows of both kinds, on one attribute or with any conditions between any streams."""
    extents = draw(st.lists(windows, min_size=2, max_size=4))
    if draw(st.booleans()):
        return equal_values(*extents)
    pairs = st.permutations(range(len(extents))).map(lambda order: order[:2])
    edges = draw(st.lists(st.tuples(pairs, st.sampled_from(CONDITIONS)), min_size=1, max_size=5))
    return MultiJoin(tuple(extents), tuple(Edge(left, right, condition) for (left, right), condition in edges))


@st.composite
def inputs(draw, query):
    """Arrivals of a join's streams; every other one has the time of the one before, and a few values are NULL."""
    one = st.tuples(
        st.sampled_from(query.streams), st.sampled_from([0, 0, 1, 2, 5]), st.sampled_from([1, 2, 3, 3, None])
    )
    count = draw(st.sampled_from([24, 18, 12, 6, 0]))  # left to itself, Hypothesis draws short lists
    time, found = draw(st.integers(-20, 20)), []
    for number, (origin, gap, value) in enumerate(draw(st.lists(one, min_size=count, max_size=count))):
        time += gap
        found.append(Arrival(origin, time, number, value))
    return found


@st.composite
def orders(draw, query):
    return draw(st.permutations(query.streams))


@st.composite
def operators(draw, query, algorithm):
    """An algorithm with any orders, intervals and numbers of buckets."""
    buckets = [draw(st.integers(1, 4)) if isinstance(extent, Within) else 1 for extent in query.windows]
    order, every = draw(orders(query)), draw(INTERVALS)
    expire_every = every + draw(st.sampled_from([0, 1, 7, 30]))
    if algorithm == "naive":
        return naive(query, order, buckets=buckets)
    if algorithm == "naive at intervals":
        return naive(query, order, every=every, buckets=buckets)
    if algorithm == "eager":
        return eager(query, order, expire_every=draw(st.just(AT_ONCE) | INTERVALS), buckets=buckets)
    if algorithm == "lazy":
        return lazy(query, order, every, expire_every=expire_every, buckets=buckets)
    each = [draw(orders(query)) for _ in query.streams]
    return general(query, each, every, expire_every=expire_every, buckets=buckets)


def in_reach(query, arrivals, x, y):
    """Whether the older of two tuples still counts when the younger comes."""
    u, k = sorted((x, y), key=lambda member: member.number)
    extent = query.windows[u.stream]
    if isinstance(extent, Within):
        age = k.time - u.time
        return age <= extent.length if extent.closed else age < extent.length
    return sum(z.stream == u.stream and u.number < z.number < k.number for z in arrivals) < extent.length


def matching(query, x, y):
    """Whether all conditions between two tuples hold."""
    values = {x.stream: x.value, y.stream: y.value}
    return all(
        None not in values.values() and edge.condition(values[edge.left], values[edge.right])
        for edge in query.edges
        if {edge.left, edge.right} == {x.stream, y.stream}
    )


def by_pairs(query, arrivals):
    """The answer by its definition: each two members match, and the older is in reach of the younger."""
    fitting = {
        (x.number, y.number)
        for x, y in combinations(arrivals, 2)
        if x.stream != y.stream and in_reach(query, arrivals, x, y) and matching(query, x, y)
    }
    found = [()]
    for origin in query.streams:
        own = [x.number for x in arrivals if x.stream == origin]
        found = [
            (*partial, new)
            for partial in found
            for new in own
            if all((min(old, new), max(old, new)) in fitting for old in partial)
        ]
    return sorted(found)


def numbers(results):
    return sorted(tuple(member.number for member in result) for result in results)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(50))
@given(st.data())
def test_every_algorithm_finds_each_result_once_with_any_orders_intervals_and_buckets(algorithm, data):
    query = data.draw(joins())
    arrivals = data.draw(inputs(query))
    assert numbers(data.draw(operators(query, algorithm)).run(arrivals)) == by_pairs(query, arrivals)


@settings(max_examples=examples(30))
@given(st.data())
def test_the_answer_is_that_of_the_reference(data):
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    query = equal_values(*map(Within, lengths))
    arrivals = data.draw(inputs(query))
    names = [f"s{i}" for i in query.streams]
    rows = {
        name: [{"ts": x.time, "attr": x.value, "number": x.number} for x in arrivals if x.stream == i]
        for i, name in enumerate(names)
    }
    declared = equijoin(list(zip(names, lengths, strict=True)))
    found = reference.combinations(declared, {name: stream(name) for name in names}, rows)
    assert by_pairs(query, arrivals) == sorted(tuple(row["number"] for row in members) for members in found)


@settings(max_examples=examples(30))
@given(st.data())
def test_the_last_tuples_are_the_same_in_a_circular_array_and_by_counters(data):
    query = data.draw(joins(COUNTS))
    arrivals = data.draw(inputs(query))
    order = data.draw(orders(query))
    circular, counted = eager(query, order), data.draw(operators(query, "general"))
    assert all(isinstance(held, CircularWindow) for held in circular.windows)
    assert all(isinstance(held, CountWindow) for held in counted.windows)
    assert numbers(circular.run(arrivals)) == numbers(counted.run(arrivals))
    for stream_number, extent in enumerate(query.windows):
        own = [x for x in arrivals if x.stream == stream_number]
        assert list(circular.windows[stream_number].tuples(None)) == own[-extent.length :]


@settings(max_examples=examples(30))
@given(st.data())
def test_an_evaluation_may_come_at_any_moment_even_between_equal_times(data):
    query = data.draw(joins())
    arrivals = data.draw(inputs(query))
    join = data.draw(operators(query, "general"))
    for x in arrivals:
        join.arrive(x)
        if data.draw(st.booleans()):
            join.execute(x.time)
    join.finish()
    assert numbers(join.output) == by_pairs(query, arrivals)


@settings(max_examples=examples(30))
@given(st.data())
def test_results_are_out_within_the_interval_and_never_taken_back(data):
    query = data.draw(joins())
    arrivals = data.draw(inputs(query))
    join = data.draw(operators(query, "lazy"))
    newest = {x.number: x.time for x in arrivals}
    expected = by_pairs(query, arrivals)
    before = []
    for x in arrivals:
        join.arrive(x)
        assert join.output[: len(before)] == before
        before = list(join.output)
        overdue = [result for result in expected if newest[max(result)] + join.every <= x.time]
        assert set(overdue) <= set(numbers(before))


@settings(max_examples=examples(30))
@given(st.data())
def test_expiration_at_once_leaves_what_counts_and_nothing_else(data):
    query = data.draw(joins(TIMES))
    join = data.draw(st.sampled_from([eager, naive]))(query, data.draw(orders(query)))
    arrivals = data.draw(inputs(query))
    for i, x in enumerate(arrivals, start=1):
        join.arrive(x)
        now = Arrival(-1, x.time, len(arrivals))
        counting = [u for u in arrivals[:i] if in_reach(query, arrivals, u, now)]
        assert [u for held in join.windows for u in held.tuples(None)] == sorted(
            counting, key=lambda u: (u.stream, u.number)
        )
        assert join.counts.state == len(counting)


@settings(max_examples=examples(30))
@given(st.data())
def test_rare_expiration_holds_more_and_finds_the_same(data):
    query = data.draw(joins())
    arrivals = data.draw(inputs(query))
    order, every = data.draw(orders(query)), data.draw(INTERVALS)
    often, rarely = lazy(query, order, every), lazy(query, order, every, expire_every=1000)
    assert often.run(arrivals) == rarely.run(arrivals)
    assert often.counts.peak_state <= rarely.counts.peak_state
    assert often.counts.state <= rarely.counts.state == len(arrivals) - rarely.counts.purged


def of_times(*times):
    """Tuples that all have the same value, in order of time, from the times of each stream."""
    drawn = sorted((time, origin) for origin, own in enumerate(times) for time in own)
    return [Arrival(origin, time, number, 1) for number, (time, origin) in enumerate(drawn)]


def each_algorithm(query, every):
    """All algorithms with all orders; GENERAL with all positions of the new tuples."""
    for order in permutations(query.streams):
        yield naive(query, order)
        yield naive(query, order, every=every)
        yield eager(query, order)
        yield lazy(query, order, every)
        yield general(query, [order[i:] + order[:i] for i in query.streams], every)


@pytest.mark.parametrize("closed", [True, False])
def test_a_tuple_that_has_expired_by_the_time_of_the_new_one_is_not_joined(closed):
    """Tables 2 and 3: one evaluation at 210 sees both new tuples of the third stream."""
    arrivals = of_times([90, 100], [150, 180], [195, 205])
    query = equal_values(*[Within(100, closed)] * 3)
    for join in each_algorithm(query, every=30):
        found = join.run(arrivals)
        assert sorted(tuple(x.time for x in result) for result in found) == [(100, 150, 195), (100, 180, 195)]
    assert len(lazy(equal_values(*[Within(116)] * 3), (0, 1, 2), every=30).run(arrivals)) == 8


def test_a_tuple_as_old_as_its_window_is_long_counts_in_a_closed_window_only():
    arrivals = of_times([100, 99], [200])
    for closed, found in ((True, [(100, 200)]), (False, [])):
        for join in each_algorithm(equal_values(Within(100, closed), Within(1)), every=10):
            assert [(a.time, b.time) for a, b in join.run(arrivals)] == found


def test_a_tuple_on_the_boundary_of_two_evaluations_is_joined_in_one():
    join = lazy(equal_values(Within(100), Within(100)), (0, 1), every=10)
    for x, waiting in zip(of_times([20, 21], [20, 30]), (0, 0, 1, 1), strict=True):
        join.arrive(x)
        # All tuples of 20 are in the evaluation at 20, and that at 30 is still to come.
        assert len(join.output) == waiting
    join.execute(30)
    join.execute(40)
    assert len(join.output) == 4


def test_the_new_tuple_is_outermost_and_the_others_follow_in_the_global_order():
    """Table 4."""
    assert effective_orders((0, 1, 2)) == [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    assert effective_orders((2, 0, 1)) == [(0, 2, 1), (1, 2, 0), (2, 0, 1)]


def test_a_waiting_tuple_keeps_what_has_expired_by_now():
    join = lazy(equal_values(Within(10), Within(10)), (0, 1), every=50)
    for x in of_times([0], [9, 49]):
        join.arrive(x)
    assert join.counts.state == 3
    join.execute(50)
    assert [(a.time, b.time) for a, b in join.output] == [(0, 9)]
    assert join.counts.state == 1


def test_filling_the_windows_joins_and_counts_nothing():
    query = equal_values(Within(10), Within(10))
    arrivals = of_times([0, 5, 12], [5, 6, 13])
    for join in (eager(query, (0, 1)), lazy(query, (0, 1), 4), naive(query, (1, 0), every=4)):
        join.fill(arrivals[:4])
        assert (join.output, join.counts.comparisons, join.counts.peak_state) == ([], 0, 4)
        assert sorted((a.time, b.time) for a, b in join.run(arrivals[4:])) == [(5, 13), (12, 5), (12, 6), (12, 13)]


def test_figures_say_that_they_are_simulated():
    join = eager(equal_values(Within(10), Within(10)), (0, 1))
    join.run(of_times([0, 5], [6]))
    assert str(join) == ("simulated: a join of 2 windows holds 3 tuples (3 at most), makes 8 comparisons and 2 results")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda q: lazy(q, (0, 1), 5, expire_every=AT_ONCE), "wait 5 to be joined and windows expire every 0"),
        (lambda q: lazy(q, (0, 1), 5, expire_every=4), "expire every 5 or more"),
        (lambda q: general(q, [(0, 1), (0, 1)], 5, expire_every=4), "expire every 5 or more"),
        (lambda q: lazy(q, (0, 1), 0), "interval of evaluation is 0"),
        (lambda q: naive(q, (0, 1), every=-1), "an interval is -1"),
        (lambda q: eager(q, (0, 1), expire_every=-2), "an interval is -2"),
        (lambda q: naive(q, (0, 0)), r"\(0, 0\) is no order of the streams; name each of 0 to 1 once"),
        (lambda q: general(q, [(0, 1)], 5), "2 streams need 2 orders"),
        (lambda q: eager(q, (0, 1), buckets=(1,)), "2 streams need 2 orders, and no buckets or 2"),
        (lambda q: eager(q, (0, 1), buckets=(3, 0)), "has 0 buckets"),
        (lambda q: eager(equal_values(Last(3), Last(3)), (0, 1), buckets=(1, 2)), "the last 3 tuples has 2 buckets"),
        (lambda q: equal_values(Within(5)), "a join of 1 windows is no join"),
        (lambda q: equal_values(Within(5), Within(0, closed=True)), "stream 1 has a window of 0"),
        (lambda q: equal_values(Last(0), Within(5)), "stream 0 has a window of 0"),
        (lambda q: MultiJoin(q.windows, (Edge(1, 1),)), "between streams 1 and 1 joins nothing"),
        (lambda q: MultiJoin(q.windows, (Edge(0, 2),)), "between streams 0 and 2 .* two different ones of 0 to 1"),
    ],
)
def test_what_cannot_be_joined_is_refused(make, message):
    with pytest.raises(LabError, match=message):
        make(equal_values(Within(5), Within(5)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Arrival(2, 9, 9), "no stream 2; the query joins 0 to 1"),
        (Arrival(0, 6, 9), "time 6 comes after time 7; sort the arrivals"),
        (Arrival(0, 9, 1), "arrival 1 comes after arrival 1; number them"),
    ],
)
@pytest.mark.parametrize("fill", [True, False])
def test_a_refused_tuple_changes_nothing(bad, message, fill):
    query = equal_values(Within(5), Within(5))
    for join in (eager(query, (0, 1)), lazy(query, (0, 1), 4)):
        for x in of_times([5], [7]):
            join.arrive(x)
        join.execute(7)
        with pytest.raises(LabError, match=message):
            join.fill([bad]) if fill else join.arrive(bad)
        assert join.counts.state == 2
        join.finish()
        assert len(join.output) == 1


def test_waiting_tuples_are_not_forgotten_by_filling():
    join = lazy(equal_values(Within(5), Within(5)), (0, 1), 4)
    join.arrive(Arrival(0, 1, 0, 1))
    with pytest.raises(LabError, match=r"tuples wait .* call execute first"):
        join.fill([Arrival(1, 2, 1, 1)])
    join.execute(1)
    join.fill([Arrival(1, 2, 1, 1)])
    assert numbers(join.run([Arrival(1, 2, 2, 1)])) == [(0, 2)]


def test_after_an_evaluation_no_tuple_may_come_from_before_it():
    join = lazy(equal_values(Within(5), Within(5)), (0, 1), 4)
    join.execute(20)
    with pytest.raises(LabError, match="time 19 comes after time 20"):
        join.arrive(Arrival(0, 19, 0))


def test_the_operator_alone_allows_any_orders_with_evaluation_at_every_arrival():
    query = MultiJoin((Within(5), Within(5), Within(5)), (Edge(0, 1), Edge(1, 2, operator.lt)))
    arrivals = [Arrival(0, 0, 0, 1), Arrival(2, 0, 1, 2), Arrival(1, 0, 2, 1), Arrival(2, 4, 3, 1), Arrival(2, 4, 4, 9)]
    for one, two, three in permutations(permutations(range(3)), 3):
        assert numbers(Operator(query, [one, two, three]).run(arrivals)) == [(0, 2, 1), (0, 2, 4)]
