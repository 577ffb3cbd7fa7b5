"""Rows that count at several ticks: the same as a row of each tick, at work by rows and panes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate import ticks as spreading
from penstock.kernels.aggregate.forms import keep_rows
from penstock.kernels.aggregate.ticks import TooManyTicksError
from penstock.model import Aggregate, Aggregation, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    LISTS,
    OTHERS,
    OWN,
    TYPES,
    VALUES,
    assert_same,
    at_least,
    column,
    expected,
    items,
    run,
    table_of,
)
from tests.kernels.aggregate.test_close import GROUPS, PREDICATES, STEPS, chosen

COUNTS = st.one_of(st.integers(1, 5), st.integers(1, 40), st.sampled_from((1, 2, 63, 64, 65)))


@st.composite
def scenes(draw):
    """A window of one slide, and batches of rows with the first and last moment at which they count, none late."""
    slide, origin = draw(st.integers(1, 7)), draw(st.none() | st.integers(-9, 9))
    start = (origin or 0) - 1
    rows = st.fixed_dictionaries({"first": st.integers(0 if origin is not None else -6, 12), "count": COUNTS, **VALUES})
    parts, left = [], draw(st.lists(st.lists(rows, max_size=8), min_size=1, max_size=4))
    for number, drawn in enumerate(left):
        made = [
            {**r, "ts": start + (r["first"] + 1) * slide, "last": start + (r["first"] + r["count"]) * slide}
            for r in drawn
        ]
        later = [start + (r["first"] + 1) * slide for rest in left[number + 1 :] for r in rest]
        parts.append((made, draw(st.sampled_from((NEVER, min(later, default=60))))))
    reached = np.maximum.accumulate([r for _, r in parts]).tolist()
    return Sliding(slide, slide, origin), [(made, r) for (made, _), r in zip(parts, reached, strict=True)]


def apart(parts, slide):
    """The same with a row of every tick."""
    return [([{**r, "ts": t} for r in rows for t in range(r["ts"], r["last"] + 1, slide)], r_) for rows, r_ in parts]


@settings(max_examples=examples(200), deadline=None)
@given(
    scenes(), GROUPS, chosen(BOUNDED) | chosen(BOUNDED + OTHERS + LISTS), PREDICATES, STEPS, STEPS,
    st.sampled_from((None, None, None, "paned", "wid", "buffered", "adapt")), st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_rows_of_several_ticks_are_as_a_row_of_each(
    scene, groups, aggregates, predicates, settled, merged, wanted, runs, least
):
    window, parts = scene
    if wanted not in {None, "buffered"}:
        aggregates = tuple(a for a in aggregates if a not in LISTS) or (Aggregate("count", None),)
    having = at_least(0, least) if aggregates[0].function == "count" and least else None
    # Several queries share the panes: each selects rows of its own.
    queries = {n: Aggregation(window, items(*groups), aggregates, having) for n in range(len(predicates))}
    found, _ = run(
        queries,
        parts,
        predicates=predicates,
        settled=settled,
        merged=merged,
        wanted=wanted,
        runs=runs,
        slide=window.slide,
    )
    singles = apart(parts, window.slide)
    for number, aggregation in queries.items():
        assert_same(found[number], expected(aggregation, singles, predicates[number % len(predicates)]))


def plan_of(*aggregates, slide=1):
    aggregation = Aggregation(Sliding(slide, slide), items("k"), aggregates, None)
    (plan,) = plan_aggregates({1: aggregation}, {column(n): t for n, t in TYPES.items()}, own=OWN)
    return plan


def rows_between(first, last, seed=1, groups=4):
    """A row for each of these ticks."""
    draw = np.random.default_rng(seed)
    given = dict.fromkeys(TYPES)
    return [
        {**given, "k": int(k), "x": int(x), "ts": int(a), "last": int(b)}
        for k, x, a, b in zip(
            draw.integers(0, groups, len(first)), draw.integers(0, 9, len(first)), first, last, strict=True
        )
    ]


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(10, 12), st.integers(0, 1000))
def test_work_does_not_grow_with_rows_times_ticks(power, seed):
    """Intermediate tables have at most a few entries per row or per pane, for each size of blocks."""
    draw = np.random.default_rng(seed)
    first = draw.integers(0, 50, 400)
    plan, handled = plan_of(Aggregate("count", None), Aggregate("max", column("x"))), []
    rows = rows_between(first, first + 2**power - draw.integers(0, 100, 400), seed)
    together = spreading._Partials.together

    def counted(self, *keys):
        handled.append(len(self.codes))
        return together(self, *keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spreading._Partials, "together", counted)
        kept = keep_rows(plan, table_of([column("k")], plan, rows, ((),)), slide=1)
    panes = sum(len(table) for table in kept.tables)
    assert panes >= 4 * 2**power
    assert sum(handled) <= 2 * (power + 2) * (len(rows) + panes)
    assert sum(r["last"] - r["ts"] + 1 for r in rows) > 4 * sum(handled)


def test_more_ticks_than_a_task_can_write_out_are_refused(monkeypatch):
    plan = plan_of(Aggregate("count", None))
    rows = rows_between(np.zeros(30, dtype=np.int64), np.full(30, 99), groups=2)
    table = table_of([column("k")], plan, rows, ((),))
    monkeypatch.setattr(spreading, "MOST_TAKEN", 200)  # two groups at a hundred ticks
    assert sum(map(len, keep_rows(plan, table, slide=1).tables)) == 200
    monkeypatch.setattr(spreading, "MOST_TAKEN", 199)
    with pytest.raises(TooManyTicksError, match="count in 200 windows"):
        keep_rows(plan, table, slide=1)


def test_sums_wrap_around_and_come_back():
    """Partials of partials of the largest integers are exact."""
    plan = plan_of(Aggregate("sum", column("x")), Aggregate("avg", column("x")), slide=3)
    rows = [
        {**dict.fromkeys(TYPES), "x": x, "ts": 2, "last": 2 + 3 * n}
        for n, x in enumerate((2**63 - 1, 2**63 - 1, -(2**63), 1))
    ]
    aggregation = Aggregation(Sliding(3, 3), items("k"), plan.queries[0].aggregates, None)
    found, _ = run({1: aggregation}, [(rows, FOREVER)], slide=3)
    assert_same(found[1], expected(aggregation, apart([(rows, FOREVER)], 3)))
    assert pa.types.is_integer(table_of([column("k")], plan, rows, ((),)).schema.field("_last").type)
