from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Band, Column, Query, Rows, Stream, Tumbling
from penstock.model.time import EARLIEST, FOREVER, LATEST, NEVER
from penstock.planner.reached import output_progress as planned_progress
from penstock.reference import admit, combinations, output_progress, project, reachable, result_time, results, serves
from tests.effort import examples
from tests.oracle import bag
from tests.reference.test_join import equijoin, stream
from tests.workloads import workload

FAR = 10**15  # further than any window, band or time in a workload


def judged(delay, *batches):
    """For each step: accepted, late and bad times, and progress after it."""
    a = Stream("a", (Column("ts", "bigint"),), "ts", delay)
    steps = admit(a, [[{"ts": t} for t in batch] for batch in batches])
    return [(*([r["ts"] for r in rows] for rows in (s.accepted, s.late, s.bad)), s.progress) for s in steps]


def test_progress_is_unknown_until_a_row_comes():
    assert judged(0, [], [3]) == [([], [], [], NEVER), ([3], [], [], 3)]


def test_a_row_equal_to_progress_is_not_late_and_one_below_is():
    assert judged(5, [20], [15, 14]) == [([20], [], [], 15), ([15], [14], [], 15)]


def test_what_a_step_brings_moves_progress_only_after_the_step():
    assert judged(0, [10, 1, 10, 2], [9]) == [([10, 1, 10, 2], [], [], 10), ([], [9], [], 10)]


def test_progress_never_falls():
    assert [step[-1] for step in judged(5, [20], [16], [], [25])] == [15, 15, 15, 20]


def test_rows_without_a_usable_time_are_bad_and_move_nothing():
    bad = [None, LATEST + 1, EARLIEST - 1]
    assert judged(0, bad, [LATEST, EARLIEST]) == [([], [], bad, NEVER), ([LATEST, EARLIEST], [], [], LATEST)]


@settings(max_examples=examples(100), deadline=None)
@given(workload(late=True))
def test_every_row_is_accepted_late_or_bad(work):
    for name, declared in work.streams.items():
        for batch, step in zip(work.arrivals(name), admit(declared, work.arrivals(name)), strict=True):
            judged_rows = [*step.accepted, *step.late, *step.bad]
            assert sorted(map(id, judged_rows)) == sorted(map(id, batch))


@settings(max_examples=examples(100), deadline=None)
@given(workload())
def test_rows_inside_the_bound_are_all_accepted(work):
    for name, declared in work.streams.items():
        assert not any(step.late or step.bad for step in admit(declared, work.arrivals(name)))


@given(st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=5), st.integers(0, 10))
def test_progress_is_the_newest_time_less_the_delay(batches, delay):
    newest = NEVER
    for batch, step in zip(batches, judged(delay, *batches), strict=True):
        newest = max([newest, *batch])
        assert step[-1] == (newest - delay if newest > NEVER else NEVER)


def kept(query, ts, **progress):
    """Whether a row of stream a with that time is still needed."""
    streams = {name: stream(name) for name in progress}
    return reachable([query], streams, {"a": [{"ts": ts, "attr": 1}]}, progress)["a"] != []


def test_a_row_goes_when_the_other_streams_progress_has_passed_its_window():
    query = equijoin([("a", 10), ("b", 3)])
    assert kept(query, 5, a=FOREVER, b=14)
    assert not kept(query, 5, a=NEVER, b=15)


def test_a_row_stays_as_long_as_one_other_stream_is_behind():
    query = equijoin([("a", 10), ("b", 3), ("c", 3)])
    assert kept(query, 5, a=NEVER, b=99, c=14)
    assert not kept(query, 5, a=NEVER, b=15, c=15)


def test_in_a_self_join_a_stream_waits_for_itself():
    query = equijoin([("a", 10), ("a", 3)])
    assert kept(query, 5, a=14)
    assert not kept(query, 5, a=15)


def test_a_query_over_one_stream_keeps_nothing():
    assert not kept(equijoin([("a", 10)]), 5, a=NEVER)


def test_range_all_keeps_rows_until_the_other_stream_ends():
    query = equijoin([("a", None), ("b", 3)])
    assert kept(query, 5, a=NEVER, b=FOREVER - 1)
    assert not kept(query, 5, a=NEVER, b=FOREVER)


def kept_times(query, stamps, **progress):
    """The times of the rows of stream a that are still needed."""
    streams = {name: stream(name) for name in progress}
    rows = {"a": [{"ts": t, "attr": 1} for t in stamps]}
    return [row["ts"] for row in reachable([query], streams, rows, progress)["a"]]


def test_a_row_in_a_window_of_rows_goes_when_enough_others_are_older_than_any_result_to_come():
    query = equijoin([("a", Rows(2)), ("b", 3)])
    assert kept_times(query, [1, 2, 3, 9], a=9, b=2) == [1, 2, 3, 9]
    assert kept_times(query, [1, 2, 3, 9], a=9, b=3) == [2, 3, 9]
    assert kept_times(query, [1, 2, 3, 9], a=9, b=9) == [3, 9]
    assert kept_times(query, [1, 2, 3, 9], a=2, b=99) == [1, 2, 3, 9]


def test_a_band_lets_rows_of_a_window_of_rows_go_by_time_too():
    query = equijoin([("a", Rows(9)), ("b", 3)], bands=[Band(earlier=0, later=1, upper=4)])
    assert kept_times(query, [1, 5], a=0, b=5) == [1, 5]
    assert kept_times(query, [1, 5], a=0, b=6) == [5]


