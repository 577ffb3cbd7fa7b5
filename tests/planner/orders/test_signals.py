import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.planner.orders.signals import (
    comparable,
    distance,
    draw,
    fluctuating,
    literal_stuck,
    magnitude,
    probability,
    sound_stuck,
)
from penstock.planner.orders.statistics import Statistics

from .cases import A, B, C, named

vectors = st.tuples(*[st.integers(0, 1000)] * 3)


def test_distance_and_probability_of_the_printed_example():
    moved = distance((100, 200, 300, 400), (200, 100, 300, 400))
    assert moved == pytest.approx(0.1)
    assert probability(1 / 3, moved) == pytest.approx(0.4)


def test_a_common_surge_is_no_distance_but_a_magnitude():
    assert distance((100, 100, 100), (500, 500, 500)) == 0
    assert magnitude(300, 1500) == 0.8


def test_something_is_far_from_nothing():
    assert distance((0, 0), (0, 0)) == 0
    assert distance((0, 0), (1, 0)) == 1
    assert magnitude(0, 0) == 0
    assert magnitude(0, 5) == 1


@given(vectors, vectors, vectors, st.integers(1, 9), st.floats(0, 1))
def test_distance_is_one_of_shares(some, others, third, times, alpha):
    moved = distance(some, others)
    assert 0 <= moved <= 1
    assert moved == distance(others, some)
    assert distance(some, tuple(times * rows for rows in some)) == pytest.approx(0, abs=1e-12)
    assert alpha <= probability(alpha, moved) <= 1 + 1e-12
    assume(sum(some) and sum(others) and sum(third))
    assert moved <= distance(some, third) + distance(third, others) + 1e-12
    if not any(a and b for a, b in zip(some, others, strict=True)):
        assert moved == pytest.approx(1)


def test_a_position_fluctuates_if_its_share_scatters_by_more_than_half_its_mean():
    def checks(low, high):
        return [(rows, 1000 - rows, 1000) for rows in (low, high) * 3]

    assert fluctuating(checks(40, 160)) == {A}  # 100 give or take 60
    assert fluctuating(checks(60, 140)) == frozenset()
    assert fluctuating(checks(40, 160)[:3]) == frozenset()  # too few to tell
    assert fluctuating([(0, 0, 0)] * 9) == frozenset()


def test_few_rows_scatter_by_chance():
    assert fluctuating([(rows, 1000, 1000) for rows in (1, 3, 2, 0, 2, 3)]) == frozenset()
    assert fluctuating([(100 * rows, 100_000, 100_000) for rows in (1, 3, 2, 0, 2, 3)]) == {A}


@given(vectors, st.integers(1, 9))
def test_a_common_surge_makes_nothing_fluctuate(arrivals, times):
    assert fluctuating([arrivals] * 4 + [tuple(times * rows for rows in arrivals)] * 4) == frozenset()


def test_draws_are_the_same_for_the_same_and_spread_evenly_over_different_parts():
    assert draw(1, "q", 7) == draw(1, "q", 7)
    assert len({draw(1, "q", 7), draw(2, "q", 7), draw(1, "r", 7), draw(1, "q", 8)}) == 4
    drawn = [draw(0, "q", number) for number in range(2000)]
    assert all(0 <= number < 1 for number in drawn)
    assert sum(number >= 0.4 for number in drawn) / 2000 == pytest.approx(0.6, abs=0.04)


def test_comparable_composites_have_as_many_positions_and_one_in_common():
    assert comparable(named("AB"), named("AC"), A)
    assert not comparable(named("AB"), named("AB"), A)
    assert not comparable(named("AB"), named("BC"), A)
    assert not comparable(named("AB"), named("ACD"), A)


@pytest.mark.parametrize(("ab", "ac", "stuck"), [(5.0, 10.0, None), (10.0, 5.0, named("AC")), (5.0, 5.0, None)])
def test_a_peer_shows_a_better_first_probe(ab, ac, stuck):
    flows = {(A, named("AB")): ab, (C, named("AC")): ac}
    counted = Statistics.counted((10, 10, 10), (10, 10, 10), flows)
    assert literal_stuck(counted, A, (B, C)) == stuck
    assert sound_stuck(counted, A, (B, C)) == stuck


def test_sound_comparison_is_for_one_row_whoever_counted():
    # C's few rows made fewer composites with A than A's many rows with B; one row of A meets more of C all the same.
    flows = {(A, named("AB")): 10.0, (C, named("AC")): 5.0}
    counted = Statistics.counted((100, 1, 1), (10, 10, 10), flows)
    assert literal_stuck(counted, A, (B, C)) == named("AC")
    assert sound_stuck(counted, A, (B, C)) is None


def test_nothing_is_better_than_what_no_one_has_seen():
    counted = Statistics.counted((10, 10, 10), (10, 10, 10), {(C, named("AC")): 5.0})
    assert sound_stuck(counted, A, (B, C)) is None
    assert literal_stuck(counted, A, (B, C)) is None
