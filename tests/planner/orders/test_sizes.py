from itertools import combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.orders import literal_selectivity
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.sizes import (
    Estimates,
    independent_estimates,
    literal_estimates,
    literal_sizes,
    measured_sizes,
    sound_estimates,
    sound_sizes,
)
from penstock.planner.orders.statistics import MOST, Statistics
from tests.effort import examples

from .cases import A, B, C, D, graphs, named

# Example 4.2.2 of the thesis: 10, 20 and 30 rows, 8 results, orders A:BC, B:AC, C:AB; only BC was not seen.
SEEN = {(A, named("AB")): 5.0, (B, named("AB")): 5.0, (C, named("AC")): 5.0}
EXAMPLE = Statistics.counted((1, 1, 1), (10, 20, 30), SEEN, outputs=8)


def test_an_absent_pair_without_predicate_is_a_product():
    star = JoinGraph(3, classes=[{A, B}, {A, C}])
    assert literal_estimates(star, EXAMPLE, A)(named("BC")) == 600


def test_an_absent_joined_pair_is_the_least_set_around_it():
    assert literal_estimates(JoinGraph(3, classes=[{A, B, C}]), EXAMPLE, A)(named("BC")) == 8


def test_parts_that_are_not_joined_multiply():
    graph = JoinGraph(5, edges=[(A, B), (C, D), (D, 4)])
    collected = {named("AB"): 7.0, named("CDE"): 3.0}
    estimates = Estimates(graph, collected, (10, 20, 30, 40, 50), (1,) * 5)
    assert estimates(named("ABCD")) == 7 * 3
    assert estimates(named("ACE")) == 10 * 30 * 50


def test_estimates_feed_those_of_smaller_sets():
    chain = JoinGraph(4, edges=[(A, B), (B, C), (C, D)])
    estimates = Estimates(chain, {named("ABCD"): 5.0, named("ABC"): 9.0}, (10, 20, 30, 40), (1,) * 4)
    assert estimates(named("BCD")) == 5
    assert estimates(named("BC")) == 5  # the least of ABC (9) and BCD (5)
    assert estimates(named("AB")) == 9


@st.composite
def collections(draw):
    graph = draw(graphs())
    sets = [frozenset(some) for k in range(2, graph.count + 1) for some in combinations(range(graph.count), k)]
    collected = draw(st.dictionaries(st.sampled_from(sets), st.integers(0, 99).map(float), max_size=6))
    alone = [float(draw(st.integers(0, 9))) for _ in range(graph.count)]
    return Estimates(graph, collected, alone, [1.0] * graph.count), sets


@given(collections())
def test_every_set_has_a_number_and_collected_ones_are_kept(found):
    estimates, sets = found
    for members in sets:
        assert 0 <= estimates(members) < inf
        if members in estimates.collected:
            assert estimates(members) == estimates.collected[members]
        elif all(len(part) == 1 for part in estimates.graph.components(members)):
            product = 1.0
            for p in members:
                product *= estimates.alone[p]
            assert estimates(members) == product


def test_very_many_positions_are_estimated_without_looking_at_all_sets():
    graph = JoinGraph(40, classes=[range(40)])
    estimates = Estimates(graph, {frozenset(range(40)): 3.0, frozenset(range(9)): 5.0}, (2.0,) * 40, (1.0,) * 40)
    assert estimates(frozenset((0, 1))) == 3
    assert estimates(frozenset((0, 39))) == 3


def test_sound_sizes_are_for_one_row_of_the_start_and_of_pooled_selectivity():
    graph = JoinGraph(3, classes=[{A, B, C}])
    flows = {(A, named("AB")): 20.0, (B, named("AB")): 10.0}
    known = Statistics.counted((10, 40, 0), (100, 50, 20), flows)
    sizes = sound_sizes(known, sound_estimates(graph, known), A)
    assert sizes.of(named("A")) == 1
    assert sizes.of(named("B")) == 50
    assert sizes.of(named("AB")) == pytest.approx(50 * 30 / 4500)
    assert sizes.interval == 0.1


