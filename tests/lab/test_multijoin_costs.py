from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.multijoin.costs import (
    Window,
    best_general,
    best_lazy,
    best_naive,
    candidates,
    eager,
    eager_of,
    general,
    greedy_orders,
    heuristic_order,
    lazy,
    naive,
    naive_of,
    phi,
)
from tests.effort import examples

TABLE_5 = (Window(10, 100, 500), Window(1, 100, 50), Window(1, 200, 40), Window(3, 100, 5))
TABLE_6 = (Window(100, 100, 200), Window(1, 100, 200), Window(1, 100, 20), Window(3, 100, 2))
TABLE_7 = (Window(11, 100, 200), Window(10, 100, 100), Window(1, 100, 65), Window(1, 100, 20))
ALIKE = Window(1, 100, 50)
ONE_FAST = (ALIKE, ALIKE, ALIKE, Window(10, 100, 50))

windows = st.lists(
    st.builds(Window, st.integers(1, 20), st.integers(1, 200), st.integers(1, 100)), min_size=2, max_size=4
).map(tuple)


def order(text):
    return tuple(int(digit) - 1 for digit in text)


@pytest.mark.parametrize(
    ("table", "costs"),
    [
        (TABLE_5, {"1234": 16000, "2134": 19600, "4321": 86850}),
        (TABLE_6, {"2134": 80400, "2314": 123150, "2341": 248450, "1234": 120000, "4312": 646050}),
        (TABLE_7, {"3142": 47976.9, "4132": 47976.9, "3412": 49542.3, "3124": 51953.8, "1234": 68200, "2134": 79000}),
    ],
)
def test_orders_of_the_printed_tables_cost_what_is_printed(table, costs):
    for text, cost in costs.items():
        assert eager(table, order(text)) == pytest.approx(cost, abs=0.05)
    every = [eager(table, some) for some in permutations(range(4))]
    assert min(every) == pytest.approx(min(costs.values()), abs=0.05)


def test_parts_and_intermediate_sizes_of_table_5():
    assert [eager_of(TABLE_5, order("1234"), origin) for origin in range(4)] == [3800, 3800, 2400, 6000]
    sizes = {"12": 200, "13": 400, "14": 600, "23": 400, "24": 600, "34": 1500, "123": 800, "124": 1200}
    assert {text: phi(TABLE_5, order(text)) for text in sizes} == pytest.approx(sizes)


@pytest.mark.parametrize("table", [TABLE_5, TABLE_6, TABLE_7])
def test_the_heuristic_finds_the_optimum_among_few_candidates(table):
    every = [eager(table, some) for some in permutations(range(4))]
    assert eager(table, heuristic_order(table)) == pytest.approx(min(every))
    assert eager(table, heuristic_order(table)) < sum(every) / len(every)
    assert len(candidates(table)) <= 16


def test_both_greedy_readings_of_table_6_are_candidates_and_neither_is_the_best():
    assert {order("2314"), order("2341")} <= set(greedy_orders(TABLE_6))
    assert heuristic_order(TABLE_6) == order("2134")
    assert heuristic_order(TABLE_6, fast=100) in greedy_orders(TABLE_6)  # where no stream counts as fast


def test_eager_scales_and_naive_does_not():
    by_count = [(eager((ALIKE,) * n, tuple(range(n))), naive((ALIKE,) * n, tuple(range(n)))) for n in (2, 3, 4, 10)]
    assert by_count == [(200, 200), (900, 10800), (2800, 42400), (511000, 5480800)]


@pytest.mark.parametrize(
    ("some", "tau", "costs"),
    [
        ((ALIKE,) * 4, 1, (43471, 2869, 2869)),
        ((ALIKE,) * 4, 10, (8158, 3538, 3538)),
        ((ALIKE,) * 4, 50, (9300, 7800, 7800)),
        (ONE_FAST, 1, (58307, 20450, 20450)),
        (ONE_FAST, 50, (57900, 61800, 57600)),
    ],
)
def test_best_orders_of_the_three_lazy_algorithms(some, tau, costs):
    found = (best_naive(some, tau), best_lazy(some, tau), best_general(some, tau))
    assert found == pytest.approx(costs, abs=0.5)


