"""Windows that count rows through the kernels: every step answers what progress has closed, and state is minimal."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.ranks import _numbers
from penstock.model import Column, Rows, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import STRATEGIES
from penstock.reference import admit, results
from penstock.reference.order import followers
from tests.driven import KEY_HASHES, KeyHash, driven
from tests.effort import examples
from tests.graphs import runnable_graph
from tests.oracle import bag, duckdb_results
from tests.routes import any_routes
from tests.workloads import Workload

counting = runnable_graph(("rows", "mixed"))


@settings(max_examples=examples(150))
@given(counting, st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(KEY_HASHES))
def test_every_step_answers_what_progress_has_closed(
    workload: Workload, seed: int, tasks: int, key_hash: KeyHash | None
) -> None:
    done = driven(workload, tasks=tasks, key_hash=key_hash, routes=any_routes(seed), merge_every=seed % 3, end=True)
    (query,) = workload.parsed
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    waits_for = {role.stream for role in query.roles if isinstance(role.window, Rows)}
    for number in range(len(workload.batches)):
        arrived = {name: [row for step in own[: number + 1] for row in step.accepted] for name, own in steps.items()}
        before = {name: own[number - 1].progress if number else NEVER for name, own in steps.items()}
        closed = min((before[name] for name in waits_for), default=FOREVER)
        wanted = [row for row in results(query, workload.streams, arrived) if row[-1] < closed]
        assert bag(done.answer(0, number)) == bag(wanted), query.sql
    assert bag(done.answer(0)) == bag(results(query, workload.streams, workload.accepted)), query.sql
    assert bag(done.answer(0)) == bag(duckdb_results(query, workload.streams, workload.accepted)), query.sql


@settings(max_examples=examples(100))
@given(counting, st.integers(1, 2))
def test_a_row_goes_when_so_many_others_have_come_after_it(workload: Workload, tasks: int) -> None:
    done = driven(workload, tasks=tasks, merge_every=1, end=True)
    (query,) = workload.parsed
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    for table in done.network.tables:
        if not table.counted or any(entry.counts is None for entry in table.entries):
            continue
        stream = workload.streams[table.stream]
        for number in range(1, len(workload.batches)):
            # The step rewrote the rows stored before it, by what the previous step had closed.
            old = [row for step in steps[table.stream][:number] for row in step.accepted]
            reached = {name: own[number - 2].progress if number > 1 else NEVER for name, own in steps.items()}
            least = min(reached[role.stream] for role in query.roles)
            inside = [False] * len(old)
            for entry in table.counted:
                later = followers(stream, entry.counts, old)
                inside = [
                    one or sum(time <= least for time in times) < entry.counts.count
                    for one, times in zip(inside, later, strict=True)
                ]
            kept = [run for run in done.steps[number].manifest.runs_of(table.name) if run.level]
            assert sum(run.rows for run in kept) <= sum(inside), query.sql
    assert not done.manifest.runs


@settings(max_examples=examples(100))
@given(runnable_graph(("rows", "mixed", "range"), 3), st.data(), st.integers(1, 2), st.sampled_from(STRATEGIES))
def test_windows_count_the_rows_since_their_query_began(
    workload: Workload, data: st.DataObject, tasks: int, strategy: str
) -> None:
    end = len(workload.batches)
    starts = data.draw(st.lists(st.integers(0, end - 1), min_size=3, max_size=3))
    lifetimes = [(start, end) for start in starts]
    done = driven(workload, tasks=tasks, merge_every=2, strategy=strategy, lifetimes=lifetimes, end=True)
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    for number, (query, start) in enumerate(zip(workload.parsed, starts, strict=True)):
        seen = {name: [row for step in own[start:] for row in step.accepted] for name, own in steps.items()}
        assert bag(done.answer(number)) == bag(results(query, workload.streams, seen)), query.sql


def test_of_two_zeros_the_negative_one_comes_first_and_other_numbers_are_not_split() -> None:
    first, second = _numbers(pa.array([-1.5, -0.0, 0.0, -math.inf, math.nan, None]))
    assert list(np.lexsort((second, first))) == [5, 3, 0, 1, 2, 4]
    assert second.tolist() == [0, -1, 0, 0, 0, 0]


def answer(count: int, *steps: dict[str, list[tuple[int, int]]]) -> list[tuple[object, ...]]:
    """Times of a and b where a has v = 1; each step gives (time, v) of rows by stream."""
    columns = tuple(Column(name, "bigint") for name in ("at", "k", "v"))
    streams = {name: Stream(name, columns, "at", 0) for name in "ab"}
    sql = f"SELECT x.at, y.at FROM a [ROWS {count}] AS x, b [RANGE 10] AS y WHERE x.k = y.k AND x.v = 1"
    rows = [{n: [{"at": at, "k": 1, "v": v} for at, v in own] for n, own in step.items()} for step in steps]
    return driven(Workload(streams, (sql,), tuple(rows)), merge_every=1, end=True).answer(0)


def test_rows_that_a_predicate_leaves_out_are_counted() -> None:
    rows = {"a": [(1, 1), (2, 0), (3, 0)], "b": [(4, 0)]}
    assert answer(2, rows) == []
    assert answer(3, rows) == [(1, 4)]


def test_a_row_stays_as_long_as_a_slow_stream_may_still_find_it() -> None:
    pushed_out_at_5 = [{"a": [(0, 1)], "b": [(0, 0)]}, {"a": [(5, 0)]}, {"a": [(6, 0)]}, {"a": [(7, 0)]}]
    assert answer(1, *pushed_out_at_5, {"b": [(3, 0)]}, {"b": [(5, 0)]}) == [(0, 0), (0, 3)]
