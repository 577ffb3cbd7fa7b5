import random
from dataclasses import replace
from math import prod

import pytest

from penstock.planner.orders.cost import EngineCost, Price
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.modes import make_mode
from penstock.planner.orders.search import best_order
from penstock.planner.orders.statistics import Statistics
from tests.recorded import recorded

from .cases import A, B, C, D, named
from .world import World, live

PERIOD = 8  # steps


def pairs(**matching):
    return {named(name): share for name, share in matching.items()}


STAR = World(
    JoinGraph(5, classes=[{A, B}, {A, C}, {A, D}, {A, 4}]),
    rates=(200, 50, 100, 50, 50),
    held=(1000, 300, 1000, 300, 3000),
    matching=pairs(AB=0.003, AC=0.01, AD=0.0003, AE=0.001),
)
CHAIN = World(
    JoinGraph(5, classes=[{A, B}, {B, C}, {C, D}, {D, 4}]),
    rates=(50, 100, 100, 200, 50),
    held=(1000, 300, 3000, 1000, 300),
    matching=pairs(AB=0.01, BC=0.0003, CD=0.003, DE=0.001),
)
CYCLE = World(
    JoinGraph(4, classes=[{A, B}, {B, C}, {C, D}, {D, A}]),
    rates=(100, 100, 50, 200),
    held=(500, 1000, 500, 1000),
    matching=pairs(AB=0.02, BC=0.002, CD=0.01, AD=0.001),
)


class OneClass(World):
    """Streams joined on one column; `matching` holds the distinct values of each, which are parts of each other."""

    def selectivity(self, positions):
        return 1 / prod(sorted(self.matching[p] for p in positions)[1:])


ON_ID = OneClass(
    JoinGraph(4, classes=[range(4)]),
    rates=(100, 50, 50, 50),
    held=(300, 1000, 100, 3000),
    matching={A: 3000, B: 30, C: 100, D: 300},
)
PHASES = {
    "star": [STAR, STAR.swapped((A, C), (A, D)), STAR],
    "chain": [CHAIN, CHAIN.swapped((A, B), (B, C)), CHAIN],
    "cycle": [CYCLE, CYCLE.swapped((A, B), (A, D)), CYCLE],
    "one class": [ON_ID, replace(ON_ID, matching={A: 30, B: 3000, C: 100, D: 300}), ON_ID],
}


def adaptive(world, statistics=None, **parameters):
    period = 0.98 * PERIOD * sum(world.rates)
    return make_mode("adaptive", world.graph, "q", Parameters(period=period, **parameters), statistics=statistics)


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("seed", range(3))
def test_after_a_swap_the_work_comes_close_to_that_of_the_best_orders(name, seed):
    steps = 40 * PERIOD
    worlds = PHASES[name]
    work = live(adaptive(worlds[0], seed=seed), worlds, steps, seed)
    for k, world in enumerate(worlds):
        best = world.cost(world.best())
        assert sum(work[k * steps : (k + 1) * steps]) <= 1.10 * steps * best


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_changes_it_loses_no_more_than_noise_against_the_best_static_orders(name, seed):
    world, steps = PHASES[name][0], 40 * PERIOD
    mode = adaptive(world, world.everything(), seed=seed)
    assert sum(live(mode, [world], steps, seed)) <= 1.03 * steps * world.cost(world.best())


@pytest.mark.parametrize("name", PHASES)
def test_static_orders_lose_more_than_that_after_a_swap(name):
    # Otherwise the two tests before would show nothing.
    first, second = PHASES[name][:2]
    assert second.cost(first.best()) > 1.15 * second.cost(second.best())


def test_alike_streams_cost_nothing_extra():
    alike = World(ON_ID.graph, (100,) * 4, (500,) * 4, {named(n): 0.002 for n in ("AB", "AC", "AD", "BC", "BD", "CD")})
    assert sum(live(adaptive(alike), [alike], 40 * PERIOD)) == pytest.approx(40 * PERIOD * alike.cost(alike.best()))


def bad_start(overhead=0.0, margin=0.05):
    """A cycle that has run its worst orders, with every set measured: there is much to save, and no need to guess."""
    mode = adaptive(CYCLE, overhead=overhead, margin=margin, alpha=1)
    worst = make_mode("worst", CYCLE.graph, "q", statistics=CYCLE.everything())
    mode.orders = worst.orders
    mode.observe(CYCLE.everything())
    return mode


def test_orders_change_if_that_pays():
    mode = bad_start()
    decision = mode.check()
    assert CYCLE.cost(mode.orders) == pytest.approx(CYCLE.cost(CYCLE.best()))
    assert "saves" in decision.reason
    outcome = next(o for o in decision.outcomes if o.changed)
    assert outcome.old_cost > outcome.new_cost > 0


