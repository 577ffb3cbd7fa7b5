"""Prices of whole plans, and the choice among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.maintenance import cheapest
from penstock.planner.views.choice import Chooser, priced
from penstock.planner.views.formulas import grouping_cost
from penstock.planner.views.price import price
from penstock.planner.views.regression import Tau
from penstock.planner.views.statistics import Sample, Statistics
from penstock.planner.views.strategies import STRATEGIES, batch, conditional, sweep
from tests.effort import examples

from .test_costs import PRINTED, statistics
from .test_strategies import V2, V3, chain, graphs, star


def measured(graph, latency, per_key, **more):
    """Statistics after requests of all sizes, each with so many seconds fixed and per key."""
    stats = statistics(graph, rows=200_000.0)
    sizes = (1, 10, 100, 1000, 5000, 10_000, 20_000)
    samples = {
        (a, b): tuple(Sample(b, (a,), k, 4, k, k, k, latency + per_key * k) for k in sizes)
        for a in range(graph.count)
        for b in range(graph.count)
        if a != b and graph.joined(a, b)
    }
    return replace(stats, samples=samples, connections=(6,) * graph.count, **more)


def test_rounds_count_on_slow_links_and_requests_on_fast_ones():
    graph, deltas = chain(6), [200.0] * 6
    slow = measured(graph, 0.020, 2e-6)
    costs = {name: cost for name, (cost, _) in priced(graph, slow, deltas).items()}
    assert costs["batch"] > 0.6  # thirty times twenty milliseconds
    assert costs["conditional"] == pytest.approx(0.2, rel=0.2)
    assert max(costs["parallel_batch"], costs["parallel_conditional"]) < 0.14
    assert costs["batch"] / min(costs.values()) > 2
    fast = measured(graph, 0.0001, 2e-6)
    costs = {name: cost for name, (cost, _) in priced(graph, fast, deltas).items()}
    assert min(costs["conditional"], costs["parallel_conditional"]) < costs["batch"]


def test_recompute_is_chosen_where_it_is_cheaper():
    graph = chain(6)
    stats = measured(graph, 0.0002, 10e-6, recompute=1.0)
    assert Chooser(graph, stats).choose([200] * 6).plan.strategy != "recompute"
    assert Chooser(graph, stats).choose([20_000] * 6).plan.strategy == "recompute"


def test_a_branch_of_a_star_need_not_wait_for_the_others():
    graph = star(6)
    stats = measured(graph, 0.020, 0.0)
    assert batch(graph, parallel=True).rounds == 2
    assert price(graph, stats, batch(graph, parallel=True), [10.0] * 6) < 0.07


def test_the_price_of_sequential_plans_is_the_sum_of_their_requests():
    graph = chain(3)
    stats = Statistics((1000.0,) * 3, (2,) * 3, {(0, 1): 1.0, (1, 2): 1.0})
    taus = {(a, b): Tau(1.0) for a in range(3) for b in range(3)}
    assert price(graph, stats, batch(graph), [5.0] * 3, taus) == pytest.approx(6, abs=0.01)
    assert price(graph, stats, conditional(graph), [5.0] * 3, taus) == pytest.approx(4, abs=0.01)
    assert price(graph, stats, conditional(graph, parallel=True), [5.0] * 3, taus) == pytest.approx(2, abs=0.01)
    assert price(graph, stats, sweep(graph), [5.0, 0.0, 2.0], taus) == pytest.approx(14, abs=0.01)
    assert price(graph, stats, batch(graph), [0.0, 5.0, 0.0], taus) == pytest.approx(2, abs=0.01)


def test_one_connection_takes_one_request_after_the_other():
    graph = chain(3)
    stats = Statistics((1000.0,) * 3, (2,) * 3, {(0, 1): 1.0, (1, 2): 1.0}, connections=(1, 1, 1))
    taus = {(a, b): Tau(1.0) for a in range(3) for b in range(3)}
    # The middle node is asked twice at once, by both ends.
    alone = price(graph, stats, batch(graph, parallel=True), [5.0, 0.0, 5.0], taus)
    assert alone == pytest.approx(3, abs=0.01)
    both = price(graph, replace(stats, connections=(2, 2, 2)), batch(graph, parallel=True), [5.0, 0.0, 5.0], taus)
    assert both == pytest.approx(2, abs=0.01)


PAIRS = [(a, b) for a in range(4) for b in range(4)]


def test_where_printed_formulas_flip_to_batch_grouping_ships_as_few_rows_and_need_not():
    """The printed path uses only its own edges, and the others filter at the end: a ratio of fifty multiplies its rows.

    Here every edge between held nodes filters at once, and the way down asks the third source by both its edges.
    """
    stats, deltas = statistics(V2, {(0, 2): 50.0, (1, 2): 50.0}), [2000.0, 2000.0, 10.0, 10.0]
    assert cheapest(V2, stats, lambda v, j: PRINTED, deltas)[0] == "batch"
    offers = priced(V2, stats, deltas, ("batch", "conditional"), dict.fromkeys(PAIRS, PRINTED))
    batched, grouped = offers["batch"][1], offers["conditional"][1]
    assert grouped.sequence == (3, 2, 0, 1)
    assert next(r.via for r in grouped.requests if r.node == 2 and 0 in r.members) == (0, 1)
    per_row = dict.fromkeys(PAIRS, Tau(0.0, (("C", 1.0),)))
    assert price(V2, stats, grouped, deltas, per_row) == pytest.approx(9040, abs=1)
    assert price(V2, stats, batched, deltas, per_row) == pytest.approx(9040, abs=1)
    assert grouping_cost(stats, lambda v, j: per_row[v, j], deltas, grouped.sequence) == pytest.approx(209_530, abs=1)
    assert (len(grouped.requests), len(batched.requests)) == (6, 12)
    assert offers["conditional"][0] < 0.51 * offers["batch"][0]


def test_batch_is_chosen_where_no_path_suits_the_changes_of_all_sources():
    """If every edge has a ratio of fifty, changes grow on a path where another order would close a triangle at once."""
    deltas = [2000, 2000, 10, 10]
    for ratio, strategy in ((50.0, "batch"), (1.0, "conditional")):
        stats = statistics(V3, {tuple(sorted(edge)): ratio for edge in V3.edges})
        offers = priced(V3, stats, list(map(float, deltas)), ("batch", "conditional"), dict.fromkeys(PAIRS, PRINTED))
        assert min(offers, key=lambda name: offers[name][0]) == strategy
        chooser = Chooser(V3, stats, ("batch", "conditional"), _taus=dict.fromkeys(PAIRS, PRINTED))
        assert chooser.choose(deltas).plan.strategy == strategy


@settings(deadline=None, max_examples=examples(30))
@given(graphs(6), st.lists(st.integers(0, 1000), min_size=6, max_size=6), st.sampled_from([0.0001, 0.02]))
def test_some_plan_is_found_for_every_graph_and_none_offered_is_cheaper(graph, deltas, latency):
    chooser = Chooser(graph, measured(graph, latency, 3e-6, recompute=0.5))
    deltas = deltas[: graph.count]
    choice = chooser.choose(deltas)
    assert dict(choice.prices)[choice.plan.strategy] == choice.seconds
    assert choice.seconds <= min(s for _, s in choice.prices) * (1 + 1e-9)
    assert choice.plan.explain() in choice.explain()


def test_a_strategy_that_takes_longer_than_promised_gives_way():
    graph = chain(5)
    truth = {
        "parallel_conditional": 0.5,
        "conditional": 0.3,
        "parallel_batch": 0.1,
        "batch": 0.7,
        "adjacent": 0.6,
        "sweep": 9,
    }
    chooser = Chooser(graph, measured(graph, 0.02, 2e-6), allowed=[s for s in STRATEGIES if s != "recompute"])
    chosen = []
    for _ in range(25):
        choice = chooser.choose([100] * 5)
        chosen.append(choice.plan.strategy)
        chooser.learn(choice, [100] * 5, (), truth[choice.plan.strategy])
    assert set(chosen[-10:]) == {"parallel_batch"}
    assert "sweep" not in chosen  # too dear to be tried


def test_what_every_refresh_takes_besides_its_requests_is_nobodys_fault():
    """A strategy whose first refresh is far slower than an ignorant prediction is not abandoned for a recompute."""
    graph, truth = chain(6), Tau(0.03, (("C", 1e-5),))
    chooser = Chooser(graph, replace(statistics(graph, rows=100_000.0), recompute=4.0))
    for _ in range(20):
        choice = chooser.choose([100] * 6)
        samples = [
            Sample(r.node, r.via, 100 * len(r.members), 4, 100, 100, 100, truth(100 * len(r.members), 4))
            for r in choice.plan.requests
        ]
        one_by_one = sum(s.seconds for s in samples)
        chooser.learn(choice, [100] * 6, samples, 0.2 + (0.2 if choice.plan.parallel else one_by_one))
    assert choice.plan.parallel
    assert choice.plan.strategy != "recompute"
    assert choice.seconds == pytest.approx(0.4, rel=0.3)


def test_a_recompute_that_was_clearly_cheaper_is_foreseen_for_a_while():
    graph = chain(6)
    chooser = Chooser(graph, measured(graph, 0.0002, 10e-6, recompute=0.3))
    assert chooser.foreseen() is None
    choice = chooser.choose([20_000] * 6)
    assert choice.plan.strategy == "recompute"
    foreseen = [chooser.foreseen() for _ in range(5)]
    chooser.learn(choice, (), (), 0.2)
    assert chooser.statistics.recompute == 0.2
    assert [plan is not None for plan in foreseen] == [True, True, True, False, False]
    chooser.choose([20_000] * 6)
    assert chooser.foreseen() is not None
    chooser.choose([20] * 6)
    assert chooser.foreseen() is None


def test_nothing_but_recompute_may_be_allowed():
    chooser = Chooser(chain(3), measured(chain(3), 0.001, 0.0), allowed=["recompute"])
    assert chooser.choose([1, 1, 1]).plan.strategy == "recompute"
    with pytest.raises(ValueError, match="no strategy"):
        Chooser(chain(3), measured(chain(3), 0.001, 0.0), allowed=["guess"]).choose([1, 1, 1])


def settled(truth, refreshes, chooser, deltas, noise=lambda turn: 1.0):
    """The strategies that are chosen when refreshes take what `truth` says."""
    chosen = []
    for turn in range(refreshes):
        choice = chooser.choose(deltas)
        chosen.append(choice.plan.strategy)
        chooser.learn(choice, deltas, (), truth[choice.plan.strategy] * noise(turn))
    return chosen


@settings(max_examples=examples(20))
@given(
    st.fixed_dictionaries({name: st.floats(0.08, 0.5) for name in STRATEGIES if name != "recompute"}),
    st.floats(0.05, 3.0),
)
def test_no_strategy_is_tried_more_than_twice_before_the_best_of_the_tried_is_settled_on(truth, whole):
    graph, deltas = chain(6), [100] * 6
    chooser = Chooser(graph, measured(graph, 0.002, 2e-6, recompute=whole))
    chosen = settled({**truth, "recompute": whole}, 40, chooser, deltas)
    kept = chosen[-1]
    tried = {name: chosen.count(name) for name in set(chosen)}
    assert all(count <= 2 for name, count in tried.items() if name != kept), chosen
    assert set(chosen[2 * len(STRATEGIES) :]) == {kept}
    known = {**truth, "recompute": whole}
    assert known[kept] <= min(known[name] for name in tried)
    assert known[kept] <= whole  # what a recompute takes was known from the start


def test_one_slow_refresh_changes_no_choice_and_lasting_slowness_does():
    graph, deltas = chain(6), [100] * 6
    truth = dict.fromkeys(STRATEGIES, 0.2) | {"parallel_batch": 0.15, "recompute": 4.0}
    chooser = Chooser(graph, measured(graph, 0.002, 2e-6, recompute=4.0))
    before = settled(truth, 20, chooser, deltas)[-1]
    assert settled(truth, 10, chooser, deltas, lambda turn: 5.0 if turn == 3 else 1.0) == [before] * 10
    assert settled(truth | {before: 0.9}, 8, chooser, deltas)[-1] != before


def test_a_recompute_is_taken_as_soon_as_one_refresh_by_large_changes_took_longer():
    """Prices know nothing of requests that large before one was made; what one took tells of the others."""
    graph, small, large = chain(6), [100] * 6, [20_000] * 6
    chooser = Chooser(graph, measured(graph, 0.0002, 1e-7, recompute=0.5))
    truth = dict.fromkeys(STRATEGIES, 0.05) | {"recompute": 0.5}
    settled(truth, 12, chooser, small)
    chosen = settled(dict.fromkeys(STRATEGIES, 2.0) | {"recompute": 0.5}, 6, chooser, large)
    assert [name for name in chosen if name != "recompute"][1:] == [], chosen
    assert chosen[-3:] == ["recompute"] * 3, chosen
    assert settled(truth, 1, chooser, small) != ["recompute"]
