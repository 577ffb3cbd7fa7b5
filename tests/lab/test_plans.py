import math
from itertools import pairwise
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import costs
from lab.plans import PLANS, simulate
from lab.workload import A, Arrival, B, Below, JoinQuery, LabError, both, hashed, poisson
from penstock.model.time import SECOND
from tests.lab.test_chain import ARRIVALS, QUERIES, THETAS, in_order, nested_loops, numbers

PLAN_NAMES = st.sampled_from(sorted(PLANS))

WINDOWS = {"mostly small": (5, 10, 30), "uniform": (10, 20, 30), "mostly large": (20, 25, 30)}
PASSING = (0.2, 0.5, 0.8)
MATCHING = (0.025, 0.1, 0.4)
# The share of state that the chain saves of the plan's, in percent, for each share of A that passes.
SAVED = {
    ("mostly small", "pull_up"): (33, 21, 8),
    ("mostly small", "push_down"): (11, 10, 8),
    ("uniform", "pull_up"): (27, 17, 7),
    ("uniform", "push_down"): (19, 17, 15),
    ("mostly large", "pull_up"): (13, 8, 3),
    ("mostly large", "push_down"): (28, 27, 26),
}
RATE = 4  # tuples a second of each stream


@given(PLAN_NAMES, QUERIES, THETAS, ARRIVALS)
def test_every_plan_gives_every_query_its_window_join_in_order(plan, queries, theta, arrivals):
    trial = simulate(plan, queries, theta, arrivals)
    for query in queries:
        answer = trial.answers[query.name]
        assert numbers(answer) == nested_loops(query, theta, arrivals)
        assert all(earlier.time <= later.time for earlier, later in pairwise(answer))


@given(PLAN_NAMES, QUERIES, ARRIVALS)
def test_no_plan_holds_less_than_the_chain_at_any_moment(plan, queries, arrivals):
    last = arrivals[-1].time if arrivals else 0
    every_cell = [Arrival(stream, last, 100, value) for stream in (A, B) for value in (0.1, 0.5, 0.9, None)]
    everything = [*arrivals, *every_cell]
    chain, other = (simulate(name, queries, lambda a, b: False, everything) for name in ("state_slice", plan))
    assert all(least <= held for least, held in zip(chain.states, other.states, strict=True))


@given(PLAN_NAMES, st.integers(1, 12), ARRIVALS)
def test_a_single_query_without_selections_is_one_join_without_router_in_every_plan(plan, window, arrivals):
    counts = simulate(plan, [JoinQuery("q", both(window))], lambda a, b: True, arrivals).counts
    pairs = sum(abs(a.time - b.time) < window for a in arrivals for b in arrivals if a.stream == A and b.stream == B)
    assert counts.probes == pairs
    assert (counts.routed, counts.filtered, counts.split, counts.union_steps) == (0, 0, 0, 0)


def motivating_queries(passing=0.5):
    return [JoinQuery("short", both(2)), JoinQuery("long", both(10), (Below(passing), None))]


@pytest.mark.parametrize("plan", sorted(PLANS))
def test_a_null_fails_a_selection_and_still_serves_the_queries_without_one(plan):
    arrivals = [Arrival(A, 0, 0, None), Arrival(B, 1, 1)]
    answers = simulate(plan, motivating_queries(), lambda a, b: True, arrivals).answers
    assert {name: numbers(answer) for name, answer in answers.items()} == {"short": [(0, 1)], "long": []}


def test_push_down_joins_each_cell_of_a_with_its_own_copy_of_b():
    arrivals = in_order([(A, 0, 0.1), (A, 0, 0.9), (A, 0, None), (B, 1, None), (B, 4, None), (A, 0, 0.9)])
    trial = simulate("push_down", motivating_queries(), lambda a, b: True, arrivals)
    # The cell that is selected keeps both streams for 10, the other for 2: at 5 that one loses two a, then a b.
    assert trial.states == (1, 2, 3, 5, 5, 5)
    assert trial.counts.split == 4  # tuples of A, not of B
    assert trial.counts.probes == (1 + 2) + (1 + 0) + 1
    assert trial.counts.routed == 2  # results of the selected cell, compared with the short window
    assert trial.counts.union_steps == 4  # results of the short query, which both cells feed
    assert trial.counts.messages == 4 * 1 + 2 * 2  # a tuple of A goes to one join, a tuple of B to both
    assert trial.counts.comparisons - trial.counts.purge_tests == 5 + 4 + 2 + 4


