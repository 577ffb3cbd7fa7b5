"""Aggregates over many steps of a task, with queries added and dropped: new plans read what older ones stored."""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import close
from penstock.kernels.aggregate.forms import as_partials, expire_forms, keep_rows
from penstock.kernels.aggregate.keep import needed_until
from penstock.kernels.aggregate.stored import from_rows, received, served, stored_type, to_rows
from penstock.kernels.delta import build_delta
from penstock.model import Landmark, PerRow, Session, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.panes import PaneSet, pane_width
from penstock.reference import admit, aggregate_results, holds
from penstock.sql import parse_query
from penstock.state.run import RunEntry, checksum, decode_run, encode_run
from tests.aggregates import ROWS, STREAM, cases, same_bag
from tests.effort import examples


@dataclass
class Task:
    """One task of an engine whose queries change between steps: runs by table, results by query."""

    stream: object
    runs: dict = field(default_factory=dict)  # table -> [(bytes, until)]
    found: dict = field(default_factory=dict)
    closed: int = NEVER
    progress: int = NEVER
    newest: int = NEVER

    def step(self, standing, rows, *, settled=False, until=None, arrange=None):
        """Rows come, and what the progress before them closes comes out; `until` is that of a step without rows.

        `arrange` gives the pane sets of a plan.
        """
        streams = {"s": self.stream}
        network = build_network(standing, streams)
        if arrange is not None:
            network = replace(network, aggregates=tuple(
                a if a.plan.buffered else replace(a, plan=a.plan.arranged(arrange(a.plan))) for a in network.aggregates
            ))  # fmt: skip
        now = self.progress if until is None else until
        for aggregate in network.aggregates:
            runs = self.runs.setdefault(aggregate.name, [])
            runs[:] = [run for run in runs if self.closed < run[1]]
            held = [from_rows(aggregate, decode(data)) for data, _ in runs]
            added = []
            if rows:
                delta = build_delta(network.tables[aggregate.home], *self._arrays(network, aggregate, standing, rows))
                if len(delta.rows):
                    new = received(aggregate, aggregate.sources[0], served(aggregate, delta.rows))
                    added = keep_rows(aggregate.plan, new).tables
            whole = [as_partials(aggregate.plan, table) for table in [*held, *added]]
            for closed in close(aggregate.plan, whole, self.closed, now, newest=self.newest):
                self._show(aggregate, closed, standing)
            if settled and runs:
                kept = expire_forms(aggregate.plan, held, now)
                runs[:] = [self._run(aggregate, table) for table in kept if len(table)]
            runs += [self._run(aggregate, table) for table in added]
        known = {aggregate.name for aggregate in network.aggregates}
        self.runs = {name: own for name, own in self.runs.items() if name in known}
        self.closed = now

    def _run(self, aggregate, table):
        rows = to_rows(aggregate, table)
        return encode_run(rows, aggregate.name), needed_until(aggregate.plan, int(rows.time.max()))

    def _arrays(self, network, aggregate, standing, rows):
        table = network.tables[aggregate.home]
        columns = {
            c.name: pa.array([row[c.name] for row in rows], stored_type(c.type))
            for c in self.stream.columns
            if c.name in table.needed
        }
        texts = {d.name: d.parts for d in network.derived}
        asked = {p.parts: p for q in standing for p in q.query.predicates}
        truths = {
            name: np.array([holds(asked[texts[name]], lambda ref, row=row: row[ref.column]) for row in rows])
            for name, _ in table.truths
        }
        named = [part[-2 if len(part) > 1 else 0].column for part in table.key]
        keys = [hash(tuple(row[c] for c in named)) % 2 for row in rows]  # few, so that groups collide
        times = np.array([row["t"] for row in rows], dtype=np.int64)
        return np.array(keys, dtype=np.int64), np.ones(len(rows), dtype=np.bool_), times, columns, truths

    def _show(self, aggregate, closed, standing):
        first = next(m.first for m in aggregate.members if m.id == closed.query)
        query = next(q.query for q in standing if q.id == closed.query)
        names = {"result_time": "window_end"}
        for row in closed.table.to_pylist():
            if first == NEVER or row["window_start"] >= first:
                values = tuple(row[names.get(r, r)] for item in query.items for r in [item.expression.refs[0].column])
                self.found.setdefault(closed.query, []).append(values)


def decode(data):
    entry = RunEntry("", "", 0, 0, 0, data.size, 0, 0, 0, 0, 0, (), 0, checksum(data))
    return decode_run(data, entry)