def test_orders_stay_if_planning_and_changing_cost_more_than_is_saved():
    mode = bad_start(overhead=1e12)
    before = mode.orders
    assert not mode.check().changed
    assert mode.orders == before


def test_what_checks_have_cost_has_to_be_saved_also_after_a_restart():
    costs = {"cheap": (1.0,) * 5, "one pause": (1.0, 1.0, 1e12, 1.0, 1.0), "dear": (1e12,) * 5}
    changed = {}
    for name, spent in costs.items():
        mode = bad_start()
        for cost in (1e12, *spent):  # of six, the first is forgotten
            mode.spend(cost)
        state = recorded(mode.state)
        again = make_mode("adaptive", CYCLE.graph, "q", mode.parameters, state=state)
        decision = mode.check()
        assert again.check() == decision
        assert decision.overhead == (1e12 if name == "dear" else 1.0)
        changed[name] = decision.changed
    assert changed == {"cheap": True, "one pause": True, "dear": False}


def test_a_start_has_to_save_its_share_of_a_check_for_as_long_as_orders_are_kept():
    most = max(o.old_cost - o.new_cost for o in bad_start().check().outcomes)
    for guard, kept in ((8, 8), (2, 2), (0, 1)):
        for share, changes in ((0.5, True), (1.1, False)):
            mode = bad_start()
            mode.parameters = replace(mode.parameters, guard=guard, margin=0.0)
            part = mode.interval.rows / mode.parameters.period
            mode.spend(share * most * mode.graph.count * kept / part)
            assert mode.check().changed == changes


def test_orders_stay_if_the_saving_is_within_the_margin():
    assert not bad_start(margin=1.0).check().changed


def on_trial():
    """Orders that pass through few of the sets: any others are a guess, and one promises to save much."""
    mode = adaptive(CYCLE, trial=0.125)
    mode.orders = {A: (D, B, C), B: (A, D, C), C: (B, D, A), D: (A, B, C)}
    mode.observe(counted(CYCLE, mode.orders))
    mode.check()
    return mode


def counted(world, orders):
    exact = world.everything()
    ran = {(s, frozenset((s, *o[:k]))) for s, o in orders.items() for k in range(1, len(o) + 1)}
    return Statistics.counted(exact.arrivals, exact.held, {flow: exact.flows[flow] for flow in ran})


def test_a_guess_is_tried_one_at_a_time_and_judged_early():
    mode = on_trial()
    assert len(mode.trials) == 1
    (start,) = mode.trials
    assert mode.orders[start] != mode.trials[start]
    assert not mode.due
    mode.observe(counted(CYCLE, mode.orders))  # one step of eight
    assert mode.due


def test_after_a_change_all_promising_guesses_are_tried_at_once():
    worlds = (ON_ID, replace(ON_ID, matching={A: 30, B: 3000, C: 100, D: 300}))
    mode = adaptive(ON_ID, counted(ON_ID, ON_ID.best()))
    mode.orders = ON_ID.best()
    begun = []
    for world in worlds:
        mode.observe(counted(world, mode.orders))
        mode.check()
        begun.append(len(mode.trials))
    assert begun[0] <= 1 < begun[1]


def test_a_bad_trial_is_taken_back_and_counted():
    mode = on_trial()
    ((start, before),) = mode.trials.items()
    tried = mode.orders[start]
    worse = dict.fromkeys((frozenset((start, *tried[:k])) for k in range(1, 3)), 0.5)  # of all combinations
    seen = counted(CYCLE, mode.orders)
    flows = {f: seen.chances[f] * worse[f[1]] if f[1] in worse and f[0] == start else n for f, n in seen.flows.items()}
    mode.observe(Statistics.counted(seen.arrivals, seen.held, flows))
    decision = mode.check()
    assert mode.orders[start] == before
    assert "its trial cost" in decision.outcomes[start].reason
    assert mode.lost > 0
    assert not mode.trials  # what was lost is more than the share of the work that trials may lose


def test_a_trial_that_met_no_rows_is_taken_back_without_a_loss():
    mode = on_trial()
    ((start, before),) = mode.trials.items()
    seen = counted(CYCLE, {s: o for s, o in mode.orders.items() if s != start})
    known = {flow: rows for flow, rows in seen.flows.items() if len(flow[1]) == 2}
    arrivals = tuple(0.0 if p == start else rows for p, rows in enumerate(seen.arrivals))
    mode.observe(Statistics.counted(arrivals, seen.held, known))
    mode.check()
    assert mode.orders[start] == before
    assert mode.lost == 0