def test_general_leaves_lazy_near_11_and_naive_passes_lazy_near_14():
    assert best_general(ONE_FAST, 11.1) == pytest.approx(best_lazy(ONE_FAST, 11.1))
    assert best_general(ONE_FAST, 11.3) < best_lazy(ONE_FAST, 11.3) * 0.9999
    assert best_naive(ONE_FAST, 14.3) > best_lazy(ONE_FAST, 14.3)
    assert best_naive(ONE_FAST, 14.6) < best_lazy(ONE_FAST, 14.6)


@given(windows.filter(lambda some: len(some) == 4), st.floats(0.5, 50))
def test_the_closed_formulas_for_four_windows(some, tau):
    w1, w2, w3, w4 = some
    one = order("1234")

    def sizes(tau=0.0):
        return w1.rows(tau), w2.rows(tau), phi(some, (0, 1), tau), phi(some, (0, 1, 2), tau)

    n1, n2, pair, triple = sizes()
    c1 = w1.rate * n2 + (pair * w3.rows() + triple * w4.rows()) / w1.length
    assert eager_of(some, one, 0) == pytest.approx(c1)
    c3 = w3.rate * n1 + (phi(some, (0, 2)) * n2 + triple * w4.rows()) / w3.length
    assert eager_of(some, one, 2) == pytest.approx(c3)
    g4 = w4.rate * (n1 * n2 + pair * w3.rows() + triple)
    assert naive_of(some, one, 3) == pytest.approx(g4)
    n1, n2, pair, triple = sizes(tau)
    values = max(min(w1.values, w2.values), w3.values)
    h3 = n1 * n2 / tau + pair * w3.rate + pair * w3.rate * w4.rows(tau) / values
    assert naive_of(some, one, 2, tau) == pytest.approx(h3)
    h4 = n1 * n2 / tau + pair * w3.rows(tau) / tau + triple * w4.rate
    assert naive_of(some, one, 3, tau) == pytest.approx(h4)


@given(windows, st.floats(0.5, 50))
def test_lazy_is_eager_with_longer_windows(some, tau):
    longer = tuple(Window(w.rate, w.length + tau, w.values) for w in some)
    one = tuple(range(len(some)))
    assert lazy(some, one, tau) == pytest.approx(eager(longer, one))
    own_first = [(origin, *(p for p in one if p != origin)) for origin in one]
    assert general(some, own_first, tau) == pytest.approx(lazy(some, one, tau))


@settings(max_examples=examples(30))
@given(windows, st.floats(0.5, 50))
def test_general_is_never_dearer_than_lazy_or_naive(some, tau):
    assert best_general(some, tau) <= min(best_lazy(some, tau), best_naive(some, tau)) * (1 + 1e-9)


@given(windows)
def test_the_size_of_a_join_does_not_depend_on_the_sequence(some):
    found = [phi(some, members) for members in permutations(range(len(some)))]
    assert found == pytest.approx([found[0]] * len(found))


@given(windows, st.integers(1, 50))
def test_with_equal_values_smaller_windows_come_first(some, values):
    some = tuple(Window(w.rate, w.length, values) for w in some)
    ascending = tuple(sorted(range(len(some)), key=lambda p: some[p].rows()))
    best = min(eager(some, other) for other in permutations(range(len(some))))
    assert eager(some, ascending) == pytest.approx(best)
    assert eager(some, heuristic_order(some)) == pytest.approx(best)


def test_buckets_make_scans_shorter_and_leave_the_matches():
    hashed = tuple(Window(w.rate, w.length, w.values, 5) for w in TABLE_5)
    assert eager(hashed, order("1234")) == pytest.approx(16000 / 5)


@pytest.mark.parametrize("wrong", [(1, 0, 1), (1, 1, 0), (-1, 1, 1), (1, 1, 1, 0)])
def test_impossible_windows_are_refused(wrong):
    with pytest.raises(ValueError):
        Window(*wrong)
