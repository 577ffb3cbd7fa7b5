"""What a step is to do follows from the state and the event alone; no Spark, no files."""

from dataclasses import fields, replace

from penstock.model.time import FOREVER
from penstock.state.manifest import Progress
from penstock.step.events import Batch, TakeOver, Tick
from penstock.step.plan import plan_step
from tests.step.scene import state_of, step, work

JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k"
SUM = "SELECT k, sum(v) AS s FROM a [TUMBLING 10] GROUP BY k"
ROWS = [("a", 1, 7, 10), ("b", 2, 7, 20), ("a", 3, 8, 30)]


def results(record):
    return {query: sum(file.count(query) for file in record.results) for query in (1, 2)}


def test_a_batch_is_joined_and_stored():
    state, record = step(state_of(JOIN), Batch(0, "x"), ROWS)
    assert results(record)[1] == 1
    assert (record.step, record.batch, record.identity) == (0, 0, "x")
    assert {name: p.value for name, p in record.progress.items()} == {"a": 3, "b": 2}
    assert sum(run.rows for run in state.manifest.runs.values()) == 3
    assert state.store.files().keys() >= {*state.manifest.runs, *(file.name for file in record.results)}


def test_the_same_state_and_event_give_the_same_plan_and_change_neither():
    state, _ = step(state_of(JOIN, SUM), Batch(0, "x"), ROWS)
    before, files = state.manifest, state.store.files()
    for event in (Batch(1, "y"), Tick(before.progress), Tick(before.progress, final=True), TakeOver(frozenset({1}))):
        assert plan_step(state, event, 2.0) == plan_step(state, event, 2.0)
    assert state.manifest is before
    assert state.store.files() == files


def test_a_window_is_closed_by_the_progress_of_the_step_before():
    state = state_of(SUM)
    state, record = step(state, Batch(0, "x"), [("a", 3, 7, 10), ("a", 12, 7, 1)])
    assert results(record)[1] == 0
    state, record = step(state, Batch(1, "y"), [])
    assert results(record)[1] == 1


def test_a_tick_with_nothing_to_do_is_no_step():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    assert step(state, Tick(state.manifest.progress))[1] is None


def test_a_tick_has_work_for_tasks_only_if_something_waits_for_its_progress():
    ahead = {"a": Progress(50, 3), "b": Progress(50, 2)}
    for query, busy in ((JOIN, False), (SUM, True)):
        state, _ = step(state_of(query), Batch(0, "x"), ROWS)
        plan = plan_step(state, Tick(ahead), 2.0)
        assert (plan.task is not None) == busy
        _, record = step(state, Tick(ahead), now=2.0)
        assert {name: p.value for name, p in record.progress.items()} == {"a": 50, "b": 50}
        assert record.batch is None


def test_runs_out_of_reach_go_with_the_step_after():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    state, record = step(state, Tick({"a": Progress(50, 3), "b": Progress(50, 2)}))
    assert record.runs_removed == ()
    after, record = step(state, Tick(state.manifest.progress))
    assert after.manifest.runs == {}
    assert set(record.runs_removed) == set(state.manifest.runs)


def test_rounds_of_dropping_may_be_rare():
    state, _ = step(replace(state_of(JOIN), expire_every=3), Batch(0, "x"), ROWS)
    state, _ = step(state, Batch(1, "y"), [("a", 60, 1, 1), ("b", 60, 2, 2)])
    state, record = step(state, Batch(2, "z"), [])
    assert record.runs_removed == ()
    _, record = step(state, Batch(3, "z"), [])
    assert record.runs_removed


def test_all_ends_with_the_last_tick():
    state, _ = step(state_of(JOIN, SUM), Batch(0, "x"), ROWS)
    state, record = step(state, Tick(state.manifest.progress, final=True))
    assert record.final
    assert results(record)[2] == 2
    assert {p.value for p in record.progress.values()} == {FOREVER}
    assert state.manifest.runs == {}


def test_a_query_takes_over_what_is_held_and_the_rows_are_written_anew():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    wider = state_of(JOIN, JOIN.replace("RANGE 5", "RANGE 3"))
    state = replace(state, network=wider.network, routes=wider.routes)
    after, record = step(state, TakeOver(frozenset({2})))
    assert results(record) == {1: 0, 2: 1}
    assert set(record.runs_removed) == set(state.manifest.runs)
    assert sum(run.rows for run in after.manifest.runs.values()) == 3
    assert after.manifest.progress == state.manifest.progress


def test_late_rows_are_judged_by_the_step_before_and_by_nothing_of_their_own_step():
    state, record = step(state_of(JOIN), Batch(0, "x"), [("a", 9, 1, 1), ("a", 1, 1, 1)])
    assert record.counters.stream("a").late == 0
    _, record = step(state, Batch(1, "y"), [("a", 8, 1, 1), ("a", 9, 1, 1)])
    assert record.counters.stream("a").late == 1


def test_a_plan_is_all_that_workers_need():
    """The task is data: the work is the same however often it is done."""
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    plan = plan_step(state, Batch(1, "y"), 2.0)
    counts = [
        [{f.name for f in fields(plan.task)}, r.counters.queries, r.counters.streams]
        for _ in range(2)
        for r in work(state, plan, ROWS)
    ]
    assert counts[: state.tasks] == counts[state.tasks :]
