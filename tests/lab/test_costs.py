from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.costs import (
    CASE_STUDY,
    Probed,
    RingTimes,
    TreeQuery,
    TwoQueries,
    TwoTrees,
    best_ring,
    central_work,
    chain_rows,
    merge_gain,
    pull_up,
    push_down,
    ring_latency,
    ring_work,
    savings,
    state_slice,
    tree_isolated,
    tree_pull_up,
    tree_state_slice,
)

shares = st.floats(0, 1)
positive_shares = st.floats(0.01, 1)
sizes = st.floats(1, 1000)


@st.composite
def two_queries(draw, passing=shares):
    long = draw(sizes)
    return TwoQueries(draw(sizes), long * draw(positive_shares), long, draw(passing), draw(shares), draw(sizes))


def quadratic(plan, queries):
    """The comparisons that grow with the square of the rate, twice."""
    return plan(replace(queries, rate=2 * queries.rate)).cpu - 2 * plan(queries).cpu


@given(two_queries())
def test_savings_are_the_differences_of_the_plans_and_never_negative(queries):
    found = savings(queries)
    ours = state_slice(queries)
    for plan, memory, cpu in (
        (pull_up, found.memory_of_pull_up, found.cpu_of_pull_up),
        (push_down, found.memory_of_push_down, found.cpu_of_push_down),
    ):
        theirs = plan(queries)
        assert memory == pytest.approx((theirs.memory - ours.memory) / theirs.memory, abs=1e-9)
        work = quadratic(plan, queries)
        assert cpu == pytest.approx((work - quadratic(state_slice, queries)) / work, abs=1e-9)
        assert memory >= 0
        assert cpu >= 0


@given(two_queries(passing=st.just(1.0)))
def test_without_a_selection_state_slice_holds_as_much_as_pull_up_and_saves_the_routing(queries):
    assert savings(queries).memory_of_pull_up == 0
    assert state_slice(queries).memory == pytest.approx(pull_up(queries).memory)
    assert savings(queries).cpu_of_pull_up > 0 or queries.matching == 0


@given(two_queries())
def test_memory_does_not_depend_on_how_many_pairs_match(queries):
    for plan in (pull_up, push_down, state_slice):
        assert plan(replace(queries, matching=0)).memory == plan(queries).memory


def test_the_terms_of_each_plan():
    queries = TwoQueries(rate=10, short=2, long=5, passing=0.5, matching=0.1, row_size=3)
    # probe, purge, route, select
    assert (pull_up(queries).memory, pull_up(queries).cpu) == (300, 1000 + 20 + 100 + 100)
    # split, probe of each part, purge, route, union
    assert (push_down(queries).memory, push_down(queries).cpu) == (315, 10 + 200 + 500 + 30 + 50 + 40)
    # probe of each link, filter of rows, purge, union, filter of results
    assert (state_slice(queries).memory, state_slice(queries).cpu) == (255, 400 + 300 + 10 + 40 + 20 + 40)
    assert pull_up(TwoQueries(10, 2, 5, 0.5, 0.1)).memory == 100  # in rows


@pytest.mark.parametrize(
    ("windows", "of_pull_up", "of_push_down"),
    [
        ((5, 10, 30), (33, 21, 8), (11, 10, 8)),
        ((10, 20, 30), (27, 17, 7), (19, 17, 15)),
        ((20, 25, 30), (13, 8, 3), (28, 27, 26)),
    ],
)
def test_predicted_savings_of_memory_for_three_queries(windows, of_pull_up, of_push_down):
    # The two longer windows have one selection, so the middle one changes neither plan's memory.
    for passing, pulled, pushed in zip((0.2, 0.5, 0.8), of_pull_up, of_push_down, strict=True):
        found = savings(TwoQueries(50, windows[0], windows[-1], passing, 0.1))
        assert 100 * found.memory_of_pull_up == pytest.approx(pulled, abs=0.5)
        assert 100 * found.memory_of_push_down == pytest.approx(pushed, abs=0.5)


