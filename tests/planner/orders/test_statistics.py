import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.orders import step_selectivity
from penstock.planner.orders.statistics import MOST, Statistics, product
from tests.recorded import recorded

from .cases import A, B, C, named

ABC = {(A, named("AB")): 20.0, (A, named("ABC")): 4.0, (B, named("AB")): 10.0, (B, named("ABC")): 2.0}
COUNTED = Statistics.counted((10, 40, 0), (100, 50, 20), ABC)

counts = st.integers(0, 50).map(float)


@st.composite
def statistics(draw):
    numbers = st.tuples(counts, counts, counts)
    flows = draw(st.dictionaries(st.sampled_from(sorted(ABC, key=str)), counts))
    return Statistics.counted(draw(numbers), draw(numbers), flows, draw(st.none() | counts))


def test_selectivity_of_a_pair_pools_both_starts():
    assert COUNTED.selectivities[named("AB")] == (20 + 10) / (10 * 50 + 40 * 100)


def test_selectivity_of_a_larger_set_pools_the_starts_that_looked():
    assert COUNTED.selectivities[named("ABC")] == (4 + 2) / (10 * 50 * 20 + 40 * 100 * 20)


def test_selectivity_of_a_step_is_of_its_own_start():
    assert step_selectivity(COUNTED, A, named("A"), B) == 20 / (10 * 50)
    assert step_selectivity(COUNTED, A, named("AB"), C) == pytest.approx(4 / (20 * 20))
    assert step_selectivity(COUNTED, C, named("C"), A) is None


def test_a_set_that_met_no_combination_is_unknown():
    nothing_held = Statistics.counted((10, 40, 0), (100, 0, 20), {(A, named("AB")): 0.0})
    assert nothing_held.selectivities == {}
    assert step_selectivity(nothing_held, A, named("A"), B) is None


def test_a_start_that_could_meet_no_row_says_nothing():
    seen = ((0, 0, 20), (100, 0, 20), (100, 50, 0))
    counted = Statistics.counted((10, 40, 0), (100, 50, 20), {**ABC, (A, named("AB")): 0.0}, seen=seen)
    assert counted.selectivities == {named("AB"): 10 / (40 * 100), named("ABC"): 2 / (40 * 100 * 20)}
    assert counted.held == (100, 50, 20)


def test_results_stand_in_for_a_set_of_all_that_no_start_counted():
    counted = Statistics.counted((10, 40, 5), (100, 50, 20), {}, outputs=9)
    assert counted.selectivities == {named("ABC"): 9 / (10 * 50 * 20 + 40 * 100 * 20 + 5 * 100 * 50)}


def test_selectivity_does_not_depend_on_the_rates():
    faster = Statistics.counted((50, 200, 0), (100, 50, 20), {flow: 5 * rows for flow, rows in ABC.items()})
    assert faster.selectivities == pytest.approx(COUNTED.selectivities)


def test_intervals_of_different_windows_add_up_to_the_selectivity_of_all_pairs_met():
    later = Statistics.counted((10, 0, 0), (100, 150, 20), {(A, named("AB")): 60.0})
    both = COUNTED + later
    assert both.arrivals == (20, 40, 0)
    assert both.held == (100, 150, 20)
    assert both.selectivities[named("AB")] == (20 + 10 + 60) / (500 + 4000 + 1500)


def test_pooled_statistics_of_another_query_tell_of_selectivity_but_not_of_rows():
    other = Statistics.counted((7, 7), (10, 10), {(0, frozenset((0, 1))): 35.0}, outputs=35)
    pooled = COUNTED.pooled(other.renamed({0: B, 1: C}, 3))
    assert pooled.selectivities[named("BC")] == 0.5
    assert (pooled.arrivals, pooled.held) == (COUNTED.arrivals, COUNTED.held)
    assert pooled.selectivities[named("ABC")] == COUNTED.selectivities[named("ABC")]


def test_results_of_a_join_of_the_same_positions_are_pooled_under_their_names():
    other = Statistics.counted((1, 1, 1), (2, 2, 2), {}, outputs=3)
    assert other.renamed({0: B, 1: C, 2: A}, 3).selectivities == {named("ABC"): 0.25}
    assert other.renamed({0: B, 1: C}, 3).selectivities == {}


def test_faded_counts_have_the_same_selectivity_but_less_weight():
    later = Statistics.counted((10, 0, 0), (100, 50, 20), {(A, named("AB")): 500.0})
    faded = COUNTED.faded(0.5)
    assert faded.selectivities == pytest.approx(COUNTED.selectivities)
    expected = (0.5 * 30 + 500) / (0.5 * 4500 + 500)
    assert (faded + later).selectivities[named("AB")] == pytest.approx(expected)


def test_forgotten_sets_are_unknown():
    assert COUNTED.without([named("AB")]).selectivities.keys() == {named("ABC")}
    known = Statistics.counted((1, 1, 1), (1, 1, 1), {}, outputs=1)
    assert known.without([named("ABC")]).selectivities == {}


@given(statistics(), statistics())
def test_statistics_survive_json_and_add_without_order(some, others):
    both = some + others
    restored = Statistics.of(recorded(both.stored))
    assert restored == both
    assert restored.selectivities == both.selectivities
    assert (others + some).selectivities == both.selectivities
    assert all(0 <= share <= 1 for share in both.selectivities.values())


@pytest.mark.parametrize(
    ("arrivals", "held", "flows"),
    [
        ((1, 2), (1,), {}),
        ((1, -1), (1, 1), {}),
        ((1, 1), (1, float("nan")), {}),
        ((1, 1), (1, 1), {(0, frozenset((1,))): 1}),
        ((1, 1), (1, 1), {(0, frozenset((0, 2))): 1}),
    ],
)
def test_impossible_counts_are_refused(arrivals, held, flows):
    with pytest.raises(ValueError):
        Statistics.counted(arrivals, held, flows)


def test_statistics_of_different_joins_do_not_add():
    with pytest.raises(ValueError, match="3 and of 2"):
        COUNTED + Statistics.none(2)


def test_products_stay_finite():
    assert product([1e200, 1e200, 0.0]) == 0
    assert product([1e200, 1e200]) == MOST
