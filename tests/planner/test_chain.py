from dataclasses import replace
from itertools import chain, combinations, pairwise
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.costs import merge_gain
from penstock.model.time import FOREVER, SECOND
from penstock.planner.chain import (
    Load,
    UnitCosts,
    budget_chain,
    chain_cost,
    chain_memory,
    cpu_opt,
    edge_costs,
    link_of,
    mem_opt,
)

# Whole numbers and quarters, so that sums are exact and costs can be compared for equality.
small = st.integers(0, 9)
quarters = st.integers(0, 8).map(lambda n: n / 4)
unit_costs = st.builds(UnitCosts, st.integers(0, 3000), small, small, small)
dear_links = st.builds(UnitCosts, st.integers(0, 10**6), small, small, small)


@st.composite
def loads(draw, most=10, rates=small):
    lives = draw(st.lists(st.integers(1, 300), min_size=1, max_size=most, unique=True))
    found = draw(st.lists(rates, min_size=len(lives), max_size=len(lives)))
    return Load(tuple(sorted(lives)), tuple(found), draw(st.integers(0, 20)), draw(quarters))


@st.composite
def loads_and_chains(draw, most=10):
    load = draw(loads(most))
    return load, tuple(life for life in load.lives if life == load.lives[-1] or draw(st.booleans()))


def all_chains(lives):
    inner = (combinations(lives[:-1], count) for count in range(len(lives)))
    return [(*cuts, lives[-1]) for cuts in chain.from_iterable(inner)]


def unselected(load):
    """The same rows, all of which the query with the longest window wants."""
    return replace(load, rates=(*[0] * (len(load.rates) - 1), sum(load.rates)))


def cheapest_by_all_edges(load, costs):
    best = [0]
    for j in range(1, len(load.lives) + 1):
        best.append(min(best[i] + edge_costs(load, costs)(i, j) for i in range(j)))
    return best[-1]


@given(loads_and_chains(), unit_costs)
def test_a_chain_costs_what_its_rows_cost_one_by_one(given_chain, costs):
    load, cuts = given_chain
    total = costs.link * load.probes * len(cuts)
    for life, rate in zip(load.lives, load.rates, strict=True):
        stay = next(cut for cut in cuts if cut >= life)
        total += rate * stay * (load.probes * costs.pair + costs.row)
        for start, end in pairwise((0, *cuts)):
            inner = sum(start < other < end for other in load.lives)
            if end <= stay:
                total += rate * (end - start) * load.probes * load.selectivity * costs.route * inner
    assert chain_cost(load, costs, cuts) == total


@given(loads_and_chains())
def test_a_row_stays_until_the_first_cut_at_or_after_its_own_life(given_chain):
    load, cuts = given_chain
    stays = [next(cut for cut in cuts if cut >= life) for life in load.lives]
    assert [link_of(cuts, life) for life in load.lives] == stays
    assert chain_memory(load, cuts) == sum(rate * stay for rate, stay in zip(load.rates, stays, strict=True))


@given(loads_and_chains())
def test_no_chain_holds_fewer_rows_than_mem_opt(given_chain):
    load, cuts = given_chain
    least = chain_memory(load, mem_opt(load.lives))
    assert least == sum(rate * life for rate, life in zip(load.rates, load.lives, strict=True))
    merged = any(rate and life not in cuts for rate, life in zip(load.rates, load.lives, strict=True))
    assert (chain_memory(load, cuts) > least) == merged


@given(st.lists(st.integers(1, 50)))
def test_mem_opt_cuts_at_every_distinct_life(lives):
    assert list(mem_opt(lives)) == sorted(set(lives))


@given(loads(), unit_costs)
def test_no_chain_is_cheaper_than_cpu_opt(load, costs):
    found = cpu_opt(load, costs)
    assert found in all_chains(load.lives)
    assert chain_cost(load, costs, found) == min(chain_cost(load, costs, other) for other in all_chains(load.lives))


@given(loads(most=60), unit_costs)
def test_cpu_opt_is_the_shortest_path_and_beats_both_ends(load, costs):
    cost = chain_cost(load, costs, cpu_opt(load, costs))
    assert cost == cheapest_by_all_edges(load, costs)
    assert cost <= chain_cost(load, costs, mem_opt(load.lives))
    assert cost <= chain_cost(load, costs, load.lives[-1:])


@given(loads())
def test_of_equally_cheap_links_the_shorter_is_taken(load):
    assert cpu_opt(load, UnitCosts(link=0, pair=0)) == load.lives