def test_literal_sizes_take_the_flow_of_the_own_start_first():
    graph = JoinGraph(3, classes=[{A, B, C}])
    flows = {(B, named("AB")): 7.0, (A, named("AB")): 20.0, (C, named("BC")): 9.0}
    known = Statistics.counted((10, 40, 5), (100, 50, 20), flows, outputs=3)
    assert literal_sizes(graph, known, A).of(named("AB")) == 20
    assert literal_sizes(graph, known, B).of(named("AB")) == 7
    assert literal_sizes(graph, known, B).of(named("BC")) == 9
    assert literal_sizes(graph, known, B).of(named("B")) == 40
    assert literal_sizes(graph, known, B).of(named("A")) == 100


def test_literal_selectivity_is_that_of_cardinalities_or_of_the_least_pair():
    # A.attr1 = B.attr1 = C.attr1, D.attr2 = A.attr2 (Example 4.3.1)
    graph = JoinGraph(4, classes=[{A, B, C}, {A, D}])
    flows = {(A, named("AB")): 4.0, (A, named("ABC")): 6.0, (A, named("AD")): 5.0}
    known = Statistics.counted((1, 1, 1, 1), (10, 20, 30, 40), flows, outputs=2)
    assert literal_selectivity(graph, known, A, (B,), C) == 6 / (4 * 30)
    assert literal_selectivity(graph, known, A, (C,), D) == 5 / (10 * 40)  # of A and D: C and D have no predicate
    assert literal_selectivity(graph, known, C, (), D) == 1


def test_what_no_one_has_measured_looks_enormous_to_the_careful():
    graph = JoinGraph(4, edges=[(A, B), (A, C)])
    known = Statistics.counted((1, 1, 1, 1), (10, 10, 10, 10), {(A, named("AB")): 4.0})
    sizes = measured_sizes(known, sound_estimates(graph, known), A)
    assert sizes.of(named("AB")) == pytest.approx(4)
    assert sizes.of(named("ABD")) == pytest.approx(40)  # a product of what is known
    assert sizes.of(named("AC")) >= MOST


def test_independent_predicates_multiply_and_members_of_a_class_do_not():
    values = (1000, 100, 10)  # of columns in one class: a pair matches with 1 / the larger number
    pairs = {frozenset(pair): 1 / max(values[p] for p in pair) for pair in combinations(range(3), 2)}
    flows = {(min(pair), pair): 100 * 100 * share for pair, share in pairs.items()}
    known = Statistics.counted((100, 100, 100), (100, 100, 100), flows)
    of_class = independent_estimates(JoinGraph(3, classes=[{A, B, C}]), known)
    assert of_class(named("ABC")) == pytest.approx(1 / 1000 / 100)
    of_edges = independent_estimates(JoinGraph(3, edges=[(A, B), (A, C), (B, C)]), known)
    assert of_edges(named("ABC")) == pytest.approx(1 / 1000 / 1000 / 100)


def test_an_unseen_pair_is_guessed_from_a_step_it_had_a_part_in():
    graph = JoinGraph(3, classes=[{A, B, C}])
    flows = {(A, named("AB")): 1000.0, (A, named("ABC")): 2000.0}
    known = Statistics.counted((100, 0, 0), (100, 100, 100), flows)
    estimates = independent_estimates(graph, known)
    assert estimates(named("AC")) == pytest.approx(2000 / (1000 * 100))
    assert not estimates.founded(named("AC"))
    assert estimates.founded(named("AB"))


@settings(max_examples=examples(50))
@given(graphs(most=5), st.data())
def test_sizes_are_never_negative_infinite_or_undefined(graph, data):
    rows = st.one_of(st.just(0.0), st.integers(0, 9).map(float), st.just(1e18))
    numbers = [tuple(data.draw(rows) for _ in range(graph.count)) for _ in range(2)]
    sets = [frozenset(some) for k in range(2, graph.count + 1) for some in combinations(range(graph.count), k)]
    keys = [(start, members) for members in sets for start in members]
    flows = data.draw(st.dictionaries(st.sampled_from(keys), rows, max_size=5))
    known = Statistics.counted(*numbers, flows, data.draw(st.none() | rows))
    for start in range(graph.count):
        for sizes in (
            sound_sizes(known, sound_estimates(graph, known), start),
            sound_sizes(known, independent_estimates(graph, known), start),
            measured_sizes(known, sound_estimates(graph, known), start),
            literal_sizes(graph, known, start),
        ):
            assert all(0 <= sizes.of(members) < inf for members in sets if start in members)
