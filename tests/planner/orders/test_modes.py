import json
import random
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from penstock.planner.orders.cost import IndexCost
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.modes import MODES, make_mode
from penstock.planner.orders.ranges import Range
from penstock.planner.orders.signals import draw
from penstock.planner.orders.statistics import Statistics
from tests.effort import examples
from tests.recorded import recorded

from .cases import A, B, C, graphs, named
from .world import World, live

ON_ID = JoinGraph(3, classes=[{A, B, C}])
SQUARE = World(  # a cycle of four, where the streams differ by what they match
    JoinGraph(4, classes=[{0, 1}, {1, 2}, {2, 3}, {3, 0}]),
    rates=(100, 100, 100, 100),
    held=(500, 1000, 500, 1000),
    matching={frozenset((0, 1)): 0.02, frozenset((1, 2)): 0.002, frozenset((2, 3)): 0.01, frozenset((3, 0)): 0.001},
)
EVERY_STEP = Parameters(period=1)


def seed_with(low, high, number=1):
    """A seed whose draw for the check lies between the two."""
    return next(seed for seed in range(10_000) if low <= draw(seed, "q", number) < high)


def traced(seed):
    """The state before the traced check: orders A:BC, B:AC, C:AB, ranges, and the arrivals of the check before."""
    mode = make_mode("card", ON_ID, "q", Parameters(seed=seed, period=1))
    mode.orders = {A: (B, C), B: (A, C), C: (A, B)}
    mode.last = (100, 100, 100)
    mode.ranges = {
        A: (Range(named("B"), 0, 30, 20), Range(named("C"), 0, 99, 30), Range(named("AB"), 0, 500, 100)),
        B: (Range(named("A"), 0, 99, 10), Range(named("C"), 0, 99, 30), Range(named("AB"), 0, 80, 60)),
        C: (Range(named("A"), 0, 99, 10), Range(named("B"), 0, 99, 20), Range(named("AC"), 0, 500, 40)),
    }
    flows = {(A, named("AB")): 90.0, (B, named("AB")): 95.0, (C, named("AC")): 50.0}
    mode.observe(Statistics.counted((120, 90, 90), (10, 25, 30), flows, outputs=20))
    return mode


def test_one_check_of_three_phases_traced():
    mode = traced(seed_with(0, 0.37))
    decision = mode.check()
    assert decision.distance == pytest.approx(0.2 / 3)
    assert decision.probability == pytest.approx(1 / 3 + 2 / 3 * 0.2 / 3)
    assert [o.action for o in decision.outcomes] == ["regenerated", "regenerated", "kept"]
    assert decision.outcomes[A].reason == "probing 2 first makes fewer composites"
    assert decision.outcomes[B].reason == "95 rows of 0, 1 are outside 0 to 80"
    assert [v.positions for v in decision.outcomes[B].violated] == [(A, B)]
    assert decision.orders[A] == (C, B)
    moved = {r.positions: r for r in mode.ranges[C]}[named("B")]
    assert (moved.low, moved.high) == (5, 104)
    assert {r.shifts for r in mode.ranges[A]} == {0}
    assert (mode.counters.checks, mode.counters.bypasses, mode.counters.regenerations) == (1, 0, 2)


def test_a_bypassed_check_only_moves_the_ranges():
    mode = traced(seed_with(0.38, 1))
    before = mode.orders
    decision = mode.check()
    assert decision.bypassed
    assert {o.action for o in decision.outcomes} == {"bypassed"}
    assert mode.orders == before
    assert {r.positions: (r.low, r.high) for r in mode.ranges[A]}[named("B")] == (5, 35)
    assert "arrival rates moved by 0.0667" in decision.reason
    assert (mode.counters.bypasses, mode.counters.regenerations) == (1, 0)


def test_peers_are_not_asked_if_every_order_is_already_suspect():
    mode = traced(seed_with(0, 0.37))
    mode.ranges = {start: (Range(named("AB"), 0, 1, 1), *found[:2]) for start, found in mode.ranges.items()}
    reasons = [outcome.reason for outcome in mode.check().outcomes]
    assert all("outside" in reason for reason in reasons)


def test_pop_looks_at_ranges_alone():
    state = structs.replace(traced(0).state, mode="pop")
    mode = make_mode("pop", ON_ID, "q", Parameters(period=1), state=state)
    decision = mode.check()
    assert [o.action for o in decision.outcomes] == ["kept", "regenerated", "kept"]
    assert decision.draw is None