@given(loads(), unit_costs)
def test_without_selections_every_chain_holds_the_same_rows(load, costs):
    load = unselected(load)
    rows = sum(load.rates) * load.lives[-1]
    assert chain_memory(load, cpu_opt(load, costs)) == chain_memory(load, mem_opt(load.lives)) == rows


@given(loads(), unit_costs)
def test_without_routing_and_selections_all_links_are_merged_if_links_cost(load, costs):
    costs = replace(costs, link=costs.link + 1, route=0)
    load = replace(unselected(load), probes=load.probes + 1)
    assert cpu_opt(load, costs) == load.lives[-1:]


@given(loads(), unit_costs)
def test_links_are_merged_only_where_no_row_ends_if_links_cost_nothing(load, costs):
    load = replace(load, probes=load.probes + 1, rates=tuple(rate + 1 for rate in load.rates))
    assert cpu_opt(load, replace(costs, link=0, pair=costs.pair + 1)) == load.lives


@given(loads(), unit_costs, st.data())
def test_a_merged_link_pays_for_rows_past_their_life_and_for_routing(load, costs, data):
    j = data.draw(st.integers(1, len(load.lives)))
    i = data.draw(st.integers(0, j - 1))
    start = load.lives[i - 1] if i else 0
    overstay = sum(load.rates[k] * (load.lives[j - 1] - load.lives[k]) for k in range(i, j))
    pairs = sum(load.rates[i:]) * (load.lives[j - 1] - start) * load.probes
    cuts = (*load.lives[:i], *load.lives[j - 1 :])
    assert chain_memory(load, cuts) == chain_memory(load, load.lives) + overstay
    separate = sum(edge_costs(load, costs)(k, k + 1) for k in range(i, j))
    paid = overstay * (load.probes * costs.pair + costs.row) + pairs * load.selectivity * costs.route * (j - i - 1)
    assert edge_costs(load, costs)(i, j) == separate + paid - costs.link * load.probes * (j - i - 1)


def test_the_price_of_one_merge():
    load = Load(lives=(10, 50), rates=(3, 1), probes=2, selectivity=0.5)
    costs = UnitCosts(link=7, pair=1, row=2, route=4)
    # 4 rows live to 10, then 1 to 50: 40 + 40 rows are held, each met by 2 probes.
    assert chain_memory(load, (10, 50)) == 80
    assert chain_cost(load, costs, (10, 50)) == 2 * 14 + 160 + 160
    # All 4 live to 50, and half of 400 pairs match and are compared with the cut at 10.
    assert chain_memory(load, (50,)) == 200
    assert chain_cost(load, costs, (50,)) == 14 + 400 + 400 + 200 * 4
    assert chain_cost(load, UnitCosts(link=7, pair=1), (50,)) == 14 + 400


@given(loads(), unit_costs, st.data())
def test_an_edge_depends_on_its_own_ends_and_on_the_rows_that_reach_it_only(load, costs, data):
    count = len(load.lives)
    i, j = sorted(data.draw(st.lists(st.integers(0, count), min_size=2, max_size=2, unique=True)))
    cost = edge_costs(load, costs)(i, j)
    # Earlier lives move and their rows are others; rows that reach the link end elsewhere, inside of it or behind.
    lives = (*range(-i, -1), *load.lives[i - 1 : j], *(life + 7 for life in load.lives[j:])) if i else load.lives
    reaching = sum(load.rates[i:])
    rates = (*[rate + 1 for rate in load.rates[:i]], *[0] * (count - i - 1), reaching)
    assert edge_costs(replace(load, lives=lives, rates=rates), costs)(i, j) == cost


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True), st.data(), small, small, quarters, small)
def test_merging_gains_what_the_closed_formula_says(windows, data, rate_a, rate_b, matching, overhead):
    """Both states of a join without selections; a link costs a purge and an operator, the router is an operator too."""
    windows = sorted(windows)
    last = data.draw(st.integers(1, len(windows)))
    first = data.draw(st.integers(1, last))
    costs = UnitCosts(link=1 + overhead, pair=1, route=1)
    gain = -overhead * (rate_a + rate_b) if last > first else 0
    for stored, probing in ((rate_a, rate_b), (rate_b, rate_a)):
        load = unselected(Load(tuple(windows), (stored, *[0] * (len(windows) - 1)), probing, matching))
        gain += sum(edge_costs(load, costs)(k, k + 1) for k in range(first - 1, last))
        gain -= edge_costs(load, costs)(first - 1, last)
    assert gain == merge_gain(rate_a, rate_b, windows, first, last, matching, overhead)


