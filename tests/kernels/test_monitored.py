"""What joins give out, step by step through the kernels: never behind the progress they have stated, which never falls."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.query import Rows
from penstock.model.time import FOREVER
from penstock.planner.network import output_progress
from penstock.reference import reachable
from tests.effort import examples
from tests.monitors import check_bounded, check_progress
from tests.simulation import simulate
from tests.workloads import workload


@settings(max_examples=examples(40), deadline=None)
@given(workload(late=True), st.integers(1, 3), st.integers(0, 2))
def test_results_come_before_the_progress_that_covers_them_and_state_ends_with_the_streams(load, tasks, merge_every):
    timed = replace(load, queries=tuple(q.replace("SELECT ", "SELECT result_time, ", 1) for q in load.queries))
    done = simulate(timed, tasks=tasks, merge_every=merge_every)
    for number, query in enumerate(timed.parsed):
        if any(isinstance(role.window, Rows) for role in query.roles):
            continue
        steps, before = [], 0
        for step in done.steps:
            found = [row[0] for row in done.results[number][before : step.answered[number]]]
            steps.append((found, output_progress(query, step.progress)))
            before = step.answered[number]
        check_progress(steps)
    ended = dict.fromkeys(timed.streams, FOREVER)
    assert not any(map(len, reachable(timed.parsed, timed.streams, timed.accepted, ended).values()))
    held = [sum(run.rows for run in step.runs) for step in done.steps]
    classes = {name: max(1, len(done.network.tables_of(name))) for name in timed.streams}
    arrived = [
        sum(classes[name] * s.streams[name].get("accepted", 0) for s in done.steps[: n + 1] for name in s.streams)
        for n in range(len(done.steps))
    ]
    check_bounded(held, arrived.__getitem__, ended=False)
    assert all(run.expired(ended) for run in done.runs.values() if not done.network.closes)