def test_the_case_study_of_join_trees():
    isolated, pulled, sliced = (plan(CASE_STUDY) for plan in (tree_isolated, tree_pull_up, tree_state_slice))
    assert [isolated.memory, pulled.memory, sliced.memory] == pytest.approx([2329.2, 6484.5, 2308.21], abs=0.05)
    assert [isolated.cpu, pulled.cpu, sliced.cpu] == pytest.approx([5820.89, 27227.88, 6422.66], abs=0.01)
    assert sliced.memory == pytest.approx(
        0.03 + 1.475 + 0.03 + 1.475 + 0.45 + 0.375 + 0.375 + 54 + 37.5 + 2212.5, abs=1e-9
    )


def test_the_terms_of_each_tree():
    trees = TwoTrees(
        rates=(10, 20, 30),
        first=TreeQuery(window_ab=1, window_bc=4, passing=(0.5, 0.5, 0.5)),  # 5, 10 and 15 rows a minute
        second=TreeQuery(window_ab=3, window_bc=2, passing=(0.2, 0.4, 0.1)),  # 2, 8 and 3
        either=(0.6, 0.8, 0.6),  # 6, 16 and 18
        matching_ab=0.1,
        matching_bc=0.5,
        row_kb=1000,
    )
    # A, B, C, AB of both queries; filter, purge, probe of AB, probe of C
    memory = (5 + 10 + 60 + 80) + (6 + 24 + 6 + 38.4)
    cpu = (60 + 40 + 100 + 1200) + (60 + 22.6 + 96 + 115.2)
    assert tree_isolated(trees).memory == pytest.approx(memory)
    assert 1e6 * tree_isolated(trees).cpu == pytest.approx(cpu)
    # A, B, C, AB; filter of rows and results, purge, probe of AB, probe of C, route
    memory = 18 + 48 + 72 + 460.8
    cpu = 60 + 8294.4 + 97.6 + 576 + 8294.4 + 8294.4
    assert tree_pull_up(trees).memory == pytest.approx(memory)
    assert 1e6 * tree_pull_up(trees).cpu == pytest.approx(cpu)
    # A1, A2, B1, B2, C1, C2, C3, AB1, AB2, AB3; filter of base rows, results and AB, purge, probe of AB, of C, union
    memory = 6 + 4 + 16 + 16 + 36 + 30 + 6 + 76.8 + 40 + 25.6
    cpu = (20 + 40 + 90) + 1382.4 + 19.2
    cpu += (12 + 32 + 54 + 38.4 + 6.4) + (192 + 64) + (1382.4 + 600 + 76.8) + (1382.4 + 300 + 38.4)
    assert tree_state_slice(trees).memory == pytest.approx(memory)
    assert 1e6 * tree_state_slice(trees).cpu == pytest.approx(cpu)


def case_study(m, n, rate=1000.0):
    """The case study with windows m * 60 and 60 minutes on A x B, 30 and n * 30 minutes on B x C."""
    first, second = replace(CASE_STUDY.first, window_ab=60 * m), replace(CASE_STUDY.second, window_bc=30 * n)
    return replace(CASE_STUDY, rates=(rate, rate, rate), first=first, second=second)


@given(positive_shares, positive_shares)
def test_ratios_of_memory_where_pairs_dominate(m, n):
    trees = case_study(m, n, rate=1e12)
    sliced = tree_state_slice(trees).memory
    assert sliced / tree_isolated(trees).memory == pytest.approx(1 - 840 * m * n / (1500 * (m + n)))
    assert sliced / tree_pull_up(trees).memory == pytest.approx((1500 * (m + n) - 840 * m * n) / 2160)


@given(positive_shares, positive_shares)
def test_ratios_of_cpu(m, n):
    sliced = tree_state_slice(case_study(m, n)).cpu
    terms = 41.1 * m * n + 206.35 * m + 206.25 * n + 0.138
    assert sliced / tree_isolated(case_study(m, n)).cpu == pytest.approx(
        terms / (187.64 * m + 187.5 * n + 0.138), rel=1e-3
    )
    assert sliced / tree_pull_up(case_study(m, n)).cpu == pytest.approx(terms / 453.8, rel=1e-3)