def skewed(shape, count):
    """Windows of `count` queries in seconds: most of them small, or half small and half large."""
    if shape == "mostly small":
        small_ones, large_ones, top, start = count * 10 // 12, count * 2 // 12, 10, 10
    else:
        small_ones, large_ones, top, start = count // 2, count // 2, 6, 24
    low = [top * (k + 1) / small_ones for k in range(small_ones)]
    high = [start + (30 - start) * (k + 1) / large_ones for k in range(large_ones)]
    return tuple(round(SECOND * window) for window in (*low, *high))


@pytest.mark.parametrize("shape", ["mostly small", "small and large"])
@pytest.mark.parametrize("rate", [20, 40, 80])
def test_on_skewed_windows_cpu_opt_gains_more_the_more_queries_there_are(shape, rate):
    costs = UnitCosts(link=1 + rate / 2, pair=1, route=1)
    shares, ratios = [], []
    for count in (12, 24, 36):
        windows = skewed(shape, count)
        assert len(set(windows)) == count
        load = Load(windows, (*[0.0] * (count - 1), rate / SECOND), rate / SECOND, 0.025)
        many, few = chain_cost(load, costs, mem_opt(windows)), chain_cost(load, costs, cpu_opt(load, costs))
        shares.append(many - few)
        ratios.append(1 - few / many)
    assert 0 < shares[0] < shares[1] < shares[2]
    assert 0 < ratios[0] < ratios[1] < ratios[2]


surpluses = st.one_of(st.sampled_from([0, 0.05, 0.25, 1, inf]), st.floats(0, 3))


@given(loads_and_chains(), dear_links)
@example(
    (Load((215, 224, 291), (5, 3, 2), 11, 2.0), (215, 291)), UnitCosts(227187, 8, 6, 1)
)  # at no price the cheapest
def test_under_a_budget_no_chain_that_fits_is_cheaper(given_chain, costs):
    load, fits = given_chain
    least = chain_memory(load, load.lives)
    surplus = chain_memory(load, fits) / least - 1 if least else 0
    fitting = [other for other in all_chains(load.lives) if chain_memory(load, other) <= (1 + surplus) * least]
    found = budget_chain(load, costs, surplus)
    assert found in fitting
    assert chain_cost(load, costs, found) == min(chain_cost(load, costs, other) for other in fitting)


@given(loads(most=40, rates=st.floats(0, 9)), dear_links, surpluses.filter(lambda surplus: surplus < inf))
@example(Load((1, 2), (5e-324, 0), 1, 0), UnitCosts(1, 0), 0)
def test_the_budget_is_never_exceeded(load, costs, surplus):
    found = budget_chain(load, costs, surplus)
    assert chain_memory(load, found) <= (1 + surplus) * chain_memory(load, mem_opt(load.lives))


@given(loads(most=40), dear_links)
def test_a_budget_without_surplus_is_that_of_mem_opt_and_one_without_end_that_of_cpu_opt(load, costs):
    tight = budget_chain(load, costs, 0)
    assert chain_memory(load, tight) == chain_memory(load, mem_opt(load.lives))
    assert chain_cost(load, costs, tight) <= chain_cost(load, costs, mem_opt(load.lives))
    assert budget_chain(load, costs, inf) == cpu_opt(load, costs)


@given(loads(), dear_links, surpluses, surpluses)
def test_more_memory_never_costs_more(load, costs, one, other):
    less, more = sorted((one, other))
    cost = chain_cost(load, costs, budget_chain(load, costs, less))
    assert chain_cost(load, costs, budget_chain(load, costs, more)) <= cost


def test_a_thousand_lives_use_their_budget():
    lives = tuple(SECOND * (k + 1) + 1000 * (k * k % 997) for k in range(1000))
    load = Load(lives, tuple((k * 7919 % 101 + 1) / SECOND for k in range(1000)), 100 / SECOND, 1e-4)
    costs = UnitCosts(link=1e-2, pair=1e-9, route=1e-9)
    least, cheapest = chain_memory(load, lives), chain_cost(load, costs, cpu_opt(load, costs))
    assert chain_memory(load, cpu_opt(load, costs)) > 1.3 * least
    by_surplus = [budget_chain(load, costs, surplus) for surplus in (0, 0.01, 0.05, 0.2)]
    memory = [chain_memory(load, found) / least for found in by_surplus]
    assert memory[0] == 1
    assert 1.009 < memory[1] <= 1.01
    assert 1.045 < memory[2] <= 1.05
    assert 1.17 < memory[3] <= 1.2
    ratios = [chain_cost(load, costs, found) / cheapest for found in by_surplus]
    assert all(fewer > 1.05 * more for fewer, more in pairwise(ratios))


