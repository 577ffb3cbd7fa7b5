"""What a step may read follows from what steps have cost."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.admission import FIRST_BYTES, LEAST_BYTES, LEAST_ROWS, MOST_BYTES, TARGET, Admission


def test_full_steps_come_to_the_target():
    """A file source with 100 bytes a row, always full: 2 microseconds a row and half a second a step."""
    admission = Admission()
    for _ in range(30):
        rows = admission.bytes // 100
        admission.observe(rows, 0.5 + rows * 2e-6)
    assert 0.8 * TARGET < 0.5 + admission.bytes / 100 * 2e-6 < 1.2 * TARGET
    assert abs(0.5 + admission.rows * 2e-6 - TARGET) < 0.1 * TARGET


def test_steps_with_few_rows_say_nothing_of_full_ones():
    admission = Admission()
    admission.observe(1_000_000, TARGET)
    for _ in range(20):
        admission.observe(100, 0.2)
    assert admission.bytes == FIRST_BYTES


def test_one_slow_step_does_not_stop_the_source():
    admission = Admission()
    admission.observe(10, 1000 * TARGET)
    assert admission.bytes == FIRST_BYTES // 2


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e5))))
def test_limits_stay_within_their_bounds(steps):
    admission = Admission()
    for rows, seconds in steps:
        admission.observe(rows, seconds)
        assert LEAST_BYTES <= admission.bytes <= MOST_BYTES
        assert admission.rows >= LEAST_ROWS
