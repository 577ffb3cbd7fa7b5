"""The state of window aggregates at each step: only what open windows need by definition, nothing after the end."""

from dataclasses import replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.model.time import FOREVER
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.reference import admit
from penstock.sql import parse_query
from tests.aggregates import ROWS, STREAM, cases, needed
from tests.effort import examples
from tests.kernels.aggregate.test_stored import Task, decode
from tests.monitors import check_bounded


@settings(max_examples=examples(30), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(cases(), min_size=1, max_size=4), st.lists(ROWS, min_size=1, max_size=6), st.integers(0, 8))
def test_what_a_step_has_merged_is_what_open_windows_need(queries, batches, delay):
    stream = replace(STREAM, delay=delay)
    task = Task(stream)
    standing = [StandingQuery(n + 1, f"q{n}", parse_query(case.sql, {"s": stream})) for n, case in enumerate(queries)]
    aggregates = build_network(standing, {"s": stream}).aggregates
    known = {a.name: [queries[member.id - 1] for member in a.members] for a in aggregates}
    held = {name: [] for name in known}
    bounds = {name: [] for name in known}

    def look(came, fresh, progress):
        for name, own in known.items():
            held[name].append(sum(len(decode(data)) for data, _ in task.runs.get(name, ())))
            bounds[name].append(needed(own, came, progress) + len(fresh))

    came = []
    for step in admit(stream, batches):
        task.step(standing, step.accepted, settled=True)
        look(came, step.accepted, task.closed)
        came += step.accepted
        task.progress = step.progress
        task.newest = max([task.newest, *(row["t"] for row in came)])
    task.step(standing, [], settled=True)
    look(came, [], task.closed)
    task.step(standing, [], until=FOREVER, settled=True)
    look(came, [], FOREVER)
    for name in known:
        check_bounded(held[name], bounds[name].__getitem__, ended=False)
        runs = [until for _, until in task.runs.get(name, ())]
        assert not held[name][-1] or all(until >= FOREVER for until in runs)