def test_a_surge_of_all_streams_is_seen_in_the_rows_that_time_windows_hold():
    mode = adaptive(CYCLE, CYCLE.everything(), alpha=0)
    surge = replace(CYCLE, rates=tuple(5 * r for r in CYCLE.rates), held=tuple(5 * h for h in CYCLE.held))
    distances = []
    for world in (CYCLE, CYCLE, surge):
        mode.observe(world.everything())
        distances.append(mode.check().distance)
    assert distances == [1, pytest.approx(0, abs=1e-9), pytest.approx(1, abs=0.3)]


def test_a_change_of_values_is_seen_in_the_work_of_a_row():
    mode = adaptive(CYCLE, CYCLE.everything(), alpha=0)
    for world in (CYCLE, CYCLE, CYCLE.swapped((A, B), (A, D))):
        mode.observe(world.everything())
        decision = mode.check()
    assert decision.distance > 0.3


def test_no_row_no_change():
    mode = adaptive(CYCLE, CYCLE.everything())
    before = mode.orders
    assert "no row arrived" in mode.check().reason
    assert mode.orders == before


def test_what_another_query_has_seen_spares_the_trial():
    star = World(
        JoinGraph(4, classes=[{A, B}, {A, C}, {A, D}]), (100,) * 4, (1000,) * 4, pairs(AB=0.001, AC=0.01, AD=0.02)
    )
    mode = adaptive(star)
    mode.orders = {A: (D, C, B), B: (A, D, C), C: (A, D, B), D: (A, C, B)}
    other = star.everything().without([named("ABCD")])
    mode.observe(counted(star, mode.orders))
    mode.pool(other.renamed({p: p for p in range(4)}, 4))
    mode.check()
    assert not mode.trials
    assert star.cost(mode.orders) == pytest.approx(star.cost(star.best()))


def test_the_price_of_exchanges_has_a_say():
    def price(start, prefix, following):
        return Price(interval=0.0, each=1000.0) if following == B and not prefix else Price(0.0, 0.0)

    star = World(JoinGraph(3, classes=[{A, B}, {A, C}]), (100,) * 3, (1000,) * 3, pairs(AB=0.001, AC=0.002))
    for model, first in ((EngineCost(star.graph), B), (EngineCost(star.graph, price), C)):
        mode = make_mode("adaptive", star.graph, "q", Parameters(period=1), model=model)
        mode.observe(star.everything())
        mode.check()
        assert mode.orders[A][0] == first


def many(count=14):
    """A star of so many streams that its orders are found by greedy rules; 1 is the most selective for rows of 0."""
    graph = JoinGraph(count, classes=[{0, p} for p in range(1, count)])
    matching = {frozenset((0, p)): 0.0005 * p for p in range(1, count)}
    return World(graph, (20,) * count, (1000,) * count, matching)


def checked(world, rates, **options):
    mode = make_mode("oracle", world.graph, "q", options.pop("parameters", Parameters(period=1)), **options)
    for some in rates:
        now = replace(world, rates=some)
        mode.observe(counted_pairs(now))
        mode.check()
    return mode


def counted_pairs(world):
    """All pairs, as more sets than these are too many to count."""
    flows = {
        (s, pair): world.rates[s] * world.sizes(s).of(pair) for pair in map(frozenset, world.matching) for s in pair
    }
    return Statistics.counted(world.rates, world.held, flows)


def test_of_very_many_positions_those_come_first_whose_arrivals_fluctuate_and_those_last_that_are_costly_to_reach():
    world = many()
    steady = (20,) * 14
    assert checked(world, [steady] * 6).orders[0][0] == 1
    low, high = ((*steady[:9], rows, *steady[10:]) for rows in (2, 400))
    mode = checked(world, [low, high] * 3)
    assert mode.orders[0][0] == 9
    again = make_mode("oracle", world.graph, "q", Parameters(period=1), state=recorded(mode.state))
    assert again.arrivals == mode.arrivals
    model = EngineCost(world.graph, costly=frozenset([frozenset((0, 1))]))
    assert checked(world, [steady] * 2, model=model).orders[0][-1] == 1


def test_the_parameter_says_which_positions_are_fast(monkeypatch):
    world, asked = many(), []
    monkeypatch.setattr(
        "penstock.planner.orders.mode.best_order", lambda *given: asked.append(given[-1]) or best_order(*given)
    )
    checked(world, [(20,) * 14], parameters=Parameters(period=1, fast=2.5))
    assert {hints.fast for hints in asked} == {2.5}


def test_very_many_positions_are_decided_on_in_reasonable_time():
    world = many()
    graph = world.graph
    mode, chance = adaptive(world), random.Random(0)
    for _ in range(2):
        mode.observe(world.step(mode.orders, chance))
        mode.check()
    assert all(graph.legal(start, order) for start, order in mode.orders.items())
    assert mode.orders[0][0] == 1