def expected(case, stream, steps, since, first):
    """The reference's answer without windows of time and sessions that a query did not see whole since it began.

    They are those of the whole stream; windows that count rows, and landmarks, begin with the query.
    """
    streams = {"s": stream}
    query = parse_query(case.sql, streams)
    whole = isinstance(case.window, Sliding | Session)
    rows = {"s": [row for step in steps[0 if whole else since :] for row in step.accepted]}
    found = aggregate_results(query, streams, rows)
    if first == NEVER or not isinstance(case.window, Sliding | Session | PerRow):
        return found
    known = first + case.window.gap - 1 if isinstance(case.window, Session) else first
    return [row for row in found if row[0] >= known]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(cases(), st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=5),
    st.lists(ROWS, min_size=1, max_size=5),
    st.integers(0, 8),
    st.sets(st.integers(0, 5)),
)
def test_queries_that_come_and_go_have_the_answers_they_would_have_alone(queries, batches, delay, settled):
    stream = replace(STREAM, delay=delay)
    steps = admit(stream, batches)
    task = Task(stream)
    began = {}
    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        standing = []
        for n, (case, first, end) in enumerate(queries):
            if first <= number < end:
                began.setdefault(n, (number, task.newest + 1 if task.newest > NEVER else NEVER))
                since, seen = began[n]
                complete = () if seen == NEVER else (("s", seen),)
                query = parse_query(case.sql, {"s": stream})
                alike = [m for m in began if began[m] == began[n] and queries[m][0].predicate == case.predicate]
                standing.append(
                    StandingQuery(n + 1, f"q{n}", query, share=alike[0] + 1, since=since, complete_from=complete)
                )
        task.step(standing, step.accepted, settled=number in settled)
        task.progress = step.progress
        task.newest = max([task.newest, *(row["t"] for row in batch)])
    standing = [q for q in standing if queries[q.id - 1][2] > len(batches) - 1]
    task.step(standing, [], until=task.progress, settled=True)
    task.step(standing, [], until=FOREVER)
    for query in standing:
        case, _, _ = queries[query.id - 1]
        since, first = began[query.id - 1]
        answer = expected(case, stream, steps, since, first)
        found = task.found.get(query.id, [])
        if isinstance(case.window, Landmark):  # progress may have closed windows behind the last row
            last = max((row[1] for row in answer), default=NEVER)
            found = [row for row in found if row[1] <= last]
        assert same_bag(found, answer), case.sql
        event("came later" if since else "there from the start")
        event("some results" if answer else "no result")


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(cases(), min_size=1, max_size=4),
    st.lists(ROWS, min_size=1, max_size=5),
    st.integers(0, 8),
    st.sets(st.integers(0, 5)),
    st.data(),
)
def test_plans_that_change_between_steps_change_no_answer(queries, batches, delay, settled, data):
    stream = replace(STREAM, delay=delay)
    steps = admit(stream, batches)
    task = Task(stream)
    standing = [
        StandingQuery(n + 1, f"q{n}", parse_query(case.sql, {"s": stream}),
                      share=1 + next(m for m, other in enumerate(queries) if other.predicate == case.predicate))
        for n, case in enumerate(queries)
    ]  # fmt: skip

    def arrange(plan):
        """Any queries together, in any form."""
        places = data.draw(st.lists(st.integers(0, 2), min_size=len(plan.queries), max_size=len(plan.queries)))
        windows = {q.query: q.window for q in plan.queries}
        sets = []
        for place in sorted(set(places)):
            members = tuple(q.query for q, own in zip(plan.queries, places, strict=True) if own == place)
            form = data.draw(st.sampled_from(("partials", "rows", "either")))
            sets.append(PaneSet(members, *pane_width([windows[n] for n in members]), form))
        event(f"{len(sets)} sets")
        return sets

    for number, (batch, step) in enumerate(zip(batches, steps, strict=True)):
        task.step(standing, step.accepted, settled=number in settled, arrange=arrange)
        task.progress = step.progress
        task.newest = max([task.newest, *(row["t"] for row in batch)])
    task.step(standing, [], until=task.progress, settled=True, arrange=arrange)
    task.step(standing, [], until=FOREVER, arrange=arrange)
    for query, case in zip(standing, queries, strict=True):
        answer = expected(case, stream, steps, 0, NEVER)
        found = task.found.get(query.id, [])
        if isinstance(case.window, Landmark):
            last = max((row[1] for row in answer), default=NEVER)
            found = [row for row in found if row[1] <= last]
        assert same_bag(found, answer), case.sql


@pytest.mark.parametrize(("pause", "wanted"), [(2, []), (4, []), (5, [(53, 104, 24)]), (20, [(68, 105, 17)])])
def test_a_session_that_may_have_begun_before_its_query_is_never_shown(pause, wanted):
    def row(t):
        return {"t": t, "k": "a", "g": 0, "v": 1, "x": 0.5}

    def standing(number, window, **options):
        query = parse_query(f"SELECT window_start, window_end, count(*) FROM s [{window}]", {"s": STREAM})
        return StandingQuery(number, f"q{number}", query, share=number, **options)

    task = Task(STREAM)
    early = standing(1, "TUMBLING 10")
    task.step([early], [row(t) for t in range(0, 49, 2)])
    task.progress, task.newest = 48, 48
    later = standing(2, "SESSION 5", since=1, complete_from=(("s", 49),))
    task.step([early, later], [row(t) for t in range(48 + pause, 101, 2)])
    task.progress = task.newest = 100
    task.step([early, later], [], until=FOREVER)
    assert task.found.get(2, []) == wanted
