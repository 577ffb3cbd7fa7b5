"""The way to ask follows what was measured: planted costs are found out, at every size that is asked for often."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.views.ways import Ways


def ways():
    return Ways({"array": 20_000, "table": inf})


def after(costs, keys, turns=8):
    """The ways chosen in turn, if each costs a fixed part and a part for each key."""
    asked, chosen = ways(), []
    for _ in range(turns):
        way = asked.choose(keys)
        fixed, each = costs[way]
        asked.learn(way, keys, fixed + each * keys)
        chosen.append(way)
    return chosen


def test_where_nothing_is_known_the_given_sizes_count():
    assert [ways().choose(n) for n in (1, 20_000, 20_001, 10**6)] == ["array", "array", "table", "table"]


@pytest.mark.parametrize(("keys", "way"), [(5_000, "array"), (60_000, "table")])
def test_what_is_preferred_and_good_is_kept_to(keys, way):
    costs = {"array": (0.001, 4e-6), "table": (0.02, 2e-6)}  # they cross at 9,500
    chosen = after(costs, keys)
    assert chosen[0] == way
    assert chosen.count(way) >= 6


def test_a_server_on_which_they_cross_elsewhere_is_found_out():
    assert set(after({"array": (0.001, 9e-6), "table": (0.01, 1e-6)}, 9_000)[4:]) == {"table"}
    assert set(after({"array": (0.001, 1e-6), "table": (0.08, 2e-6)}, 40_000)[4:]) == {"array"}


def test_a_handful_of_keys_is_no_experiment():
    assert set(after({"array": (0.5, 1e-6), "table": (0.0, 1e-6)}, 500)) == {"array"}


@given(
    keys=st.integers(4_000, 100_000),
    array=st.floats(1e-7, 1e-5), table=st.floats(1e-7, 1e-5), fixed=st.floats(0.001, 0.1), turns=st.integers(6, 12),
)  # fmt: skip
def test_in_the_end_nothing_much_slower_is_used(keys, array, table, fixed, turns):
    costs = {"array": (0.001, array), "table": (fixed, table)}
    chosen = after(costs, keys, turns)
    took = {way: first + each * keys for way, (first, each) in costs.items()}
    assert set(chosen) == {chosen[-1]} or took[chosen[-1]] == min(took.values())
    assert chosen[-2] == chosen[-1]