def test_the_first_check_always_plans():
    for name in ("pop", "card", "adaptive"):
        mode = make_mode(name, SQUARE.graph, "q", replace(EVERY_STEP, alpha=0))
        mode.observe(SQUARE.step(mode.orders, random.Random(0)))
        assert {o.action for o in mode.check().outcomes} == {"regenerated"}


def test_alpha_0_and_steady_rates_never_check_again_and_alpha_1_always_checks():
    for alpha, bypasses in ((0, 9), (1, 0)):
        mode = make_mode("card", SQUARE.graph, "q", Parameters(alpha=alpha, period=1))
        for _ in range(10):
            mode.observe(SQUARE.everything())
            mode.check()
        assert mode.counters.bypasses == bypasses


def test_ranges_are_computed_anew_after_so_many_moves_but_not_in_the_literal_reading():
    for guard, literal, regenerations in ((3, False, 3 * 3), (0, False, 3), (3, True, 3)):
        mode = make_mode("pop", ON_ID, "q", Parameters(period=1, guard=guard, literal=literal))
        for _ in range(10):
            mode.observe(Statistics.counted((9, 9, 9), (5, 5, 5), {(A, named("AB")): 1.0}, outputs=1))
            mode.check()
        assert mode.counters.regenerations == regenerations


def test_statistics_at_registration_give_the_first_orders():
    known = SQUARE.everything()
    for name in ("static", "pop", "card", "adaptive"):
        mode = make_mode(name, SQUARE.graph, "q", Parameters(literal=False), statistics=known)
        assert SQUARE.cost(mode.orders) == pytest.approx(SQUARE.cost(SQUARE.best()))


def test_a_mode_is_due_when_a_period_of_rows_has_come():
    mode = make_mode("card", ON_ID, "q", Parameters(period=100))
    mode.observe(Statistics.counted((30, 30, 30), (1, 1, 1)))
    assert not mode.due
    mode.observe(Statistics.counted((5, 5, 0), (1, 1, 1)))
    assert mode.due
    mode.check()
    assert not mode.due


def test_static_and_random_never_change_and_oracle_and_worst_are_the_extremes():
    work = {}
    for name in ("static", "random", "oracle", "worst"):
        mode = make_mode(name, SQUARE.graph, "q", EVERY_STEP)
        first = mode.orders
        for _ in range(3):
            mode.observe(SQUARE.everything())
            decision = mode.check()
        assert (mode.orders == first) or name in ("oracle", "worst")
        assert decision.orders == mode.orders
        work[name] = SQUARE.cost(mode.orders)
    assert work["oracle"] == pytest.approx(SQUARE.cost(SQUARE.best()))
    assert work["oracle"] < min(work["static"], work["random"])
    assert work["worst"] > max(work["static"], work["random"])


def test_random_orders_differ_by_seed_and_by_query():
    def orders(seed, query):
        return make_mode("random", SQUARE.graph, query, Parameters(seed=seed)).orders

    assert orders(1, "q") == orders(1, "q")
    assert len({json.dumps(sorted(orders(seed, query).items())) for seed in range(9) for query in "qr"}) > 9


def test_pooled_counts_of_another_query_are_used_and_ignored_by_the_literal_reading():
    # The square never runs 1:2 if 1:0 is all it has seen; another query knows that 1 and 2 rarely match.
    other = Statistics.counted((100, 100), (1000, 500), {(0, frozenset((0, 1))): 100.0})
    for literal, known in ((False, {named("BC")}), (True, set())):
        mode = make_mode("card", SQUARE.graph, "q", Parameters(period=1, literal=literal))
        mode.observe(Statistics.counted((100,) * 4, (500,) * 4))
        mode.pool(other.renamed({0: 1, 1: 2}, 4))
        assert mode.interval.evidence.keys() == known


@pytest.mark.parametrize("name", MODES)
def test_a_restart_changes_no_decision(name):
    parameters = Parameters(period=3000, seed=3)
    worlds = [SQUARE, SQUARE.swapped((0, 1), (3, 0))]
    whole, broken = [], []
    for restarts, log in ((False, whole), (True, broken)):
        mode, chance = make_mode(name, SQUARE.graph, "q", parameters), random.Random(1)
        for world in worlds:
            for _ in range(60):
                mode.observe(world.step(mode.orders, chance))
                if mode.due:
                    log.append(recorded(mode.check()))
                if restarts:
                    state = recorded(mode.state)
                    mode = make_mode(name, SQUARE.graph, "q", parameters, state=state)
    assert whole == broken
    assert len(whole) >= 10