def test_push_down_has_no_join_for_tuples_that_no_query_wants():
    queries = [JoinQuery("q", both(10), (Below(0.5), None))]
    counts = simulate("push_down", queries, lambda a, b: True, in_order([(A, 0, 0.9), (B, 1, None)])).counts
    assert (counts.state, counts.messages) == (0, 0)


def test_pull_up_keeps_everything_for_the_longest_window_and_selects_last():
    arrivals = in_order([(A, 0, 0.1), (A, 0, 0.9), (B, 1, None), (B, 4, None)])
    counts = simulate("pull_up", motivating_queries(), lambda a, b: True, arrivals).counts
    assert (counts.state, counts.probes) == (4, 4)
    assert (counts.routed, counts.filtered) == (4, 4)


def test_isolated_queries_each_keep_their_own_state():
    arrivals = in_order([(A, 0, 0.1), (A, 0, 0.9), (B, 1, None), (B, 4, None)])
    counts = simulate("isolated", motivating_queries(), lambda a, b: True, arrivals).counts
    assert (counts.state, counts.probes) == (2 + 3, 2 + 1 + 1)
    assert (counts.routed, counts.filtered) == (0, 2)


def three_queries(windows, passing):
    """Q1: A[w1] x B[w1], Q2: select(A)[w2] x B[w2], Q3: select(A)[w3] x B[w3], with one selection for both."""
    short, middle, long = (both(window * SECOND) for window in windows)
    selections = (Below(passing), None)
    return [JoinQuery("q1", short), JoinQuery("q2", middle, selections), JoinQuery("q3", long, selections)]


def mean_states(distribution, passing, matching):
    windows = WINDOWS[distribution]
    arrivals = poisson((RATE, RATE), seconds=90, seed=8)
    queries = three_queries(windows, passing)
    plans = ("state_slice", "pull_up", "push_down")
    return {n: simulate(n, queries, hashed(matching), arrivals, warm_up=30 * SECOND).mean_state for n in plans}


def saved(states):
    """The shares of pull_up's and of push_down's state that the chain saves."""
    return tuple(1 - states["state_slice"] / states[name] for name in ("pull_up", "push_down"))


@pytest.mark.parametrize("passing", PASSING)
@pytest.mark.parametrize("distribution", WINDOWS)
def test_the_chain_saves_the_state_that_the_model_says_whatever_the_share_of_matches(distribution, passing):
    """Wang 2008, 8.2. The two queries of the model carry over, since the second and the third share their selection."""
    model = costs.TwoQueries(RATE, WINDOWS[distribution][0], WINDOWS[distribution][-1], passing, matching=0.1)
    printed = [SAVED[distribution, name][PASSING.index(passing)] for name in ("pull_up", "push_down")]
    first, *others = [mean_states(distribution, passing, matching) for matching in MATCHING]
    assert others == [first, first]
    assert saved(first) == pytest.approx([share / 100 for share in printed], abs=0.03)
    # The model purges at once. In fact a tuple waits for the next one of the other stream in its join: for each state
    # that makes its own rate, divided by the rate of that one, more.
    overstay = {"state_slice": 2, "pull_up": 2, "push_down": 1 + 1 / passing + 1 / (1 - passing)}
    expected = {name: getattr(costs, name)(model).memory + overstay[name] for name in first}
    assert first == pytest.approx(expected, rel=0.05)
    assert saved(first) == pytest.approx(saved(expected), abs=0.02)


