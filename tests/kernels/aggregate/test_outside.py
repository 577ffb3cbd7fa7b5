"""Rows in no window are those for which `wids` has none."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate.entries import with_patterns
from penstock.kernels.aggregate.forms import keep_rows
from penstock.kernels.aggregate.outside import in_no_window
from penstock.model import Aggregate, Aggregation
from penstock.model.windows import Landmark, Session, Sliding
from penstock.planner.aggregates import plan_aggregates

COUNT = Aggregate("count", None)
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


@given(
    st.lists(st.tuples(WINDOWS, st.integers(0, 1)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 3)), max_size=10),
)
def test_only_rows_that_a_query_selects_and_has_a_window_for_are_kept(queries, rows):
    """Queries are a window and a selection; rows a time and which of both selections they serve."""
    plans = plan_aggregates(
        {n: Aggregation(window, (), (COUNT,), None) for n, (window, _) in enumerate(queries)},
        {},
        selections={n: selection for n, (_, selection) in enumerate(queries)},
    )
    patterns = [(), (0,), (1,), (0, 1)]
    table = pa.table({
        "_key": pa.array([0] * len(rows), pa.int64()),
        "_ts": pa.array([time for time, _ in rows], pa.int64()),
        "_bits": pa.array([served for _, served in rows], pa.int32()),
    })  # fmt: skip
    some = any(in_no_window(window, np.zeros(0, dtype=np.int64)) is not None for window, _ in queries)
    wanted = [
        time
        for time, served in rows
        if not some or any(s in patterns[served] and (isinstance(w, Session) or w.wids(time)) for w, s in queries)
    ]
    kept = keep_rows(plans[0], with_patterns(table, patterns)).tables
    assert sum(sum(found.column("p0_0").to_pylist()) for found in kept) == len(wanted)
