"""The phases of a step: whose each field of the task and of the record is, and what they read."""

from dataclasses import fields, replace

from penstock.state.manifest import Entry
from penstock.step.events import Batch, TakeOver, Tick
from penstock.step.phases import PHASES, Done, begun
from penstock.step.plan import plan_step
from penstock.step.task import Task
from tests.step.scene import state_of, step, work
from tests.step.test_plan import JOIN, ROWS, SUM

HEAD = {"step", "batch", "last_batch", "identity", "version", "clock"}  # what a record is begun with
OF_TASKS = {"step", "buckets", "store"}
# Of upkeep, of the optimizer, and of owners.
OTHERS = {"results_removed", "forgotten", "orders", "balance", "epoch", "fences"}


class Hidden:
    """A field that a phase may copy, and must not look at."""

    def __iter__(self):
        raise AssertionError("a phase reads what it does not say")

    __len__ = __bool__ = __getitem__ = __contains__ = __eq__ = __hash__ = keys = items = get = __iter__  # type: ignore[assignment]


def test_every_field_belongs_to_one_phase():
    changes = [name for phase in PHASES for name in phase.changes]
    asks = [name for phase in PHASES for name in phase.asks]
    assert len(set(changes)) == len(changes)
    assert len(set(asks)) == len(asks)
    assert {f.name for f in fields(Entry)} == HEAD | OTHERS | set(changes)
    assert {f.name for f in fields(Task)} == OF_TASKS | set(asks)


def test_a_phase_reads_only_what_those_before_it_have_put_into_the_record():
    known = set(HEAD)
    for phase in PHASES:
        assert set(phase.reads) <= known, phase.name
        known |= set(phase.changes)


def test_phases_change_and_read_what_they_say():
    state, _ = step(state_of(JOIN, SUM), Batch(0, "x"), ROWS)
    for event in (Batch(1, "y"), Tick(state.manifest.progress, final=True), TakeOver(frozenset({1}))):
        plan = plan_step(state, event, 2.0)
        done = Done(state, plan, work(state, plan), 2.0, dict(state.manifest.progress), begun(state, 2.0))
        for phase in PHASES:
            hidden = {f.name: Hidden() for f in fields(Entry) if f.name not in {*phase.reads, *phase.changes, *HEAD}}
            changes = phase.fold(replace(done, record=replace(done.record, **hidden)))
            assert changes.keys() <= set(phase.changes), phase.name
            done = replace(done, record=replace(done.record, **changes))


def test_a_record_is_that_of_the_next_step_and_changes_nothing_by_itself():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    after = state.manifest.apply(begun(state, 2.0))
    assert after.step == state.manifest.step + 1
    assert (after.runs, after.results, after.progress) == (
        state.manifest.runs,
        state.manifest.results,
        state.manifest.progress,
    )