def test_ratios_of_cpu_at_the_point_of_the_case_study_and_where_nothing_differs():
    trees = case_study(1 / 60, 1 / 2)
    assert trees == CASE_STUDY
    sliced = tree_state_slice(trees).cpu
    assert sliced / tree_isolated(trees).cpu == pytest.approx(1.103, abs=5e-4)
    assert sliced / tree_pull_up(trees).cpu == pytest.approx(0.236, abs=5e-4)
    assert tree_state_slice(case_study(1, 1)).cpu / tree_pull_up(case_study(1, 1)).cpu == pytest.approx(1, abs=1e-3)


per_stream = st.tuples(positive_shares, positive_shares, positive_shares)


@st.composite
def two_trees(draw):
    short_ab, long_ab = sorted((draw(sizes), draw(sizes)))
    short_bc, long_bc = sorted((draw(sizes), draw(sizes)))
    first, second = draw(per_stream), draw(per_stream)
    either = tuple(max(f, s) for f, s in zip(first, second, strict=True))
    return TwoTrees(
        rates=draw(st.tuples(sizes, sizes, sizes)),
        first=TreeQuery(short_ab, long_bc, first),
        second=TreeQuery(long_ab, short_bc, second),
        either=either,
        matching_ab=draw(positive_shares),
        matching_bc=draw(positive_shares),
        row_kb=0.1,
    )


def swapped(values):
    a, b, c = values
    return b, a, c


@given(two_trees())
def test_a_and_b_are_alike_in_a_tree(trees):
    other = replace(
        trees,
        rates=swapped(trees.rates),
        first=replace(trees.first, passing=swapped(trees.first.passing)),
        second=replace(trees.second, passing=swapped(trees.second.passing)),
        either=swapped(trees.either),
    )
    for plan in (tree_isolated, tree_pull_up, tree_state_slice):
        assert plan(other).memory == pytest.approx(plan(trees).memory)
        assert plan(other).cpu == pytest.approx(plan(trees).cpu)


NOTHING = (0.0, 0.0, 0.0)


@given(two_trees())
def test_a_tree_whose_other_query_selects_nothing_costs_as_much_as_the_one_alone(trees):
    # High rates and rare results leave the probes alone.
    busy = replace(trees, rates=tuple(1e9 * r for r in trees.rates), matching_bc=1e-12)
    alone = replace(busy, second=replace(busy.second, passing=NOTHING), either=busy.first.passing)
    assert tree_state_slice(alone).memory == pytest.approx(tree_isolated(alone).memory)
    assert tree_state_slice(alone).cpu == pytest.approx(tree_isolated(alone).cpu)
    alone = replace(busy, first=replace(busy.first, passing=NOTHING), either=busy.second.passing)
    assert tree_state_slice(alone).cpu == pytest.approx(tree_isolated(alone).cpu)


@given(two_trees())
def test_the_chain_of_old_pairs_keeps_a_second_copy_of_c(trees):
    alone = replace(trees, first=replace(trees.first, passing=NOTHING), either=trees.second.passing)
    copy = alone.rates[2] * alone.second.passing[2] * alone.second.window_bc * alone.row_kb / 1000
    assert tree_state_slice(alone).memory == pytest.approx(tree_isolated(alone).memory + copy)


@given(two_trees())
def test_equal_trees_pulled_up_hold_half_of_what_they_hold_apart(trees):
    equal = replace(trees, second=trees.first, either=trees.first.passing)
    assert 2 * tree_pull_up(equal).memory == pytest.approx(tree_isolated(equal).memory)


@given(sizes, sizes, st.lists(sizes, min_size=1))
def test_a_chain_holds_what_its_longest_window_holds(rate_a, rate_b, windows):
    assert chain_rows(rate_a, rate_b, sorted(windows)) == pytest.approx((rate_a + rate_b) * max(windows))


def test_a_chain_of_no_windows_holds_nothing():
    assert chain_rows(1, 2, []) == 0


