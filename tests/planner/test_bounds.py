import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.model import Band, Landmark, Query, Role, Rows, Sliding, Tumbling, Window
from penstock.model.time import FOREVER
from penstock.planner.bounds import check_bounded, time_bounds, unbounded_roles
from penstock.reference import bounds
from tests.effort import examples
from tests.workloads import workload


def query(windows, *bands):
    """A query over roles a, b, ..; a window is a length, ALL, None for no window, or one of another kind."""
    roles = [
        Role("abcdef"[i], f"s{i}", Window(None if w == "ALL" else w) if isinstance(w, int | str) else w)
        for i, w in enumerate(windows)
    ]
    return Query("", tuple(roles), (), tuple(Band(*b) for b in bands), (), (), ())


def test_a_window_binds_its_role_to_every_other_one_and_is_open_at_its_end():
    assert time_bounds(query([10, 5, 7])) == ((0, 9, 9), (4, 0, 4), (6, 6, 0))


def test_a_band_binds_its_pair_and_what_follows_from_it():
    # b comes at most 3 after a, c at most 4 after b: so c at most 7 after a.
    found = time_bounds(query([None, None, 9], (0, 1, 3), (1, 2, 4)))
    assert found[0] == (0, 3, 7)
    assert found[1] == (12, 0, 4)


def test_a_band_and_a_window_hold_both():
    assert time_bounds(query([10, 10], (0, 1, 4)))[0][1] == 4
    assert time_bounds(query([3, 10], (0, 1, 4)))[0][1] == 2


def test_a_lagged_band_gives_a_negative_bound():
    assert time_bounds(query([10, 10], (0, 1, -4))) == ((0, -4), (9, 0))


def test_a_tumbling_window_bounds_every_pair():
    window = Tumbling(10, 3)
    assert time_bounds(query([window, window])) == ((0, 9), (9, 0))
    assert time_bounds(query([window, window], (0, 1, 4))) == ((0, 4), (9, 0))


def test_a_window_of_rows_bounds_no_time():
    assert time_bounds(query([Rows(5), 10])) == ((0, FOREVER), (9, 0))
    assert time_bounds(query([Rows(5), 10], (0, 1, 4))) == ((0, 4), (9, 0))


@pytest.mark.parametrize(
    "contradiction",
    [
        query([10, 5], (0, 1, -5)),  # a at least 5 after b, but b is gone by then
        query([10, 10, 10], (0, 1, -1), (1, 2, -1), (2, 0, -1)),  # each after the next
        query([None, None], (0, 1, 3), (1, 0, -4)),
        query([Tumbling(5), Tumbling(5)], (0, 1, -5)),
    ],
)
def test_conditions_that_contradict_each_other_are_refused(contradiction):
    with pytest.raises(RegistrationError, match=r"'a' contradict each other.*widen the window or the band"):
        time_bounds(contradiction)


def test_conditions_that_leave_one_moment_are_accepted():
    assert time_bounds(query([10, 5], (0, 1, -4))) == ((0, -4), (4, 0))


@pytest.mark.parametrize(
    ("loose", "alias"),
    [
        (query([None, 5]), "a"),
        (query([5, None]), "b"),
        (query([5, 5, None], (2, 0, 3)), None),
        (query([None, None], (0, 1, 3)), "b"),
        (query([None, None], (0, 1, 3), (1, 0, 3)), None),
        (query(["ALL", 5]), None),
        (query(["ALL", None]), "b"),
        (query([Rows(5), 10]), None),
        (query([Rows(5), Rows(1, ("k",))]), None),
        (query([Rows(5), None]), "b"),
        (query([Tumbling(5), Tumbling(5)]), None),
        (query([None]), None),
    ],
)
def test_a_role_that_could_never_be_purged_is_refused_with_the_fix(loose, alias):
    found = time_bounds(loose)
    if alias is None:
        check_bounded(loose, found)
        assert unbounded_roles(loose, found) == []
    else:
        assert unbounded_roles(loose, found) == [alias]
        with pytest.raises(
            RegistrationError, match=rf"'{alias}'.*never be purged.*{alias} \[RANGE 1 MINUTE\].*band"
        ) as e:
            check_bounded(loose, found)
        assert "[RANGE ALL]" in str(e.value)


def lives(lines):
    """How long rows of each role can join."""
    return [max(b for j, b in enumerate(row) if j != i) for i, row in enumerate(time_bounds(lines))]


def test_a_band_bounds_the_life_of_the_earlier_row_only():
    assert lives(query([60_000_000, "ALL"], (0, 1, 4_999_999))) == [4_999_999, FOREVER]


def test_a_window_of_rows_bounds_no_time_and_bands_still_do():
    counted = query([Rows(5), Rows(2, ("k", "s")), 60_000_000], (1, 0, 4_999_999), (1, 2, 0))
    assert lives(counted) == [FOREVER, 4_999_999, 60_000_000 - 1]


def assert_same(ours, theirs):
    assert {(i, j): b for i, row in enumerate(ours) for j, b in enumerate(row) if i != j} == theirs


@settings(max_examples=examples(200))
@given(
    st.lists(st.one_of(st.integers(1, 20), st.none(), st.sampled_from(("ALL", Rows(3)))), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-6, 20)), max_size=6),
)
def test_bounds_are_those_of_the_reference_unless_they_contradict_each_other(windows, bands):
    count = len(windows)
    given_query = query(windows, *[(i % count, j % count, u) for i, j, u in bands if i % count != j % count])
    try:
        found = time_bounds(given_query)
    except RegistrationError:
        assert not satisfiable(given_query)
        return
    assert satisfiable(given_query)
    assert_same(found, bounds(given_query))


@settings(max_examples=examples(20))
@given(workload())
def test_bounds_of_workloads_are_those_of_the_reference(work):
    for parsed in work.parsed:
        check_bounded(parsed, time_bounds(parsed))
        assert_same(time_bounds(parsed), bounds(parsed))


def satisfiable(given_query):
    """Whether times exist at which all conditions hold, by pulling them down until they do."""
    roles = range(len(given_query.roles))
    conditions = [(b.earlier, b.later, b.upper) for b in given_query.bands]
    for i, role in enumerate(given_query.roles):
        if isinstance(role.window, Window) and role.window.length is not None:
            conditions += [(i, j, role.window.length - 1) for j in roles if j != i]
    times = dict.fromkeys(roles, 0)
    for _ in range(len(roles) + 1):
        changed = False
        for earlier, later, upper in conditions:
            if times[later] > times[earlier] + upper:
                times[later], changed = times[earlier] + upper, True
        if not changed:
            return True
    return False


def test_no_bound_is_for_ever():
    assert time_bounds(query(["ALL", 5])) == ((0, FOREVER), (4, 0))


def test_windows_that_slide_together_bound_each_other():
    """Two rows that share a window of one end: one is before it, the other at most its own range before it."""
    found = time_bounds(query([Sliding(5, 2), Sliding(9, 2)]))
    assert found == ((0, 4), (8, 0))
    shared = [
        (one, other)
        for one in range(-20, 20)
        for other in range(-20, 20)
        if set(Sliding(5, 2).wids(one)) & set(Sliding(9, 2).wids(other))
    ]
    assert max(other - one for one, other in shared) == found[0][1]
    assert max(one - other for one, other in shared) == found[1][0]
    asked = query([Sliding(5, 2), Landmark(2)])
    assert unbounded_roles(asked, time_bounds(asked)) == []
