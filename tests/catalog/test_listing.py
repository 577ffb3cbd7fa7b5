"""From when on answers are complete: missed rows would change nothing from then on, by the reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.listing import coverage
from penstock.model import Column, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.reference import aggregate_results, results
from penstock.sql import parse_query
from penstock.state.registry import QueryRecord
from tests.oracle import bag

STREAMS = {name: Stream(name, (Column("t", "bigint"), Column("k", "bigint")), "t", delay=0) for name in "abc"}
QUERIES = [
    "SELECT result_time, a.t, b.t FROM a [RANGE 4], b [RANGE 7] WHERE a.k = b.k",
    "SELECT result_time, a.t, b.t FROM a, b WHERE a.k = b.k AND b.t BETWEEN a.t - 2 AND a.t + 5",
    "SELECT result_time, a.t, b.t FROM a, b WHERE a.k = b.k AND b.t BETWEEN a.t + 3 AND a.t + 5",
    "SELECT result_time, a.t, b.t FROM a [TUMBLING 5], b [TUMBLING 5] WHERE a.k = b.k",
    (
        "SELECT result_time, a.t, b.t, c.t FROM a [RANGE 3], b [RANGE 6], c [RANGE 9] "
        "WHERE a.k = b.k AND b.k = c.k AND c.t <= a.t + 1"
    ),
    "SELECT result_time, x.t, b.t FROM (a UNION ALL c) [RANGE 4] x, b [RANGE 2] WHERE x.k = b.k",
    "SELECT result_time, a.k FROM a WHERE k > 0",
    "SELECT result_time, k, count(*) FROM a [RANGE 7 SLIDE 3] GROUP BY k",
    "SELECT result_time, k, count(*) FROM a [RANGE 7 SLIDE 3 ORIGIN 9] GROUP BY k",
    "SELECT result_time, count(*) FROM a [RANGE ALL SLIDE 4 ORIGIN 9]",
    "SELECT result_time, k, count(*) FROM a [RANGE 5 SLIDE 1 ROW] GROUP BY k",
    "SELECT result_time, t, count(*) FROM a GROUP BY t",
]
TIMES = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 1)), max_size=8)


@pytest.mark.parametrize("sql", QUERIES)
@given(st.data())
def test_results_from_the_time_that_coverage_tells_are_those_of_a_query_that_was_always_there(sql, data):
    query = parse_query(sql, STREAMS)
    rows = {name: [{"t": t, "k": k} for t, k in data.draw(TIMES)] for name in STREAMS}
    complete = {name: data.draw(st.integers(0, 20)) for name in STREAMS if data.draw(st.booleans())}
    found = coverage(QueryRecord(1, "q", sql, since=3), query, complete, dict.fromkeys(STREAMS, 22))
    exact = NEVER if found["exact_from"] is None else found["exact_from"]
    evaluated = results if query.aggregation is None else aggregate_results
    seen = {name: [row for row in own if row["t"] >= complete.get(name, NEVER)] for name, own in rows.items()}
    everything, present = (evaluated(query, STREAMS, own) for own in (rows, seen))
    assert bag(r for r in present if r[0] >= exact) == bag(r for r in everything if r[0] >= exact)
    read = {name for role in query.roles for name in role.streams}
    assert found["covered"] == (exact <= 22)
    assert exact > NEVER or not complete.keys() & read or "ORIGIN" in sql


@pytest.mark.parametrize(
    "window", ["SESSION 5", "RANGE ALL SLIDE 3", "RANGE 5 ROWS SLIDE 1 ROW", "RANGE ALL SLIDE 4 ORIGIN 2"]
)
def test_what_may_hold_what_was_missed_for_ever_is_never_covered(window):
    query = parse_query(f"SELECT count(*) FROM a [{window}]", STREAMS)
    record = QueryRecord(1, "q", "", since=3)
    found = coverage(record, query, {"a": 7}, {"a": FOREVER})
    assert (found["exact_from"], found["covered"]) == (FOREVER, False)
    assert coverage(record, query, {}, {"a": 0})["covered"]
