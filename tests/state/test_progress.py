"""What the engine remembers of progress says exactly what the reference says, however rows are spread over tasks."""

import json
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns.verdict import ACCEPTED, PUNCTUATION, saw
from penstock.kernels.groups import group_bounds
from penstock.model import Column, Punctuation, Range, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.reference import admit
from penstock.reference import group_progress as reference_progress
from penstock.state import progress as module
from penstock.state.manifest import Progress
from penstock.state.progress import Seen, declare, follow_delay, group_progress, move, together
from tests.punctuated import BY_PATTERN, grammatical

NOTHING = Progress(NEVER, NEVER)
BY_ROWS = Stream("a", (Column("ts", "bigint"), Column("n", "bigint")), "ts", None, sequence="n", delay_rows=3)


def logged_as(now):
    """Progress as the log has it: groups that were ahead of the stream before are those of earlier entries."""
    return msgspec.json.encode(now.logged())


def text(punctuation):
    """The pattern as Spark writes it."""
    fields = {}
    for column, pattern in punctuation.patterns:
        if isinstance(pattern, Range):
            fields |= {f"{column}_from": pattern.lower, f"{column}_to": pattern.upper}
        else:
            fields[column] = pattern
    return json.dumps({k: v for k, v in fields.items() if v is not None}, separators=(",", ":"))


def seen_by_tasks(stream, times, sequences, said, tasks):
    """A step's input, with rows and punctuations distributed to tasks, through the code of the worker and JSON."""
    parts = []
    marks = [(text(p), FOREVER if p.until is None else p.until) for p in said]
    for task in range(tasks):
        own, marked = list(range(task, len(times), tasks)), marks[task::tasks]
        verdict = np.array([ACCEPTED] * len(own) + [PUNCTUATION] * len(marked))
        if not len(verdict):
            continue
        moments = pa.array([times[i] for i in own] + [until for _, until in marked], pa.int64())
        places = pa.array([sequences[i] for i in own] + [None] * len(marked), pa.int64())
        patterns = pa.array([None] * len(own) + [pattern for pattern, _ in marked], pa.string())
        found = saw(stream, verdict, moments, places, patterns)
        parts.append(msgspec.json.decode(json.dumps(found), type=Seen))
    return together(parts, stream.delay_rows)


@given(grammatical(groups=True), st.integers(1, 3))
def test_progress_and_groups_are_those_of_the_reference(stream, tasks):
    now = NOTHING
    for rows, said, step in zip(
        stream.batches, stream.said, admit(BY_PATTERN, stream.batches, stream.said), strict=True
    ):
        times = [r["ts"] for r in rows]
        before, now = now, move(BY_PATTERN, now, seen_by_tasks(BY_PATTERN, times, times, said, tasks))
        assert now.value == step.progress
        groups = [{"k": k, "v": v} for k in (None, 0, 1, 2, 3) for v in (None, 0, 3, 5)]
        wanted = [reference_progress(step, values) for values in groups]
        assert [group_progress(BY_PATTERN, now, values) for values in groups] == wanted
        columns = {c: pa.array([values[c] for values in groups], pa.int64()) for c in ("k", "v")}
        assert group_bounds(BY_PATTERN, now, columns, len(groups)).tolist() == wanted
        # A consumer that groups by one column learns only from punctuations that name no other.
        keys = {"k": pa.array([0, 1, 2, 3])}
        assert group_bounds(BY_PATTERN, now, keys, 4).tolist() == [reference_progress(step, {"k": k}) for k in range(4)]
        # What the log says of a step is what it has changed; with what was known before it is all.
        logged = msgspec.json.decode(logged_as(now), type=Progress)
        assert logged.after(before) == now.after(before) == msgspec.structs.replace(now, grown=())
        now = logged.after(before)


