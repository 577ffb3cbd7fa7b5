"""The results of joins, step by step through the kernels: never behind the stated progress, which never falls."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.query import Rows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.reached import output_progress
from penstock.reference import admit, reachable
from tests.driven import driven, without_spark
from tests.effort import examples
from tests.monitors import check_bounded, check_progress
from tests.workloads import workload


@settings(max_examples=examples(40), deadline=None)
@given(workload(late=True).map(without_spark), st.integers(1, 3), st.integers(0, 2))
def test_results_come_before_the_progress_that_covers_them_and_state_ends_with_the_streams(load, tasks, merge_every):
    timed = replace(load, queries=tuple(q.replace("SELECT ", "SELECT result_time, ", 1) for q in load.queries))
    done = driven(timed, tasks=tasks, merge_every=merge_every)
    for number, query in enumerate(timed.parsed):
        if any(isinstance(role.window, Rows) for role in query.roles):
            continue
        steps, before = [], Counter()
        for place, step in enumerate(done.steps):
            found = Counter(row[0] for row in done.answer(number, place))
            steps.append((list((found - before).elements()), output_progress(query, step.progress)))
            before = found
        check_progress(steps)
    ended = dict.fromkeys(timed.streams, FOREVER)
    assert not any(map(len, reachable(timed.parsed, timed.streams, timed.accepted, ended).values()))
    check_held(timed, done)
    done.engine.stop(final=True)
    assert not done.manifest.runs


def check_held(load, done):
    """State is what is reachable by the reference, up to what is stored in runs as they came or were last merged.

    A run holds no row that was out of reach when it was written or merged; and it is gone with the last of them. Where
    windows count rows, all rows of their stream are counted, and the bound is what has come.
    """
    judged = {name: admit(stream, load.arrivals(name)) for name, stream in load.streams.items()}
    counted = any(isinstance(role.window, Rows) for query in load.parsed for role in query.roles)
    stream_of = {table.name: table.stream for table in done.network.tables}
    held, bounds = [], []

    def reach(name, since, until, after):
        """How many rows of a stream that came in these steps are reachable behind step `after`."""
        progress = {n: done.steps[after].progress[n] if after >= 0 else NEVER for n in load.streams}
        came = [row for step in judged[name][since:until] for row in step.accepted]
        if counted:
            return len(came)
        every = {n: [] for n in load.streams} | {name: came}
        return len(reachable(load.parsed, load.streams, every, progress)[name])

    for number, step in enumerate(done.steps):
        for table, level, of in sorted({(run.table, run.level, run.step) for run in step.manifest.runs.values()}):
            span = (0, of) if level else (of, of + 1)
            own = [run.rows for run in step.manifest.runs_of(table) if (run.level, run.step) == (level, of)]
            held.append(sum(own))
            found = reach(stream_of[table], *span, of - 1)
            bounds.append(found if of == number or reach(stream_of[table], *span, number - 1) else 0)
    check_bounded(held, bounds.__getitem__, ended=False)
