"""Rows in no window are those for which `wids` has none."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate.outside import in_no_window
from penstock.model.windows import Landmark, Session, Sliding

LENGTHS = st.integers(1, 12)
ORIGINS = st.none() | st.integers(-15, 15)
WINDOWS = st.one_of(
    st.builds(Sliding, LENGTHS, LENGTHS, ORIGINS), st.builds(Landmark, LENGTHS, ORIGINS), st.builds(Session, LENGTHS)
)


@given(WINDOWS, st.lists(st.integers(-40, 40)))
def test_a_row_is_outside_if_no_window_extends_over_it(window, times):
    found = in_no_window(window, np.array(times, dtype=np.int64))
    if isinstance(window, Session):
        assert found is None
        return
    expected = [not window.wids(time) for time in times]
    assert ([False] * len(times) if found is None else found.tolist()) == expected
