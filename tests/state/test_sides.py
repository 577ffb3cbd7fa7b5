"""How long late and bad rows are kept, and which of their files become one."""

from itertools import pairwise
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.side_files import MANY_FILES, SMALL_BYTES, SideFile, alike_sides, expired_sides, next_expiry

DAY = 86_400
RETAINED = {"a": 7 * DAY * 1_000_000, "b": None, "c": 10_000_000}


def side(stream="a", at=0.0, size=1, reason="late", number=0):
    return SideFile(f"sides/{number}-{stream}-{at}.parquet", stream, reason, 0, 1, size, at)


def test_a_file_goes_when_its_stream_has_kept_it_long_enough():
    files = [side(at=0.0), side(at=1.0), side("b"), side("c", at=5.0), side("gone")]
    assert expired_sides(files, RETAINED, 14.9) == []
    assert expired_sides(files, RETAINED, 15.0) == [files[3]]
    assert expired_sides(files, RETAINED, 7 * DAY) == [files[0], files[3]]
    assert expired_sides(files, RETAINED, 1e12) == [files[0], files[1], files[3]]


def test_a_step_of_its_own_waits_until_it_is_worth_while():
    assert next_expiry([side("b"), side("gone")], RETAINED) == inf
    assert next_expiry([], RETAINED) == inf
    due = next_expiry([side(at=0.0), side(at=60.0)], RETAINED)
    assert 7 * DAY < due < 7.1 * DAY
    assert len(expired_sides([side(at=0.0), side(at=60.0)], RETAINED, due)) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.floats(0, 30 * DAY),
            st.sampled_from(["late", "bad"]),
            st.sampled_from([1, SMALL_BYTES]),
        )
    )
)
def test_only_small_files_of_one_stream_reason_and_age_are_merged(given_files):
    files = [side(s, at, size, reason, n) for n, (s, at, reason, size) in enumerate(given_files * 20)]
    groups = alike_sides(files, RETAINED)
    merged = [f.name for group in groups for f in group]
    assert len(merged) == len(set(merged))
    for group in groups:
        assert len(group) >= MANY_FILES
        assert len({(f.stream, f.reason) for f in group}) == 1
        assert all(f.bytes < SMALL_BYTES for f in group)
        kept = RETAINED[group[0].stream]
        assert kept is None or all(1_000_000 * abs(a.at - b.at) <= kept / 10 for a, b in pairwise(group))


def test_many_small_files_are_few_soon():
    files = [side(at=float(n), number=n) for n in range(1000)]
    assert sum(map(len, alike_sides(files, RETAINED))) == 1000
    assert sum(map(len, alike_sides([side("b", at=float(n) * DAY, number=n) for n in range(100)], RETAINED))) == 100