@pytest.mark.parametrize("plan", ["pull_up", "push_down", "state_slice"])
def test_the_comparisons_of_a_plan_are_those_of_its_cost_formula(plan):
    model = costs.TwoQueries(rate=10, short=5, long=20, passing=0.5, matching=0.1)
    selections = (Below(model.passing), None)
    queries = [JoinQuery("short", both(5 * SECOND)), JoinQuery("long", both(20 * SECOND), selections)]
    arrivals = poisson((model.rate, model.rate), 120, seed=1)
    warm = [x for x in arrivals if x.time < 20 * SECOND]
    whole, start = (simulate(plan, queries, hashed(model.matching), seen).counts for seen in (arrivals, warm))
    # The formula has one purge test for each tuple and join; a tuple that does leave has taken a second one.
    made = (whole.comparisons - whole.purged) - (start.comparisons - start.purged)
    assert made / 100 == pytest.approx(getattr(costs, plan)(model).cpu, rel=0.05)


def test_figures_say_that_they_are_simulated():
    trial = simulate("pull_up", motivating_queries(), lambda a, b: True, in_order([(A, 0, 0.1), (B, 1, None)]))
    assert str(trial) == (
        "simulated: pull_up holds 1.5 tuples on average (2 at most), makes 4 comparisons and 2 results"
    )


def test_the_mean_state_leaves_out_the_warm_up():
    arrivals = in_order([(A, 0, 0.1), (A, 3, 0.1), (A, 3, 0.1)])
    states = [
        simulate("pull_up", motivating_queries(), hashed(0), arrivals, warm_up=t).mean_state for t in (0, 1, 6, 7)
    ]
    assert states == [2.0, 2.5, 3.0, 0.0]


def test_what_cannot_be_simulated_is_refused():
    queries = motivating_queries()
    with pytest.raises(LabError, match="no plan 'pullup'; did you mean pull_up"):
        simulate("pullup", queries, hashed(1), [])
    with pytest.raises(LabError, match="time 4 comes after one of time 5; sort the arrivals"):
        simulate("pull_up", queries, hashed(1), [Arrival(A, 5, 0), Arrival(B, 4, 1)])
    with pytest.raises(LabError, match="no query to answer"):
        simulate("isolated", [], hashed(1), [])
    with pytest.raises(LabError, match="stream B has a rate of -1"):
        poisson((1, -1), 10, seed=0)


def test_poisson_arrivals_follow_the_law_and_their_seed():
    arrivals = poisson((20.0, 5.0), 400, seed=3)
    assert arrivals == poisson((20.0, 5.0), 400, seed=3) != poisson((20.0, 5.0), 400, seed=4)
    assert [x.number for x in arrivals] == list(range(len(arrivals)))
    assert all(earlier.time <= later.time < 400 * SECOND for earlier, later in pairwise(arrivals))
    for stream, rate in ((A, 20.0), (B, 5.0)):
        times = [x.time / SECOND for x in arrivals if x.stream == stream]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert len(times) == pytest.approx(400 * rate, rel=0.06)
        assert pstdev(gaps) == pytest.approx(mean(gaps), rel=0.08)
        assert sum(gap > 1 / rate for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)
        values = [x.value for x in arrivals if x.stream == stream]
        assert sum(value < 0.2 for value in values) / len(values) == pytest.approx(0.2, abs=0.03)


def test_the_arrivals_of_one_stream_do_not_depend_on_the_other():
    alone, together = poisson((0, 5), 50, seed=1), poisson((20, 5), 50, seed=1)
    assert [(x.time, x.value) for x in alone] == [(x.time, x.value) for x in together if x.stream == B]


@pytest.mark.parametrize("share", [0.0, 0.025, 0.1, 0.4, 1.0])
def test_the_hash_of_a_pair_matches_the_wanted_share_of_every_tuples_pairs(share):
    theta = hashed(share)
    rows = [Arrival(A, 0, number) for number in range(0, 400, 2)]
    columns = [Arrival(B, 0, number) for number in range(1, 400, 2)]
    matches = [[theta(a, b) for b in columns] for a in rows]
    assert mean(map(mean, matches)) == pytest.approx(share, abs=0.01)
    spread = math.sqrt(share * (1 - share) / 200)
    for line in (*matches, *zip(*matches, strict=True)):
        assert mean(line) == pytest.approx(share, abs=5 * spread)