@given(loads_and_chains(), dear_links, small)
@example((Load((215, 224, 291), (5, 3, 2), 11, 2.0), (215, 291)), UnitCosts(227187, 8, 6, 1), 1)
def test_rows_that_live_for_ever_have_a_link_of_their_own_and_change_no_other(given_chain, costs, rate):
    load, fits = given_chain
    endless = replace(load, lives=(*load.lives, FOREVER), rates=(*load.rates, rate))
    apart = load.probes * costs.link
    assert chain_memory(endless, (*fits, FOREVER)) == chain_memory(load, fits)
    assert chain_cost(endless, costs, (*fits, FOREVER)) == chain_cost(load, costs, fits) + apart
    assert edge_costs(endless, costs)(len(load.lives) - 1, len(endless.lives)) == inf
    assert cpu_opt(endless, costs) == (*cpu_opt(load, costs), FOREVER)
    least = chain_memory(load, load.lives)
    surplus = chain_memory(load, fits) / least - 1 if least else 0
    *found, last = budget_chain(endless, costs, surplus)
    assert last == FOREVER
    assert chain_cost(load, costs, found) == chain_cost(load, costs, budget_chain(load, costs, surplus))


def test_rows_merged_with_those_that_live_for_ever_are_never_purged():
    load = Load((10, FOREVER), (1, 1), 1, 1)
    assert chain_memory(load, (FOREVER,)) == inf
    assert chain_memory(replace(load, rates=(0, 1)), (FOREVER,)) == 0


def test_only_rows_that_live_for_ever_make_one_link_and_no_rows_make_none():
    costs = UnitCosts(1, 1)
    assert cpu_opt(Load((FOREVER,), (1,), 1, 1), costs) == (FOREVER,)
    assert budget_chain(Load((FOREVER,), (1,), 1, 1), costs, 0) == (FOREVER,)
    assert chain_cost(Load((FOREVER,), (1,), 3, 1), costs, (FOREVER,)) == 3
    nothing = Load((), (), 1, 1)
    assert cpu_opt(nothing, costs) == budget_chain(nothing, costs, 0) == mem_opt(()) == ()
    assert chain_memory(nothing, ()) == chain_cost(nothing, costs, ()) == 0


def test_a_life_that_ends_before_it_begins_holds_no_row():
    load = Load((-5, 0, 10), (1, 1, 1), 1, 1)
    assert chain_memory(load, load.lives) == 10
    assert chain_memory(load, (10,)) == 30
    assert chain_cost(load, UnitCosts(link=0, pair=1), load.lives) == 10
    assert budget_chain(load, UnitCosts(1, 1), 0) == (0, 10)


def test_the_link_of_a_life_is_the_first_cut_at_or_after_it():
    assert [link_of((10, 20, FOREVER), life) for life in (1, 10, 11, 20, 21, FOREVER)] == [
        *(10, 10, 20, 20),
        *(FOREVER, FOREVER),
    ]
    with pytest.raises(ValueError, match=r"no link of the chain \(10, 20\) reaches a life of 21"):
        link_of((10, 20), 21)


@pytest.mark.parametrize(
    ("lives", "rates", "probes", "selectivity", "reason"),
    [
        ((1, 2), (1,), 1, 1, "one rate for each"),
        ((2, 1), (1, 1), 1, 1, "must ascend"),
        ((1, 1), (1, 1), 1, 1, "must ascend"),
        ((1, 2), (1, -1), 1, 1, "not negative"),
        ((1, 2), (nan, 1), 1, 1, "not negative"),
        ((1, 2), (1, 1), -1, 1, "not negative"),
        ((1, 2), (1, 1), 1, inf, "finite"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(lives, rates, probes, selectivity, reason):
    with pytest.raises(ValueError, match=reason):
        Load(lives, rates, probes, selectivity)


@pytest.mark.parametrize("wrong", [-1, nan, inf])
@pytest.mark.parametrize("name", ["link", "pair", "row", "route"])
def test_costs_that_make_no_sense_are_refused(name, wrong):
    with pytest.raises(ValueError, match="finite and not negative"):
        replace(UnitCosts(1, 1), **{name: wrong})


@pytest.mark.parametrize("wrong", [-0.1, nan])
def test_a_budget_below_mem_opt_is_refused(wrong):
    with pytest.raises(ValueError, match="must not be negative"):
        budget_chain(Load((1,), (1,), 1, 1), UnitCosts(1, 1), wrong)