@given(sizes, sizes, st.lists(sizes, min_size=1), st.data(), shares, sizes)
def test_merging_one_link_gains_nothing(rate_a, rate_b, windows, data, matching, overhead):
    link = data.draw(st.integers(1, len(windows)))
    assert merge_gain(rate_a, rate_b, sorted(windows), link, link, matching, overhead) == 0


def test_merging_saves_purges_and_operators_and_pays_the_router():
    windows = [1, 3, 7, 20]
    # Links 2 and 3: a purge of each of 15 rows; an operator less and a router more; 2 * 5 * 10 * 6 pairs, a tenth
    # match.
    assert merge_gain(5, 10, windows, 2, 3, 0.1, 4) == pytest.approx(15 - 60)
    # Links 1 to 3: two purges; three operators become one and a router; 2 * 5 * 10 * 7 pairs routed past two cuts.
    assert merge_gain(5, 10, windows, 1, 3, 0.1, 4) == pytest.approx(15 * (2 + 4) - 2 * 70)


probed = st.builds(Probed, st.floats(0, 50), st.floats(0, 50), shares, shares)
seconds = st.floats(0, 10)
ring_times = st.builds(RingTimes, seconds, seconds, seconds, seconds, seconds)


@given(st.lists(probed, max_size=5), ring_times, st.integers(1, 30))
def test_work_is_that_of_the_pairs_probed_and_the_rows_sent(order, times, nodes):
    rows, pairs, sent = 1.0, 0.0, 0.0
    for stream in order:
        held = stream.rate * stream.window * stream.passing
        sent += rows
        pairs += rows * held
        rows *= held * stream.matching
    work = times.insert + times.purge + times.join * pairs
    assert central_work(order, times) == pytest.approx(work)
    assert ring_work(order, times, nodes) == pytest.approx(work + times.send * nodes * sent)


@given(st.integers(1, 5), st.floats(1, 50), st.floats(1, 50), shares, ring_times, st.integers(1, 30))
def test_equal_streams_send_in_proportion_to_what_they_probe(streams, rate, window, matching, times, nodes):
    times = replace(times, insert=0, purge=0, join=times.join + 1)
    order = [Probed(rate, window, matching)] * streams
    factor = 1 + times.send * nodes / (rate * window * times.join)
    assert ring_work(order, times, nodes) == pytest.approx(central_work(order, times) * factor)


@given(st.lists(probed, min_size=1, max_size=5), ring_times, st.integers(1, 30))
def test_latency_is_the_average_over_the_nodes(order, times, nodes):
    work, streams = ring_work(order, times, nodes), len(order) + 1
    each = [(i - 1) * times.hop + max(work / nodes, streams * nodes * times.hop) for i in range(1, nodes + 1)]
    assert ring_latency(order, times, nodes) == pytest.approx(sum(each) / nodes)


@given(st.lists(probed, max_size=4), ring_times)
def test_the_best_ring_has_the_lowest_latency_and_is_the_smallest_of_those(order, times):
    latencies = [ring_latency(order, times, nodes) for nodes in range(1, 41)]
    assert best_ring(order, times, 40) == 1 + latencies.index(min(latencies))


@given(st.integers(1, 4), st.floats(1, 100), st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 0.1))
def test_the_best_ring_is_near_the_closed_form(streams, held, join, hop, send):
    """N = min(N1, N2): where work meets the hops of all rounds, or work per node the hops to the middle one."""
    order, times = [Probed(1, held, 1 / held)] * streams, RingTimes(0, 0, join, send, hop)
    work = central_work(order, times)
    sending = send * work / (held * join)
    m = (streams + 1) * hop
    n1 = (sending + sqrt(sending**2 + 4 * m * work)) / (2 * m)
    n2 = 0.5 + sqrt(0.25 + 2 * work / hop)
    assert abs(best_ring(order, times, 1000) - max(1, min(n1, n2))) <= 1


def test_a_ring_without_rows_or_work_has_one_node():
    idle = RingTimes(0, 0, 0, 0, 0)
    assert best_ring([Probed(0, 10, 0.5)], RingTimes(0, 0, 1, 1, 1), 10) == 1
    assert best_ring([Probed(10, 10, 0.5)], idle, 10) == 1