def test_a_state_of_another_query_mode_or_join_is_refused():
    state = make_mode("pop", ON_ID, "q").state
    for name, graph, query in (("card", ON_ID, "q"), ("pop", ON_ID, "r"), ("pop", SQUARE.graph, "q")):
        with pytest.raises(ValueError):
            make_mode(name, graph, query, state=state)
    with pytest.raises(ValueError, match="there are static"):
        make_mode("clever", ON_ID, "q")


rows = st.one_of(st.just(0.0), st.integers(0, 1000).map(float), st.just(1e18))


@settings(max_examples=examples(60))
@given(graphs(most=4), st.sampled_from(sorted(MODES)), st.booleans(), st.data())
def test_any_counts_lead_to_legal_orders(graph, name, literal, data):
    limits = tuple(data.draw(st.sampled_from([inf, 10.0])) for _ in range(graph.count))
    parameters = Parameters(period=1, literal=literal, alpha=data.draw(st.sampled_from([0, 0.5, 1])))
    model = data.draw(st.sampled_from([None, IndexCost("tree")]))
    mode = make_mode(name, graph, "q", parameters, model=model, limits=limits)
    for _ in range(data.draw(st.integers(1, 4))):
        numbers = [tuple(data.draw(rows) for _ in range(graph.count)) for _ in range(2)]
        keys = [(s, frozenset((s, *o[:k]))) for s, o in mode.orders.items() for k in range(1, graph.count)]
        flows = data.draw(st.dictionaries(st.sampled_from(keys), rows))
        mode.observe(Statistics.counted(*numbers, flows, data.draw(st.none() | rows)))
        decision = mode.check()
        assert mode.orders.keys() == graph.all
        assert all(graph.legal(start, order) for start, order in mode.orders.items())
        costs = [cost for o in decision.outcomes for cost in (o.old_cost, o.new_cost) if cost is not None]
        assert all(0 <= cost < inf for cost in costs)
        assert recorded(mode.state) == mode.state
    assert mode.counters.useful <= mode.counters.regenerations


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(*[st.integers(1, 999)] * 4), min_size=2, max_size=6),
    st.sampled_from(["pop", "card", "adaptive"]),
)
def test_rates_alone_change_no_order_of_row_windows(rates, name):
    mode = make_mode(name, SQUARE.graph, "q", Parameters(period=1, literal=False), limits=SQUARE.held)
    for k, some in enumerate(rates):
        mode.observe(replace(SQUARE, rates=some).everything())
        decision = mode.check()
        if k:
            assert not decision.changed
    assert SQUARE.cost(mode.orders) == pytest.approx(SQUARE.cost(SQUARE.best()))


def test_literal_flows_raise_false_alarms_when_all_rates_rise_and_sound_ones_do_not():
    faster = replace(SQUARE, rates=(500, 500, 500, 500))
    searched = {}
    for literal in (True, False):
        mode = make_mode("pop", SQUARE.graph, "q", Parameters(period=1, literal=literal))
        for world in (SQUARE, faster):
            mode.observe(world.everything())
            decision = mode.check()
        searched[literal] = sum(o.action == "regenerated" for o in decision.outcomes)
    assert searched[True] > searched[False] == 0


def test_the_modes_of_the_thesis_follow_a_swap_that_static_suffers():
    worlds = [SQUARE, SQUARE.swapped((0, 1), (3, 0))]
    static = live(make_mode("static", SQUARE.graph, "q", statistics=SQUARE.everything()), worlds, 100)
    pop = make_mode("pop", SQUARE.graph, "q", Parameters(period=4000), statistics=SQUARE.everything())
    assert sum(live(pop, worlds, 100)[100:]) < 0.8 * sum(static[100:])
    assert pop.counters.useful > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 1.5},
        {"period": 0},
        {"factor": 1.0},
        {"guard": -1},
        {"overhead": -1.0},
        {"trial": 0.0},
        {"decay": 2.0},
        {"fast": -1.0},
    ],
)
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError):
        Parameters(**wrong)
