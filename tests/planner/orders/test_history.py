import pytest

from penstock.planner.orders.history import learn, supposed
from penstock.planner.orders.statistics import Statistics

from .cases import A, C, D, named

ROWS, HELD = (1000, 1000, 1000, 1000), (100, 100, 100, 100)


def counted(shares, start=A):
    flows = {(start, named(name)): share * 1000 * 100 ** (len(name) - 1) for name, share in shares.items()}
    return Statistics.counted(ROWS, HELD, flows)


def test_recent_counts_tell_more_and_rows_are_those_of_the_last_interval():
    known = learn(counted({"AB": 0.010}), counted({"AB": 0.013}), 0.5)
    assert known.selectivities[named("AB")] == pytest.approx((0.5 * 0.010 + 0.013) / 1.5)
    assert known.arrivals == ROWS


def test_what_no_order_shows_is_remembered_for_a_while():
    known = counted({"AB": 0.01, "AC": 0.5})
    for _ in range(10):
        known = learn(known, counted({"AB": 0.01}), 0.5)
    assert known.selectivities[named("AC")] == pytest.approx(0.5)
    for _ in range(20):
        known = learn(known, counted({"AB": 0.01}), 0.5)
    assert named("AC") not in known.selectivities


def test_a_change_replaces_what_was_known_and_makes_its_neighbours_unknown():
    before = counted({"AB": 0.01, "AC": 0.5, "ACD": 0.1}) + counted({"CD": 0.3}, start=C)
    known = learn(before, counted({"AB": 0.03}), 0.5)
    assert known.selectivities == pytest.approx({named("AB"): 0.03, named("CD"): 0.3})


def test_a_change_of_a_larger_set_that_began_in_a_smaller_one_spares_the_rest():
    before = counted({"AB": 0.01, "ABC": 0.001}) + counted({"CD": 0.3}, start=D)
    known = learn(before, counted({"AB": 0.03, "ABC": 0.003}), 0.5)
    assert known.selectivities.keys() == {named("AB"), named("ABC"), named("CD")}


def test_few_rows_are_no_change():
    before = Statistics.counted(ROWS, HELD, {(A, named("AB")): 4.0, (A, named("AC")): 9.0})
    known = learn(before, Statistics.counted(ROWS, HELD, {(A, named("AB")): 9.0}), 0.5)
    assert named("AC") in known.selectivities


def test_a_set_that_contains_a_changed_one_is_supposed_to_have_changed_with_it():
    before = counted({"AB": 0.01, "ABC": 0.001, "AC": 0.5}) + counted({"CD": 0.3}, start=D)
    assert supposed(before, counted({"AB": 0.03})) == pytest.approx({named("ABC"): 0.003})
    assert supposed(before, counted({"AB": 0.0})) == {named("ABC"): 0.0}
    assert supposed(before, counted({"AB": 0.011})) == {}


def test_of_several_changed_parts_the_one_that_changed_the_most_counts():
    before = counted({"AB": 0.01, "AC": 0.01, "ABCD": 0.0001})
    assert supposed(before, counted({"AB": 0.02, "AC": 0.0001})) == pytest.approx({named("ABCD"): 0.000001})
    grown = supposed(counted({"AB": 0.001, "ABC": 0.0009}), counted({"AB": 1.0}))
    assert grown == pytest.approx({named("ABC"): 0.9})
