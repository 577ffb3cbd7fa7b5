"""Results stored as panes: assembled windows equal those closed one by one, and their counts are right."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import close, merge, partials
from penstock.kernels.aggregate.entries import patterns_of
from penstock.kernels.aggregate.keep import expire
from penstock.kernels.aggregate.panes import assembled, closed_panes, pane_edge, window_counts
from penstock.model import Aggregate, Aggregation, Session, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates, plan_of_panes
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    OTHERS,
    OWN,
    ROWS,
    SESSIONS,
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
from tests.kernels.aggregate.test_close import GROUPS, PREDICATES, STEPS, chosen

LENGTHS = st.integers(1, 6)
OVERLAPPING = st.builds(
    lambda slide, times, origin: Sliding(slide * times, slide, origin),
    LENGTHS,
    st.integers(1, 4),
    st.none() | st.integers(-25, -20),
)
ARGUMENTS = {column(n): t for n, t in TYPES.items()}


def pieces_of(plan):
    return [
        (p.kind, None if p.argument < 0 else plan.arguments[p.argument], p.function, p.parameters) for p in plan.pieces
    ]


def read(plan, alone, selection, tables):
    """Panes that serve a selection, as a plan of one query takes them."""
    found = []
    for table in tables:
        served = [selection in pattern for pattern in patterns_of(table) or [(0,)]]
        bits = table.column("_bits").to_pylist() if "_bits" in table.column_names else [0] * len(table)
        mine = table.filter(pa.array([served[b] for b in bits], pa.bool_()))
        names = [n for n in mine.column_names if n[0] == "g" or n in ("_key", "_pane")]
        columns = {n: mine.column(n) for n in names}
        for number, piece in enumerate(pieces_of(alone)):
            stored = pieces_of(plan).index(piece)
            parts = [n for n in mine.column_names if n.startswith(f"p{stored}_")]
            columns |= {n.replace(f"p{stored}_", f"p{number}_"): mine.column(n) for n in parts}
        found.append(pa.table(columns))
    return pa.concat_tables(found).combine_chunks()


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(OVERLAPPING, min_size=1, max_size=3),
    st.lists(SLIDING | SESSIONS, max_size=1),
    GROUPS,
    chosen(BOUNDED + OTHERS),
    batches(),
    PREDICATES,
    STEPS,
    STEPS,
    st.integers(-15, 15) | st.just(NEVER),
)
def test_windows_put_together_from_panes_are_those_of_the_reference(
    windows, others, groups, aggregates, parts, predicates, settled, merged, first
):
    queries = {n: Aggregation(w, items(*groups), aggregates, None) for n, w in enumerate([*windows, *others])}
    selections = {n: n % len(predicates) for n in queries}
    paned = range(len(windows))
    (plan,) = plan_aggregates(queries, ARGUMENTS, selections=selections, own=OWN)
    windowed = [next(q for q in plan.queries if q.query == n) for n in paned]
    state, progress, out = [], NEVER, NEVER
    files, closings, counts = [], [], dict.fromkeys(paned, 0)
    for step, (rows, reached) in enumerate([*parts, ([], FOREVER)]):
        if rows:
            state.append(partials(plan, table_of([i.expression for i in items(*groups)], plan, rows, predicates)))
        if state and reached > progress:
            edge = pane_edge(windowed, reached)
            files.append(closed_panes(plan, state, windowed, out, edge))
            closings.append((step, progress, reached))
            for n, count in zip(
                paned, window_counts(plan, state, [(q, first) for q in windowed], progress, reached), strict=True
            ):
                counts[n] += count
            out = edge
        progress = reached
        if step in merged and state:
            state = [merge(plan, state)]
        if step in settled:
            kept = expire(plan, state, progress)
            state = [] if kept is None else [kept]
    for n in paned:
        alone = plan_of_panes(n, queries[n], ARGUMENTS, OWN)
        panes = read(plan, alone, selections[n], files) if files else None
        table = None if panes is None else assembled(alone, panes, closings, first)
        wanted = [r for r in expected(queries[n], parts, predicates[selections[n]]) if r[1] >= first]
        found = [] if table is None else listed(table.drop(["_step"]), alone, n)
        assert_same(found, wanted)
        assert counts[n] == len(wanted)
        event("some results" if wanted else "no result")
        for step, after, until in closings:
            mine = assembled(alone, panes, [(step, after, until)], first)
            assert_same(
                [] if mine is None else listed(mine.drop(["_step"]), alone, n),
                [r for r in wanted if after < r[2] <= until],
            )
            if table is not None:
                shown = zip(table.column("window_end").to_pylist(), table.column("_step").to_pylist(), strict=True)
                assert all((after < end <= until) == (of == step) for end, of in shown)


@given(st.lists(OVERLAPPING, min_size=1, max_size=3), batches())
@settings(max_examples=examples(50), deadline=None)
def test_panes_are_no_more_than_results_where_a_slide_is_a_pane(windows, parts):
    rows = [row for part, _ in parts for row in part]
    queries = {n: Aggregation(w, items("k"), (BOUNDED[0],), None) for n, w in enumerate(windows)}
    (plan,) = plan_aggregates(queries, ARGUMENTS, own=OWN)
    if not rows or plan.width not in {w.slide for w in windows if w.origin is None}:
        return
    state = partials(plan, table_of([column("k")], plan, rows, ((),)))
    panes = closed_panes(plan, [state], plan.queries, NEVER, FOREVER)
    assert len(panes) <= sum(window_counts(plan, [state], [(q, NEVER) for q in plan.queries], NEVER, FOREVER))


@given(
    st.lists(
        st.tuples(st.lists(ROWS, min_size=1, max_size=8), st.sampled_from((1, 2, 3, 6, 12))), min_size=1, max_size=4
    )
)
def test_panes_of_several_widths_tell_which_row_is_the_first_and_the_last(parts):
    """Rows are kept in panes of other widths after a change of pane sets, or as they are."""
    calls = tuple(Aggregate(f, column(c), parameters=p) for f in ("first", "last") for c in "xs" for p in ((), (1,)))
    asked = Aggregation(Sliding(12, 12), items("k"), calls, None)
    (plan,) = plan_aggregates({0: asked}, ARGUMENTS)
    groups = [item.expression for item in items("k")]

    def table(rows):
        return table_of(groups, plan, rows, ((),))

    state = [partials(replace(plan, width=width, base=0), table(rows)) for rows, width in parts]
    whole = partials(plan, table([row for rows, _ in parts for row in rows]))
    (found,), (wanted,) = (close(plan, tables, NEVER, FOREVER) for tables in (state, [whole]))
    assert Counter(map(repr, listed(found.table, plan, 0))) == Counter(map(repr, listed(wanted.table, plan, 0)))


@given(
    st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=8), st.sampled_from((1, 2, 3, 6))), min_size=1, max_size=4),
    st.integers(6, 9),
    st.integers(-30, 40),
)
def test_panes_of_several_widths_tell_sessions_apart(parts, gap, progress):
    """As in panes of one width; also of what is kept at some progress, of sessions that are still open."""
    asked = Aggregation(Session(gap), items("k"), (Aggregate("count", None), Aggregate("max", column("x"))), None)
    (plan,) = plan_aggregates({0: asked}, ARGUMENTS)
    groups = [item.expression for item in items("k")]

    def table(rows):
        return table_of(groups, plan, rows, ((),))

    state = [partials(replace(plan, width=width, base=0), table(rows)) for rows, width in parts]
    whole = partials(plan, table([row for rows, _ in parts for row in rows]))
    for left, other in ((state, [whole]), (expire(plan, state, progress), expire(plan, [whole], progress))):
        found, wanted = (
            close(plan, t if isinstance(t, list) else [] if t is None else [t], NEVER, FOREVER) for t in (left, other)
        )
        assert [Counter(map(repr, listed(f.table, plan, 0))) for f in found] == [
            Counter(map(repr, listed(f.table, plan, 0))) for f in wanted
        ]