@given(
    st.lists(st.integers(0, 30), max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_a_delay_in_rows_is_that_of_the_reference(times, cuts, tasks, n):
    stream = Stream("a", BY_ROWS.columns, "ts", None, sequence="n", delay_rows=n)
    edges = [0, *(min(c, len(times)) for c in sorted(cuts)), len(times)]
    batches = [[{"ts": times[i], "n": i} for i in range(a, b)] for a, b in pairwise(edges)]
    now = NOTHING
    for batch, step in zip(batches, admit(stream, batches), strict=True):
        rows = batch[::-1]
        now = move(stream, now, seen_by_tasks(stream, [r["ts"] for r in rows], [r["n"] for r in rows], (), tasks))
        assert now.value == step.progress
        assert all(after < n for after, _ in now.stairs)


def test_too_many_stairs_only_delay_progress(monkeypatch):
    monkeypatch.setattr(module, "MOST_STAIRS", 4)
    stream = Stream("a", BY_ROWS.columns, "ts", None, sequence="n", delay_rows=100)
    now, exact = NOTHING, []
    for number in range(300):
        exact.append(number)
        now = move(stream, now, seen_by_tasks(stream, [number], [number], (), 1))
        assert len(now.stairs) <= 4
        assert now.value <= max(exact[:-100], default=NEVER)
    assert now.value > 100


def test_every_group_is_remembered_until_progress_has_passed_it():
    said = [Punctuation(10 + number, (("k", number),)) for number in range(5000)]
    now = move(BY_PATTERN, NOTHING, seen_by_tasks(BY_PATTERN, [], [], said, 2))
    assert len(now.closed) == len(now.grown) == 5000
    now = now.after(None)
    again = [Punctuation(20, (("k", 1),)), Punctuation(9, (("k", 2),)), Punctuation(7, (("k", 6000),))]
    now = move(BY_PATTERN, now, seen_by_tasks(BY_PATTERN, [], [], again, 1))
    assert now.grown == (('{"k":1}', 20), ('{"k":6000}', 7))  # the log says no more than that
    assert len(logged_as(now)) < 500
    now = move(BY_PATTERN, now.after(now), seen_by_tasks(BY_PATTERN, [], [], [Punctuation(5000)], 1))
    assert (now.value, now.kind, len(now.closed), now.grown) == (5000, "punctuation", 9, ())


def test_the_kind_names_the_bound_that_moved_progress_last():
    both = Stream("a", (Column("ts", "bigint"), Column("p", "bigint")), "ts", 5, punctuation="p")
    kinds = []
    now = NOTHING
    for times, said in (([20], ()), ([], [Punctuation(17)]), ([21], ()), ([30], ())):
        now = move(both, now, seen_by_tasks(both, times, times, said, 1))
        kinds.append((now.value, now.kind))
    assert kinds == [(15, "delay"), (17, "punctuation"), (17, "punctuation"), (25, "delay")]


SECONDS = 1_000_000
BEATING = Stream("a", (Column("ts", "timestamp"),), "ts", None, heartbeat=5 * SECONDS)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=3)), max_size=12),
    st.none() | st.integers(0, 3),
)
def test_a_heartbeat_never_passes_a_row_that_keeps_to_it(steps, delay):
    """Steps are (seconds since the step before, how many seconds behind the clock its rows are)."""
    stream = Stream("a", BEATING.columns, "ts", None if delay is None else delay * SECONDS, heartbeat=5 * SECONDS)
    clock, now, values = 1_000 * SECONDS, NOTHING, []
    for seconds, behind in steps:
        clock += seconds * SECONDS
        times = [clock - late * SECONDS for late in behind]
        if delay is None:
            assert all(time >= now.value for time in times)
        if times:
            now = move(stream, now, Seen(newest=max(times)), clock)
            assert now.value >= clock - 5 * SECONDS
        values.append(now.value)
    assert values == sorted(values)


def test_a_stream_read_after_a_pause_has_no_heartbeat_until_it_has_caught_up():
    old = move(BEATING, NOTHING, Seen(newest=100 * SECONDS), 106 * SECONDS)
    assert old.value == NEVER
    now = move(BEATING, old, Seen(newest=101 * SECONDS), 106 * SECONDS)
    assert (now.value, now.kind) == (101 * SECONDS, "heartbeat")
    assert move(BEATING, old, Seen(newest=101 * SECONDS)).value == NEVER  # only present input is read


@given(st.integers(-5, 5), st.integers(-5, 5), st.dictionaries(st.sampled_from("xyz"), st.integers(-5, 5)))
def test_what_is_declared_never_takes_progress_back(value, declared, closed):
    groups = tuple((f'{{"k":"{k}"}}', until) for k, until in closed.items() if until > value)
    old = Progress(value, 7, closed=groups)
    now = declare(old, declared)
    assert now.value == max(value, declared)
    assert now.newest == 7
    assert now.closed == tuple(pair for pair in groups if pair[1] > now.value)
    assert (now == old) == (declared <= value)


def test_a_longer_delay_holds_progress_until_the_newest_time_has_passed_it():
    short, long = (Stream("a", (Column("ts", "bigint"),), "ts", delay) for delay in (2, 5))
    now = move(short, NOTHING, Seen(10))
    assert now.value == 8
    assert follow_delay(long, now) == now
    found = [now := move(long, now, Seen(newest)) for newest in (11, 12, 13, 14)]
    assert [p.value for p in found] == [8, 8, 8, 9]


def test_a_shorter_delay_moves_progress_at_once_and_only_once():
    long, short = (Stream("a", (Column("ts", "bigint"),), "ts", delay) for delay in (5, 2))
    now = move(long, NOTHING, Seen(10))
    after = follow_delay(short, now)
    assert (now.value, after.value) == (5, 8)
    assert follow_delay(short, after) == after
    assert follow_delay(short, NOTHING).after(NOTHING) == NOTHING.after(None)


def test_a_delay_in_rows_that_is_altered_is_never_ahead_of_the_rows():
    fewer = replace(BY_ROWS, delay_rows=1)
    now = move(BY_ROWS, NOTHING, Seen(4, rows=4, last=((1, 2), (2, 3), (3, 4)), earlier=1))
    assert (now.value, follow_delay(fewer, now).value) == (1, 3)
    more = move(replace(BY_ROWS, delay_rows=5), now, Seen(9, rows=4, last=tuple((n, n + 1) for n in range(4, 8))))
    assert more.value == 3  # that of the row before the last five
    by_time = move(replace(BY_ROWS, delay_rows=None, delay=100), now, Seen(9, rows=4))
    assert (by_time.value, by_time.stairs) == (1, ())  # the rows that came since were not counted
