"""Open windows: after each round the newest revision of every window is the reference's answer over the rows so far."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import gather, merge, partials
from penstock.kernels.aggregate.early import CAME, marked, open_windows
from penstock.kernels.aggregate.keep import expire
from penstock.model import Aggregation
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.reference.aggregate import answers
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    LANDMARKS,
    OTHERS,
    OWN,
    SESSIONS,
    SLIDING,
    STREAM,
    TYPES,
    assert_same,
    batches,
    column,
    items,
    listed,
    plain,
    query_of,
    table_of,
)
from tests.kernels.aggregate.test_close import GROUPS, PREDICATES, STEPS, chosen


def as_by_now(aggregation, rows, predicates, progress):
    found = answers(query_of(aggregation, predicates), {"a": STREAM}, {"a": rows}, None, OWN)
    return [(a.group, a.start, a.end, a.values) for a in found if a.end > progress]


@settings(max_examples=examples(150), deadline=None)
@given(
    SLIDING,
    st.lists(SLIDING | SESSIONS, max_size=1),
    GROUPS,
    chosen(BOUNDED + OTHERS),
    batches(),
    PREDICATES,
    STEPS,
    STEPS,
    st.sampled_from((None, "buffered")),
)
def test_the_newest_revision_is_what_has_come_so_far(
    window, others, groups, aggregates, parts, predicates, rounds, merged, wanted
):
    queries = {n: Aggregation(w, items(*groups), aggregates, None) for n, w in enumerate([window, *others])}
    selections = {n: n % len(predicates) for n in queries}
    types = {column(n): t for n, t in TYPES.items()}
    (plan,) = plan_aggregates(queries, types, selections=selections, own=OWN, wanted=wanted)
    state, came, shown, last = [], [], {}, -1
    for step, (rows, progress) in enumerate(parts):
        came += rows
        if rows:
            made = partials(plan, table_of([i.expression for i in items(*groups)], plan, rows, predicates))
            state.append(marked(made, step))
        gathered = gather(plan, state)
        if gathered is not None and step in rounds:
            found = open_windows(gathered, plan.queries[0], progress, last)
            assert found.early
            revised = listed(found.table, plan, 0)
            # What has not changed is not shown again.
            if not merged:
                touched = {n for row in came_since(parts, last, step) for n in window.wids(row["ts"])}
                assert all(window_of(window, end) in touched for _, _, end, _ in revised)
            shown |= {(plain(group), end): (group, start, end, values) for group, start, end, values in revised}
            event("some are open" if revised else "none is open")
            now = [row for row in shown.values() if row[2] > progress]
            assert_same(now, as_by_now(queries[0], came, predicates[0], progress))
            last = step
        if step in merged and state:
            state = [marked(merge(plan, [table.drop([CAME]) for table in state]), step)]
    assert gather(plan, state) is None or not len(
        open_windows(gather(plan, state), plan.queries[0], FOREVER, NEVER).table
    )


def came_since(parts, last, step):
    return [row for rows, _ in parts[last + 1 : step + 1] for row in rows]


def window_of(window, end):
    return (end - window.start) // window.slide - 1


@settings(max_examples=examples(150), deadline=None)
@given(LANDMARKS, GROUPS, chosen(BOUNDED), batches(), STEPS, STEPS)
def test_of_a_landmark_each_group_shows_its_open_windows_up_to_the_first_that_holds_all_its_rows(
    window, groups, aggregates, parts, rounds, settled
):
    aggregation = Aggregation(window, items(*groups), aggregates, None)
    (plan,) = plan_aggregates({0: aggregation}, {column(n): t for n, t in TYPES.items()}, own=OWN)
    state, came, last = [], [], -1
    for step, (rows, progress) in enumerate(parts):
        came += rows
        if rows:
            state.append(
                marked(partials(plan, table_of([i.expression for i in items(*groups)], plan, rows, ((),))), step)
            )
        gathered = gather(plan, state)
        if gathered is not None and step in rounds:
            revised = listed(open_windows(gathered, plan.queries[0], progress, last).table, plan, 0)
            everything = answers(query_of(aggregation), {"a": STREAM}, {"a": came}, {"a": 200}, OWN)
            open_now = [(a.group, a.start, a.end, a.values) for a in everything if a.end > progress]
            shown = {(plain(group), end) for group, _, end, _ in revised}
            assert_same(revised, [row for row in open_now if (plain(row[0]), row[2]) in shown])
            newest = {}
            for row in came_since(parts, last, step):
                group = plain(tuple(row[g] + 0.0 if isinstance(row[g], float) else row[g] for g in groups))
                if window.wids(row["ts"]):
                    newest[group] = max(newest.get(group, NEVER), row["ts"])
            for group, time in newest.items():
                first_open = max(window.closed(progress) if progress > NEVER else NEVER, window.wids(time)[0])
                assert (group, window.extent(first_open)[1]) in shown
            assert {group for group, _ in shown} <= set(newest) or settled
            last = step
        if step in settled and state:
            kept = expire(plan, [table.drop([CAME]) for table in state], progress)
            state = [] if kept is None else [marked(kept, step)]
