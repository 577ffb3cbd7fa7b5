"""Windows that count rows through the kernels: every step answers what progress has closed, and keeps no more than can still count."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Rows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import STRATEGIES
from penstock.reference import admit, results
from penstock.reference.order import followers
from tests.graphs import runnable_graph
from tests.oracle import bag, duckdb_results
from tests.routes import any_routes
from tests.simulation import KeyHash, colliding, plain, simulate, spread
from tests.workloads import Workload

counting = runnable_graph(("rows", "mixed"))


@settings(max_examples=150)
@given(counting, st.integers(0, 10**6), st.integers(1, 3), st.sampled_from((spread, plain, colliding)))
def test_every_step_answers_what_progress_has_closed(
    workload: Workload, seed: int, tasks: int, key_hash: KeyHash
) -> None:
    done = simulate(workload, tasks=tasks, key_hash=key_hash, routes=any_routes(seed), merge_every=seed % 3)
    (query,) = workload.parsed
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    waits_for = {role.stream for role in query.roles if isinstance(role.window, Rows)}
    for number in range(len(workload.batches)):
        arrived = {name: [row for step in own[: number + 1] for row in step.accepted] for name, own in steps.items()}
        before = {name: own[number - 1].progress if number else NEVER for name, own in steps.items()}
        closed = min((before[name] for name in waits_for), default=FOREVER)
        wanted = [row for row in results(query, workload.streams, arrived) if row[-1] < closed]
        assert bag(done.results[0][: done.steps[number].answered[0]]) == bag(wanted), query.sql
    assert bag(done.results[0]) == bag(results(query, workload.streams, workload.accepted)), query.sql
    assert bag(done.results[0]) == bag(duckdb_results(query, workload.streams, workload.accepted)), query.sql


@settings(max_examples=100)
@given(counting, st.integers(1, 2))
def test_a_row_goes_when_so_many_others_have_come_after_it(workload: Workload, tasks: int) -> None:
    done = simulate(workload, tasks=tasks, merge_every=1)
    (query,) = workload.parsed
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    for table in done.network.tables:
        if not table.counted or any(entry.counts is None for entry in table.entries):
            continue
        stream = workload.streams[table.stream]
        for number in range(1, len(workload.batches)):
            # What was stored before the step was written anew by it, by what the step before that had closed.
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
            kept = [run for run in done.steps[number].runs if run.table == table.name and run.level]
            assert sum(run.rows for run in kept) <= sum(inside), query.sql
    if done.network.closes:
        assert all(run.expired(done.progress) for run in done.steps[-1].runs)


@settings(max_examples=100)
@given(runnable_graph(("rows", "mixed", "range"), 3), st.data(), st.integers(1, 2), st.sampled_from(STRATEGIES))
def test_windows_count_the_rows_since_their_query_began(
    workload: Workload, data: st.DataObject, tasks: int, strategy: str
) -> None:
    end = len(workload.batches)
    starts = data.draw(st.lists(st.integers(0, end - 1), min_size=3, max_size=3))
    done = simulate(
        workload, tasks=tasks, merge_every=2, strategy=strategy, lifetimes=[(start, end) for start in starts]
    )
    steps = {name: admit(stream, workload.arrivals(name)) for name, stream in workload.streams.items()}
    for found, query, start in zip(done.results, workload.parsed, starts, strict=True):
        seen = {name: [row for step in own[start:] for row in step.accepted] for name, own in steps.items()}
        assert bag(found) == bag(results(query, workload.streams, seen)), query.sql