def test_rows_that_serve_nobody_push_others_out():
    streams = {name: stream(name) for name in "ab"}
    rows = {"a": [{"ts": 1, "attr": 1}, {"ts": 2, "attr": None}]}
    query = equijoin([("a", Rows(1)), ("b", 3)])
    assert reachable([query], streams, rows, {"a": 2, "b": 2}) == {"a": []}


def test_a_row_in_a_tumbling_window_goes_at_the_end_of_its_piece_of_time():
    query = equijoin([("a", Tumbling(10, 3)), ("b", Tumbling(10, 3))])
    assert kept(query, 5, a=NEVER, b=12)
    assert not kept(query, 5, a=NEVER, b=13)
    assert kept(query, 12, a=NEVER, b=12)
    assert not kept(query, 12, a=NEVER, b=13)


def test_a_row_with_a_null_key_serves_nobody():
    streams = {name: stream(name) for name in "ab"}
    rows = {"a": [{"ts": 5, "attr": None}]}
    assert reachable([equijoin([("a", 10), ("b", 3)])], streams, rows, {"a": NEVER, "b": NEVER}) == {"a": []}


def test_output_progress_is_that_of_the_slowest_stream():
    streams = {name: stream(name) for name in "abc"}
    assert output_progress(equijoin([("a", 10), ("b", 3)]), streams, {"a": 7, "b": 4, "c": NEVER}) == 4


def test_output_progress_of_a_tumbling_join_is_where_a_piece_of_time_begins():
    streams = {name: stream(name) for name in "ab"}
    query = equijoin([("a", Tumbling(10, 3)), ("b", Tumbling(10, 3))])
    for reached, promised in ((12, 3), (13, 13), (2, -7), (NEVER, NEVER), (FOREVER, FOREVER)):
        assert output_progress(query, streams, {"a": reached, "b": FOREVER}) == promised
        assert planned_progress(query, {"a": reached, "b": FOREVER}) == promised


@settings(max_examples=examples(150), deadline=None)
@given(st.booleans().flatmap(lambda late: workload(late=late)))
def test_dropping_rows_out_of_reach_changes_no_result_and_output_progress_is_kept(work):
    steps = {name: admit(declared, work.arrivals(name)) for name, declared in work.streams.items()}
    state = {name: [] for name in work.streams}
    history = {name: [] for name in work.streams}
    promised = dict.fromkeys(work.queries, NEVER)
    found = {text: [] for text in work.queries}
    for n in range(len(work.batches)):
        delta = {name: steps[name][n].accepted for name in work.streams}
        progress = {name: steps[name][n].progress for name in work.streams}
        new = {id(row) for rows in delta.values() for row in rows}
        held = {name: state[name] + delta[name] for name in work.streams}
        history = {name: history[name] + delta[name] for name in work.streams}
        for text, query in dict(zip(work.queries, work.parsed, strict=True)).items():
            for combination in combinations(query, work.streams, held):
                if not new.isdisjoint(map(id, combination)):
                    found[text].append(project(query, work.streams, combination))
                    assert result_time(query, work.streams, combination) >= promised[text]
            promised[text] = output_progress(query, work.streams, progress)
        state = reachable(work.parsed, work.streams, held, progress)
        assert state == reachable(work.parsed, work.streams, history, progress)
    for text, query in zip(work.queries, work.parsed, strict=True):
        assert bag(found[text]) == bag(results(query, work.streams, work.accepted))


@settings(max_examples=examples(150), deadline=None)
@given(workload())
def test_a_row_in_reach_could_meet_a_row_that_is_yet_to_come(work):
    progress = {n: admit(declared, work.arrivals(n))[-1].progress for n, declared in work.streams.items()}
    for query in work.parsed:
        latest = latest_times(query)
        for name, rows in reachable([query], work.streams, work.accepted, progress).items():
            for row in rows:
                roles = [i for i, role in enumerate(query.roles) if role.stream == name]
                served = [i for i in roles if serves(query, work.streams, i, row)]
                assert any(could_meet(query, work.streams, i, row, latest=latest[i], progress=progress) for i in served)


def could_meet(query, streams, role, row, *, latest, progress):
    """Whether the row, in that role, joins by time with rows as late as they may be, one of them yet to come."""
    at = row[streams[query.roles[role].stream].event_time]
    members = [row if j == role else {"at": at + latest[j]} for j in range(len(query.roles))]
    bare = Query("", query.roles, (), query.bands, (), (), ())
    by_role = {f"only{j}": [member] for j, member in enumerate(members)}
    apart = tuple(replace(role, stream=f"only{j}") for j, role in enumerate(query.roles))
    named = {f"only{j}": replace(streams[role.stream], name=f"only{j}") for j, role in enumerate(query.roles)}
    joins = combinations(replace(bare, roles=apart), named, by_role) == [tuple(members)]
    yet_to_come = [
        j for j, member in enumerate(members) if j != role and member["at"] >= progress[query.roles[j].stream]
    ]
    return joins and bool(yet_to_come)


def latest_times(query):
    """How much later than role i role j can be at most, by pulling times down until every condition holds."""
    roles = range(len(query.roles))
    conditions = [(b.earlier, b.later, b.upper) for b in query.bands]
    for i, role in enumerate(query.roles):
        if role.window is not None and role.window.length is not None:
            conditions += [(i, j, role.window.length - 1) for j in roles if j != i]
    latest = {}
    for i in roles:
        times = {j: 0 if j == i else FAR for j in roles}
        while any(times[later] > times[earlier] + upper for earlier, later, upper in conditions):
            for earlier, later, upper in conditions:
                times[later] = min(times[later], times[earlier] + upper)
        latest[i] = times
    return latest
