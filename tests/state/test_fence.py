"""An engine that has lost its lease commits nothing, wherever it was paused."""

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from penstock.errors import StateError
from penstock.state import fence
from penstock.state.fence import fenced
from penstock.state.manifest import Entry, Manifest, ManifestLog
from penstock.storage.lease import LeaseLostError
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectStore
from tests.storage.faulty_objects import FaultyObjects
from tests.storage.test_lease import Clock

memory = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore


class Engine:
    """One that owns the store as soon as it may, and commits steps that say who has made them."""

    def __init__(self, client, clock, name, random=None, **faults):
        self.name = name
        self.objects = FaultyObjects(client, random, **faults)
        self.store = ObjectStore(self.objects, None, clock.times)
        self.log = ManifestLog(self.store)
        self.lock = self.store.owner_lock()
        self.lock.__enter__()
        self.store._leases[""].leave()  # the test says when it is renewed
        self.manifest = fenced(self.log)

    def commit(self):
        record = Entry(step=self.manifest.step + 1, identity=self.name, clock=1.0)
        self.manifest = self.manifest.apply(self.log.append(record))
        self.log.snapshot_if_due(self.manifest)
        return self.manifest.step


def history(client):
    """Who has committed each step that is still there, by the log as it is loaded."""
    log = ManifestLog(ObjectStore(FaultyObjects(client)))
    return log.load(), {step: log.steps.read(step) for step in log.steps.numbers()}


def test_a_new_owner_begins_with_an_empty_step_of_its_epoch():
    client, clock = memory(), Clock()
    first = Engine(client, clock, "first")
    assert (first.manifest.step, first.manifest.epoch, first.manifest.fences, first.manifest.worked) == (0, 1, (0,), -1)
    assert first.commit() == 1
    second = Engine(client, clock, "second")
    assert (second.manifest.step, second.manifest.epoch, second.manifest.fences) == (2, 2, (0, 2))
    assert (second.manifest.worked, second.manifest.identity) == (1, "first")
    with pytest.raises(LeaseLostError):
        first.commit()
    assert second.commit() == 3
    manifest, records = history(client)
    assert manifest == second.manifest
    assert [records[step].epoch for step in range(4)] == [1, 1, 2, 2]
    assert fenced(second.log) == second.manifest  # it has begun already


def test_where_a_lock_ends_with_its_process_no_step_is_added_and_no_record_says_an_epoch():
    store = MemoryStore()
    with store.owner_lock():
        log = ManifestLog(store)
        assert fenced(log) == Manifest()
        log.append(Entry(step=0, identity="x", clock=1.0))
        assert b"epoch" not in store.read(log.steps.name(0))
        assert b"fences" not in store.read(log.steps.name(0))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("steps", [0, 1, 7, 40])
def test_an_engine_that_is_paused_in_its_commit_wakes_to_an_error(when, steps):
    """Others may meanwhile have made so many steps that the records of most are deleted."""
    client, clock = memory(), Clock()
    with patch("penstock.state.manifest.SNAPSHOT_EVERY", 4):
        first = Engine(client, clock, "first")
        for _ in range(3):
            first.commit()
        create, slept, others = first.objects.create, [], []

        def pausing(name, data, writer):
            if when == "after":
                create(name, data, writer)
            if not slept:
                slept.append(name)
                others.append(Engine(client, clock, "second"))
                for _ in range(steps):
                    others[0].commit()
            if when == "before":
                create(name, data, writer)

        first.objects.create = pausing
        with pytest.raises(LeaseLostError, match="nothing of its unfinished step was committed"):
            first.commit()
        with pytest.raises(LeaseLostError):
            first.commit()
        manifest, records = history(client)
        assert manifest == others[0].manifest
        at = others[0].manifest.fences[-1]
        assert records[at].identity == "first"  # the last work before the fence
        assert at in records
        assert manifest.step == 4 + steps + (when == "after")
        assert others[0].commit() == manifest.step + 1


def test_a_record_behind_a_newer_epoch_is_refused():
    client, clock = memory(), Clock()
    first = Engine(client, clock, "first")
    first.commit()
    second = Engine(client, clock, "second")
    forged = replace(Entry(step=second.manifest.step + 1, identity="first", clock=1.0), epoch=1)
    assert second.log.steps.put(forged)
    with pytest.raises(StateError, match=r"000000000003\.json is of epoch 1 behind epoch 2"):
        second.log.load()


def test_an_engine_that_lives_and_renews_nothing_is_fenced_off_although_it_commits_meanwhile():
    client, clock = memory(), Clock()
    first = Engine(client, clock, "first")
    commits, unaware = [], ManifestLog(ObjectStore(first.objects))

    def more():
        if len(commits) < 3:
            commits.append(unaware.steps.put(replace(Entry(step=len(commits) + 1, identity="f"), epoch=1)))

    plain = fence._empty
    with patch.object(fence, "_empty", lambda manifest: (more(), plain(manifest))[1]):
        second = Engine(client, clock, "second")
    assert second.manifest.step == 4
    assert second.manifest.fences == (0, 4)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_schedule_what_was_acknowledged_is_in_the_log_once(seed):
    """Engines come, pause, wake and go, requests fail, answers are lost, and old records are deleted."""
    random, client, clock = Random(seed), memory(), Clock()
    engines, told = [], {}
    with patch("penstock.state.manifest.SNAPSHOT_EVERY", 4):
        for turn in range(80):
            act = random.random()
            if act < 0.12 or not engines:
                try:
                    engines.append(Engine(client, clock, f"engine {turn}", random, unclear=0.15))
                except StateError:
                    continue
            else:
                engine = random.choice(engines)
                try:
                    if act < 0.3:
                        engine.store._leases[""].renew()
                    step = engine.commit()
                except StateError:
                    engines.remove(engine)
                    continue
                assert step not in told, "two engines were told that they had committed this step"
                told[step] = engine.name
        manifest, records = history(client)
        for step, name in told.items():
            if step in records:
                assert records[step].identity == name
        assert manifest.step >= max(told, default=-1)
        assert [e for _, e in sorted((s, r.epoch) for s, r in records.items())] == sorted(
            r.epoch for r in records.values()
        )
