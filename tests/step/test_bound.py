"""How much one query may produce in a step: as much as the bound says, and no more."""

from penstock.step.bound import Bound


def test_what_passes_the_bound_is_told_in_rows_or_bytes():
    bound = Bound(rows=10, bytes=1000)
    assert bound.passed(10, 1000) is None
    assert "more than 10 rows" in str(bound.passed(11, 0))
    assert "more than 1,000 bytes" in str(bound.passed(0, 1001))
