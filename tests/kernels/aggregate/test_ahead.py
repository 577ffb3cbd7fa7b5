"""Groups that a punctuation has ended: their windows come out at once, each once, and nothing of them is held."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.ahead import Ahead, close_groups, expire_groups
from penstock.kernels.aggregate.close import partials
from penstock.kernels.aggregate.forms import as_partials, keep_rows
from penstock.model import Aggregate, Aggregation, Column, Landmark, Punctuation, Range, Session, Sliding, SortKey, Top
from penstock.model.expression import AGGREGATE_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.planner.reached import Closing, output_progress
from penstock.planner.window_aggregate import AggregateMember, AggregateSource, WindowAggregate
from penstock.reference import admit, group_progress
from penstock.reference.aggregate import answers
from penstock.state.manifest import Progress
from penstock.state.progress import Seen, move
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    LANDMARKS,
    ROWS,
    SESSIONS,
    SLIDING,
    STREAM,
    TYPES,
    assert_same,
    column,
    expected,
    hypotheses,
    items,
    listed,
    plain,
    query_of,
    table_of,
)  # fmt: skip
from tests.monitors import check_progress

PUNCTUATED = replace(
    STREAM,
    delay=None,
    patterns=(Column("ts", "bigint"), Column("k", "bigint"), Column("s", "string"), Column("i_from", "int"),
     Column("i_to", "int")),
)  # fmt: skip
CALLS = (
    Aggregate("count", None),
    Aggregate("sum", column("x")),
    Aggregate("max", column("d")),
    Aggregate("last", column("s")),
)
GROUPS = st.sampled_from((("k",), ("k",), ("s", "k"), ("i",), ()))
VALUES = {"k": st.integers(0, 3), "s": st.sampled_from(("", "a", "ä"))}


@st.composite
def patterns(draw):
    """Patterns over one or two columns, a range among them."""
    found = [(name, draw(values)) for name, values in VALUES.items() if draw(st.booleans())]
    if draw(st.integers(0, 3)) == 0:
        low = draw(st.integers(-5, 4))
        found.append(("i", Range(low, draw(st.none() | st.integers(low + 1, 6)))))
    return tuple(found) or (("k", 0),)


@st.composite
def grammatical(draw):
    """Steps of rows, and the punctuations that hold from the end of each on: no later row breaks one."""
    rows = draw(st.lists(ROWS, max_size=20))
    edges = [0, *sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4))), len(rows)]
    steps = []
    for start, end in pairwise(edges):
        said = []
        for _ in range(draw(st.integers(0, 3))):
            named = draw(st.one_of(st.just(()), patterns(), patterns()))
            least = min((r["ts"] for r in rows[end:] if Punctuation(None, named).covers(r)), default=None)
            if least is None:
                until = draw(st.sampled_from((None, 30, 60))) if named else 45
            else:
                until = least - draw(st.sampled_from((0, 0, 3)))
            said.append(Punctuation(until, named))
        steps.append((rows[start:end], said))
    return steps


def text(punctuation):
    fields = {}
    for name, pattern in punctuation.patterns:
        if isinstance(pattern, Range):
            fields |= {f"{name}_from": pattern.lower, f"{name}_to": pattern.upper}
        else:
            fields[name] = pattern
    return json.dumps(fields), FOREVER if punctuation.until is None else punctuation.until


def aggregate_of(windows, groups, top=None, wanted=None, calls=CALLS):
    queries = {n: Aggregation(w, items(*groups), calls, None, top=top) for n, w in enumerate(windows)}
    plans = plan_aggregates(queries, {column(n): t for n, t in TYPES.items()}, wanted=wanted)
    for plan in plans:
        source = AggregateSource(0, "a", groups, tuple(e.refs[0].column for e in plan.arguments))
        shown = tuple(AggregateMember(q.query, "", n) for n, q in enumerate(plan.queries))
        yield WindowAggregate(0, "a", (source,), plan, shown, tuple(TYPES[g] for g in groups))


def run(aggregate, steps, settled=()):
    """(results by query of each step, rows held after it); the last step ends the stream."""
    streams = {"a": PUNCTUATED}
    group = [column(name) for name in aggregate.sources[0].groups]
    newest = max((r["ts"] for rows, _ in steps for r in rows), default=NEVER)
    state, old, done, given_out, held = [], Progress(NEVER, NEVER), {}, [], []
    for number, (rows, said) in enumerate([*steps, ([], None)]):
        if rows:
            kept = keep_rows(aggregate.plan, table_of(group, aggregate.plan, rows, ((),)))
            state += [as_partials(aggregate.plan, table) for table in kept.tables]
        if said is None:
            new = Progress(FOREVER, old.newest, "final")
        else:
            new = move(PUNCTUATED, old, Seen(said=tuple(map(text, said))))
        progress = {"a": new.value, Closing("a"): old.value}
        ahead = Ahead(done, {"a": new.closed})
        found = {}
        due = aggregate.closes(*aggregate.closed(progress)) or ahead.moves(aggregate)
        for closed in close_groups(aggregate, streams, state, progress, ahead, newest) if due else ():
            assert closed.query not in found
            found[closed.query] = listed(closed.table, aggregate.plan, closed.query)
        given_out.append(found)
        if number in settled or said is None:
            kept = expire_groups(aggregate, streams, state, progress, ahead, aggregate.closed(progress)[1])
            state = [] if kept is None else [kept]
        held.append(list(state))
        old, done = new, json_again({"a": new.closed})
    return given_out, held


def json_again(closed):
    """As the manifest gives it back."""
    return {name: tuple(map(tuple, own)) for name, own in json.loads(json.dumps(closed)).items()}


@settings(max_examples=examples(200), deadline=None)
@given(
    hypotheses(SLIDING, SESSIONS, LANDMARKS),
    GROUPS,
    grammatical(),
    st.sets(st.integers(0, 4)),
    st.sampled_from((None, "buffered")),
)
def test_each_group_is_closed_as_far_as_it_has_come_and_each_window_comes_once(windows, groups, steps, settled, wanted):
    judged = admit(PUNCTUATED, [rows for rows, _ in steps], [said for _, said in steps])
    everything = [row for rows, _ in steps for row in rows]
    for aggregate in aggregate_of(windows, groups, wanted=wanted):
        given_out, held = run(aggregate, steps, settled)
        for query in aggregate.plan.queries:
            aggregation = Aggregation(query.window, items(*groups), CALLS, None)
            so_far = []
            for number, step in enumerate(judged):
                so_far += given_out[number].get(query.query, [])
                due = answers(query_of(aggregation), {"a": STREAM}, {"a": everything}, None)
                reach = [
                    step.progress
                    if isinstance(query.window, Landmark)
                    else group_progress(step, dict(zip(groups, answer.group, strict=True)))
                    for answer in due
                ]
                wanted_now = [a for a, bound in zip(due, reach, strict=True) if a.end <= bound]
                if not isinstance(query.window, Landmark):
                    assert_same(so_far, [(a.group, a.start, a.end, a.values) for a in wanted_now])
            progress = [step.progress for step in judged]
            stated = [output_progress(query_of(aggregation), {Closing("a"): value}) for value in progress]
            ends = [[end for *_, end, _ in found.get(query.query, [])] for found in given_out]
            check_progress(zip(ends, [*stated, FOREVER], strict=True))
            so_far += given_out[-1].get(query.query, [])
            assert_same(so_far, expected(aggregation, [(r, p) for (r, _), p in zip(steps, progress, strict=True)]))
        landmarks = any(isinstance(q.window, Landmark) for q in aggregate.plan.queries)
        assert landmarks or not held[-1]


@settings(max_examples=examples(100), deadline=None)
@given(hypotheses(SLIDING, SESSIONS), grammatical())
def test_nothing_is_held_of_a_group_without_an_open_window(windows, steps):
    judged = admit(PUNCTUATED, [rows for rows, _ in steps], [said for _, said in steps])
    for aggregate in aggregate_of(windows, ("k",)):
        _, held = run(aggregate, steps, settled=range(len(steps)))
        arrived = []
        for number, (rows, _) in enumerate(steps):
            arrived += rows
            open_groups = set()
            for query in aggregate.plan.queries:
                aggregation = Aggregation(query.window, items("k"), CALLS, None)
                due = answers(query_of(aggregation), {"a": STREAM}, {"a": arrived}, None)
                bounds = [group_progress(judged[number], {"k": a.group[0]}) for a in due]
                open_groups |= {a.group[0] for a, bound in zip(due, bounds, strict=True) if a.end > bound}
            assert {v for table in held[number] for v in table.column("g0").to_pylist()} <= open_groups


def row(ts, k):
    return {**dict.fromkeys(TYPES), "ts": ts, "k": k, "x": 1}


def test_a_group_that_has_ended_is_closed_to_its_last_window_though_the_stream_has_not_moved():
    (aggregate,) = aggregate_of([Sliding(4, 2)], ("k",))
    steps = [([row(3, 1), row(3, 2)], []), ([row(9, 2)], [Punctuation(None, (("k", 1),))]), ([], [Punctuation(5)])]
    given_out, held = run(aggregate, steps, settled=range(3))
    ends = [Counter((plain(g), end) for g, _, end, _ in found.get(0, [])) for found in given_out]
    assert ends == [
        {},
        {((1,), 4): 1, ((1,), 6): 1},
        {((2,), 4): 1},
        {((2,), 6): 1, ((2,), 10): 1, ((2,), 12): 1},
    ]
    assert [[sorted(t.column("g0").to_pylist()) for t in tables] for tables in held] == [
        [[1, 2]],
        [[2, 2]],
        [[2, 2]],
        [],
    ]


def test_only_a_bound_that_is_new_or_has_grown_closes_windows():
    (aggregate,) = aggregate_of([Sliding(4, 4)], ("k",))
    said, more = (('{"k":1}', 5),), (('{"k":1}', 9),)
    assert Ahead({}, {"a": said}).moves(aggregate)
    assert Ahead({"a": said}, {"a": more}).moves(aggregate)
    assert not Ahead({"a": said}, {"a": said}).moves(aggregate)
    assert not Ahead({"a": said}, {}).moves(aggregate)
    (landmark,) = aggregate_of([Landmark(4)], ("k",))
    assert not Ahead({}, {"a": said}).moves(landmark)


def test_a_comparison_of_groups_waits_for_all_of_them():
    (aggregate,) = aggregate_of(
        [Sliding(4, 4)], ("k",), top=Top((SortKey(column("a0", AGGREGATE_ROLE), descending=True),), 1), calls=CALLS[:1]
    )
    steps = [([row(1, 1), row(1, 2), row(2, 2)], [Punctuation(None, (("k", 1),))])]
    given_out, _ = run(aggregate, steps)
    assert [[g for g, *_ in found.get(0, [])] for found in given_out] == [[], [(2,)]]


@pytest.mark.parametrize("window", [Sliding(4, 4), Session(3)])
def test_a_union_closes_a_group_when_all_its_streams_have(window):
    (one,) = aggregate_of([window], ("k",), calls=CALLS[:1])
    source = replace(one.sources[0], table=1, stream="b")
    union = replace(one, sources=(*one.sources, source))
    streams = {"a": PUNCTUATED, "b": replace(PUNCTUATED, name="b")}
    state = [partials(union.plan, table_of([column("k")], union.plan, [row(1, 1), row(1, 2)], ((),)))]
    only_a = Ahead({}, {"a": (('{"k":1}', 50),)})
    both = Ahead({}, {"a": (('{"k":1}', 50),), "b": (('{"k":1}', 20),)})
    progress = {"a": 0, "b": 1}
    for ahead, groups in ((only_a, []), (both, [(1,)])):
        found = close_groups(union, streams, state, progress, ahead, 1)
        assert [g for closed in found for g, *_ in listed(closed.table, union.plan, closed.query)] == groups
