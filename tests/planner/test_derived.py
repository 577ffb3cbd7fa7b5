"""Derived streams without Spark: no result is late, and an aggregate over a join equals its two parts."""

from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.model import Column, Landmark, Rows, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.planner.apart import is_joined, take_apart
from penstock.planner.bounds import check_bounded, time_bounds
from penstock.planner.derived import LAST_TICK, derived_stream
from penstock.reference import admit, results
from penstock.reference.aggregate import answers
from penstock.sql import parse_query
from tests.aggregates import ROWS, STREAM, same_bag
from tests.effort import examples
from tests.monitors import check_progress
from tests.workloads import TIME, workload

PAIR = {name: replace(STREAM, name=name) for name in ("p", "q")}


def found_by_step(load, query):
    """What each step finds, by the reference: what is there after it and was not before; and its progress."""
    judged = {name: admit(s, load.arrivals(name)) for name, s in load.streams.items()}
    rows = {name: [] for name in judged}
    before = []
    for number in range(len(load.batches)):
        rows = {name: rows[name] + judged[name][number].accepted for name in rows}
        after = list(results(query, load.streams, rows))
        rest = list(after)
        for row in before:
            rest.remove(row)
        yield rest, {name: steps[number].progress for name, steps in judged.items()}
        before = after


@settings(max_examples=examples(100))
@given(workload(late=True), st.data())
def test_no_result_comes_behind_the_progress_of_its_times(load, data):
    query = data.draw(st.sampled_from(load.parsed))
    roles = [*range(len(query.roles)), None]
    role = data.draw(st.sampled_from(roles))
    text = query.sql.split(" FROM ", 1)
    named = "result_time AS t" if role is None else f"r{role}.{TIME} AS t"
    query = parse_query(f"SELECT {named} FROM {text[1]}", load.streams)
    check_bounded(query, time_bounds(query))
    stream = Stream("j", (Column("t", "bigint"),), "t", None)
    try:
        derived = derived_stream(stream, 1, query)
    except RegistrationError:
        assume(False)
    assert derived.role == role
    steps, reached = [], {}
    for found, progress in found_by_step(load, query):
        steps.append(([row[0] for row in found], derived.progress(reached)))
        reached = progress
    # What a step finds is a later step's delta; what was stated after the step before must hold for it.
    check_progress(_after(steps, derived.progress(reached)))
    event(f"{sum(len(times) for times, _ in steps) > 0}")
    assert derived.progress(dict.fromkeys(load.streams, FOREVER)) == FOREVER


@settings(max_examples=examples(100))
@given(workload(late=True), st.data())
def test_no_result_comes_whose_times_are_all_passed(load, data):
    """However far one stream is ahead of another. By progress alone a result would be complete only later."""
    query = data.draw(st.sampled_from(load.parsed))
    assume(len(query.roles) > 1)
    text = query.sql.split(" FROM ", 1)
    names = [f"t{role}" for role in range(len(query.roles))]
    times = ", ".join(f"r{role}.{TIME} AS {name}" for role, name in enumerate(names))
    query = parse_query(f"SELECT {times}, result_time FROM {text[1]}", load.streams)
    stream = Stream("j", tuple(Column(n, "bigint") for n in (*names, "result_time")), "result_time", None)
    derived, reached = derived_stream(stream, 1, query), {}
    for found, progress in found_by_step(load, query):
        box, whole = derived.box(reached, load.streams), derived.progress(reached)
        for row in found:
            here = dict(zip(names, row, strict=False))
            assert not box or any(here[name] >= time for name, time in box.items())
        counted = any(isinstance(role.window, Rows) for role in query.roles)
        if not counted and whole > NEVER:
            assert min(box.values()) >= whole
            event("one stream is ahead", len(set(box.values())) > 1)
        reached = progress


def _after(steps, last):
    """Each step's times with the progress that holds after it: what was stated at the beginning of the next."""
    stated = [progress for _, progress in steps[1:]] + [last]
    return [(times, progress) for (times, _), progress in zip(steps, stated, strict=True)]


# ------------------------------------------------------------------------------------------ aggregates over joins

CALLS = (
    "count(*)",
    "sum(p.v)",
    "max(q.v)",
    "first(q.k)",
    "collect_list(p.v)",
    "count(DISTINCT q.g)",
    "last(p.g) IGNORE NULLS",
)
LENGTHS = st.integers(1, 9)


