"""The order of durable writes: a record's new files are durable before it, and its removed ones are deleted after."""

from dataclasses import dataclass, field, replace

import pytest

from penstock.errors import StateError
from penstock.state.manifest import Manifest, ManifestLog, SideFile
from penstock.step.commit import Committed
from penstock.step.events import Batch, Tick
from penstock.step.phases import begun
from penstock.storage.memory import MemoryStore
from tests.step.scene import state_of, step
from tests.step.test_plan import JOIN, ROWS


@dataclass(eq=False)
class Noting(MemoryStore):
    """A store that notes what is done to it, in order."""

    done: list = field(default_factory=list)

    def sync(self, names):
        self.done.append(("sync", *names))

    def put_if_absent(self, name, data):
        self.done.append(("put", name))
        return super().put_if_absent(name, data)

    def delete(self, name):
        self.done.append(("delete", name))
        super().delete(name)

    def touch(self, name):
        self.done.append(("touch", name))


class Log:
    """A source that has one file of its own for each batch."""

    def __init__(self, store):
        self.store = store

    def make_durable(self, batch):
        self.store.sync([f"log/{batch}"])


class Asking:
    """A sink that looks at what is committed while it gets rows."""

    def __init__(self, failing=False):
        self.committed, self.failing, self.seen = None, failing, []

    def deliver(self, manifest):
        if self.failing:
            raise KeyboardInterrupt
        assert self.committed.manifest is manifest
        self.seen.append((manifest.step, ManifestLog(self.committed.store).load().step))
        return {"sink": manifest.step}


def committed_on(store, sinks):
    sinks.committed = Committed(store, Log(store), sinks, Manifest())
    return sinks.committed


def record_with_everything(store):
    state = replace(state_of(JOIN), store=store)
    after, record = step(state, Batch(0, "x"), ROWS)
    side = SideFile("sides/0-a.parquet", "a", "late", 0, 1, 1)
    return after, replace(record, sides=(side,), runs_removed=("runs/old",), results_removed=("results/old",))


def test_a_step_is_written_in_this_order():
    store, sinks = Noting(), Asking()
    _, record = record_with_everything(store)
    store.done.clear()
    committed_on(store, sinks).commit(record)
    assert store.done == [
        ("sync", "log/0"), ("sync", "runs/.", "results/.", "sides/."), ("put", "manifest/000000000000.json"),
        ("delete", "runs/old"), ("touch", "results/old"),
    ]  # fmt: skip
    assert sinks.seen == [(0, 0)]


def test_a_step_without_rows_syncs_only_the_folders_of_what_it_wrote():
    store = Noting()
    state, record = record_with_everything(store)
    committed = committed_on(store, Asking())
    committed.commit(record)
    _, tick = step(state, Tick(state.manifest.progress, final=True))
    store.done.clear()
    committed.commit(replace(tick, final=False))
    assert [what for what in store.done if what[0] != "delete"] == [("sync",), ("put", "manifest/000000000001.json")]


def test_the_last_step_leaves_a_snapshot():
    store, sinks = Noting(), Asking()
    committed = committed_on(store, sinks)
    committed.commit(replace(begun(state_of(JOIN), 1.0), final=True))
    assert store.done[-1] == ("put", "manifest/snapshot-000000000000.json")


def test_of_two_that_commit_the_same_step_one_is_refused_and_delivers_nothing():
    store, sinks, late = Noting(), Asking(), Asking()
    record = begun(state_of(JOIN), 1.0)
    first, second = committed_on(store, sinks), committed_on(store, late)
    first.commit(record)
    with pytest.raises(StateError, match="already committed by another engine"):
        second.commit(record)
    assert (late.seen, second.manifest.step) == ([], -1)


def test_a_step_whose_delivery_is_broken_off_is_committed():
    store, sinks = Noting(), Asking(failing=True)
    committed = committed_on(store, sinks)
    with pytest.raises(KeyboardInterrupt):
        committed.commit(begun(state_of(JOIN), 1.0))
    assert committed.manifest.step == ManifestLog(store).load().step == 0
    assert committed.cursors == {}
