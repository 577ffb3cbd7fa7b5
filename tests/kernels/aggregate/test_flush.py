"""Capped results: all of them, each once, never too many in a step, and none too late."""

import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import gather, partials
from penstock.kernels.aggregate.flush import Cap, flush, least, share_of
from penstock.kernels.aggregate.keep import expire
from penstock.model import Aggregate, Aggregation, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.state.flushed import Flushed
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    LANDMARKS,
    OWN,
    SLIDING,
    TYPES,
    assert_same,
    batches,
    column,
    expected,
    items,
    listed,
    table_of,
)
from tests.kernels.aggregate.test_close import STEPS

HASHES = 5
# Shares of the keys 0 to 4, for one, two or three tasks.
SHARES = {1: [(0, None)], 2: [(0, 2), (2, None)], 3: [(0, 1), (1, 4), (4, None)]}


@settings(max_examples=examples(200), deadline=None)
@given(
    SLIDING | LANDMARKS,
    st.sampled_from(((), ("k",), ("k", "p"))),
    batches(most=40),
    st.integers(0, 6),
    st.integers(0, 3),
    st.lists(st.sampled_from((1, 2, 3)), min_size=6, max_size=6),
    STEPS,
    st.sampled_from(([], [Flushed(0, None)])),
)
def test_all_results_come_once_in_time_and_never_too_many(window, groups, parts, rows, behind, tasks, settled, begun):
    aggregation = Aggregation(window, items(*groups), (BOUNDED[0], BOUNDED[4]), None)
    (plan,) = plan_aggregates({0: aggregation}, {column(n): t for n, t in TYPES.items()}, own=OWN)
    query = plan.queries[0]
    state, ranges, found = [], begun, []
    newest = max((row["ts"] for rows_of_step, _ in parts for row in rows_of_step), default=NEVER)
    for step, (given_rows, reached) in enumerate([*parts, ([], FOREVER)]):
        if given_rows:
            made = table_of([i.expression for i in items(*groups)], plan, given_rows, ((),), hashes=HASHES)
            state.append(partials(plan, made))
        after = []
        for number, own in enumerate(SHARES[tasks[step]]):
            mine = [t.filter([inside(key, own) for key in t.column("_key").to_pylist()]) for t in state]
            cap = Cap(share_of(rows, number, tasks[step]), behind)
            closed, flushed = flush(
                gather(plan, mine), query, ranges, own, reached, cap, (parts[-1][1] if parts else NEVER, newest)
            )
            out = [row for c in closed for row in listed(c.table, plan, 0)]
            found += out
            after.append(flushed)
            assert (flushed.low, flushed.high) == own
            if reached < FOREVER:
                overdue = [row for row in out if row[2] <= reached - behind * window.slide]
                same_shares = step == 0 or tasks[step] == tasks[step - 1]
                if same_shares and not overdue:
                    # Groups with one key go together.
                    assert len({(row[0], row[2]) for row in out}) == len(out)
                    assert len(by_key(out, groups)) <= cap.rows
                    event("held back" if flushed.until < reached else "all out")
        ranges = after
        if reached < FOREVER:
            wanted = expected(aggregation, parts[: step + 1])
            due = [row for row in wanted if row[2] <= reached - behind * window.slide]
            places = {(repr(row[0]), row[2]) for row in found}
            assert all((repr(row[0]), row[2]) in places for row in due)
            held = [row for row in wanted if row[2] <= reached and (repr(row[0]), row[2]) not in places]
            assert all(row[2] > least(ranges) for row in held)
        if step in settled:
            kept = expire(plan, state, least(ranges))
            state = [] if kept is None else [kept]
    assert_same(found, expected(aggregation, parts))


def test_the_very_first_closing_may_be_too_large():
    """Nothing is known then of how far results are out."""
    aggregation = Aggregation(Sliding(4, 4), (), (Aggregate("count", None),), None)
    (plan,) = plan_aggregates({0: aggregation}, {})
    rows = pa.table({"_key": pa.array(range(6), pa.int64()), "_ts": pa.array([1] * 6, pa.int64())})
    gathered = gather(plan, [partials(plan, rows)])
    ((closed,), flushed) = flush(gathered, plan.queries[0], [], (0, None), 4, Cap(2, behind=3))
    assert len(closed.table) == 2
    ((closed,), flushed) = flush(gathered, plan.queries[0], [flushed], (0, None), 4, Cap(9, behind=3))
    assert (len(closed.table), flushed) == (4, Flushed(0, None, 4))


def inside(key, own):
    return key >= own[0] and (own[1] is None or key < own[1])


def by_key(rows, groups):
    """Results distinguished by window and key, if keys are known to differ."""
    return {(row[2],) if not groups else (row[2], hash_of(row[0])) for row in rows}


def hash_of(group):
    return hash(tuple(repr(v + 0.0 if isinstance(v, float) else v) for v in group)) % HASHES