@st.composite
def joined(draw):
    """An aggregate over two streams whose windows have common ends, or whose groups are their times."""
    calls = ", ".join(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True)))
    groups = draw(st.sampled_from(((), ("p.k",), ("p.k", "q.g"))))
    if draw(st.integers(0, 4)) == 4:
        windows = [f"RANGE {draw(LENGTHS)}" for _ in "pq"]
        groups = (*groups, "p.t", "q.t")
    else:
        slide, origin = draw(LENGTHS), draw(st.sampled_from(("", "", " ORIGIN 3", " ORIGIN -4")))
        windows = [
            f"RANGE {draw(st.sampled_from(('ALL', draw(LENGTHS), draw(LENGTHS))))} SLIDE {slide}{origin}" for _ in "pq"
        ]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    condition = draw(st.sampled_from(("p.k = q.k", "p.k = q.k AND p.v > 0", "p.g = q.g AND p.v <= q.v")))
    items = ", ".join(["result_time", *groups, calls])
    return f"SELECT {items} FROM p [{windows[0]}], q [{windows[1]}] WHERE {condition}{by}"


def exploded(apart, rows):
    """The rows of the join's results, as many as they have ticks."""
    names = [item.name for item in apart.join.items]
    for result in results(apart.join, PAIR, rows):
        row = dict(zip(names, result, strict=True))
        if apart.ticks is None:
            yield row
        else:
            ticks = apart.ticks.of([row[column] for column, _ in apart.ticks.ranges])
            for tick in ticks:
                yield {**row, "tick": tick - 1, LAST_TICK: ticks[-1] - 1}


@settings(max_examples=examples(200))
@given(joined(), ROWS, ROWS, st.none() | st.integers(-12, 32))
def test_an_aggregate_over_a_join_taken_apart_has_the_same_answers(sql, left, right, progress):
    query = parse_query(sql, PAIR)
    assert is_joined(query)
    rows = {"p": left, "q": right}
    window = query.aggregation.window
    if progress is None and all(isinstance(role.window, Landmark) for role in query.roles):
        # At the end of input the last window is the one that holds all rows, joined or not.
        progress = max(
            (window.extent(window.wids(r["t"])[0])[1] for r in left + right if window.wids(r["t"])), default=0
        )
    reached = None if progress is None else {"p": progress, "q": progress + 3}
    whole = answers(query, PAIR, rows, reached)
    apart = take_apart(query, PAIR, "j")
    above = {"j": list(exploded(apart, rows))}
    stated = None if progress is None else {"j": progress}
    found = answers(apart.aggregate, {"j": apart.stream}, above, stated)
    assert same_bag([(a.end, *a.group, *a.values) for a in found], [(a.end, *a.group, *a.values) for a in whole])
    event("some" if whole else "none")
    assert apart.stream.event_time == "tick"
    assert not is_joined(apart.aggregate)
    assert {c.name for c in apart.stream.columns} >= {item.name for item in apart.join.items}


def test_a_row_counts_at_every_tick_after_its_times_and_within_its_ranges():
    sql = "SELECT count(*) FROM p [RANGE 4 SLIDE 2], q [RANGE 6 SLIDE 2] WHERE p.k = q.k"
    ticks = take_apart(parse_query(sql, PAIR), PAIR, "j").ticks
    assert list(ticks.of((1, 2))) == [4]  # p counts at 2 and 4, q at 4, 6 and 8
    assert list(ticks.of((2, 1))) == [4, 6]
    assert list(ticks.of((-5, -2))) == []
    assert list(ticks.of((0, 5))) == []


def test_the_beginning_of_the_longest_window_is_told_by_the_end():
    sql = "SELECT window_start, count(*) FROM p [RANGE 4 SLIDE 2{0}], q [RANGE {1} SLIDE 2{0}] WHERE p.k = q.k"

    def shown(*words):
        query = take_apart(parse_query(sql.format(*words), PAIR), PAIR, "j").aggregate
        return query.items[0].expression.sql(lambda ref: ref.column)

    assert shown("", "6") == "(window_end - 6L)"
    assert shown(" ORIGIN 5", "3") == "greatest(5L, (window_end - 4L))"
    assert shown("", "ALL") == "CAST(NULL AS BIGINT)"
    assert shown(" ORIGIN 5", "ALL") == "5L"


def test_an_old_time_without_a_bound_is_refused():
    query = parse_query("SELECT p.t AS t, q.t AS u FROM p [RANGE ALL], q [RANGE 3] WHERE p.k = q.k", PAIR)
    columns = (Column("t", "bigint"), Column("u", "bigint"))
    with pytest.raises(RegistrationError, match="nothing bounds how long rows of 'p' count"):
        derived_stream(Stream("j", columns, "t", None), 1, query)
    bounded = derived_stream(Stream("j", columns, "u", None), 1, query)
    assert bounded.progress({"p": 7, "q": 9}) == 5  # a row of p that comes now may meet one of q that is 2 older
    assert bounded.progress({"p": 7}) == NEVER
