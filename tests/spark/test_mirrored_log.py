"""Copies of Spark's log: whatever an owner leaves behind, the next one finds what Spark needs. Without Spark."""

import json
from random import Random

import pytest

from penstock.errors import StateError
from penstock.spark.mirrored_log import WHOLE_EVERY, _copies, opened_log
from penstock.spark.offset_log import CHECKPOINT
from penstock.spark.spark_log import check_log
from penstock.state.fence import fenced
from penstock.state.manifest import Entry, ManifestLog
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects
from tests.storage.test_lease import Clock

memory = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore

DONE = b'v1\n{"nextBatchWatermarkMs":0}'
COMPACT = 10  # entries of a source's log


class Engine:
    """An owner with the log of a Spark that reads one file a batch, and keeps what Spark keeps."""

    def __init__(self, client, clock):
        self.store = ObjectStore(Objects("memory:", client=client), None, clock.times)
        self.lock = self.store.owner_lock()
        self.lock.__enter__()
        self.opened = opened_log(self.store)
        self.log = self.opened.__enter__()
        self.manifests = ManifestLog(self.store)
        self.manifest = fenced(self.manifests, self.log.check_start)
        check_log(self.log.store)

    def plan(self, said):
        """Spark plans the next batch, once the last one is done: its entry of the source, then its offsets."""
        disk, batch = self.log.store, self.manifest.last_batch + 1
        if batch:
            disk.replace(f"{CHECKPOINT}/commits/{batch - 1}", DONE)  # it was offered again if need be
        if not disk.exists(f"{CHECKPOINT}/metadata"):
            disk.write(f"{CHECKPOINT}/metadata", b'{"id":"x"}')
        folder = f"{CHECKPOINT}/sources/a_g1"
        entries = [f'{{"file":"{said}","batch":{batch}}}']
        if batch % COMPACT == COMPACT - 1:
            for older in self.entries():
                if older not in entries:
                    entries.insert(-1, older)
        name = f"{batch}.compact" if batch % COMPACT == COMPACT - 1 else str(batch)
        disk.replace(f"{folder}/{name}", "\n".join(["v1", *entries]).encode())
        disk.replace(f"{CHECKPOINT}/sources/kafka/0", b'v1\n{"0":0}')  # what a source writes once
        offsets = ["v2", json.dumps({"batchTimestampMs": 1000}), f'a_g1:{{"logOffset":{batch}}}']
        disk.replace(f"{CHECKPOINT}/offsets/{batch}", "\n".join(offsets).encode())
        return batch

    def commit(self, said):
        batch = self.plan(said)
        identity = self.log.identity(batch)
        self.log.make_durable(batch)
        record = Entry(step=self.manifest.step + 1, batch=batch, last_batch=batch, identity=identity, clock=1.0)
        self.manifest = self.manifest.apply(self.manifests.append(record))
        self.log.store.replace(f"{CHECKPOINT}/commits/{batch}", DONE)
        for old in range(batch - 3):  # as Spark forgets
            for folder in ("offsets", "commits"):
                self.log.store.delete(f"{CHECKPOINT}/{folder}/{old}")

    def entries(self):
        """What the log of the source says, as Spark reads it: the last compacted entry and all behind it."""
        folder = f"{CHECKPOINT}/sources/a_g1"
        names = self.log.store.names(folder)
        compact = max((int(n.split(".")[0]) for n in names if n.endswith(".compact")), default=-1)
        wanted = [f"{compact}.compact"] if compact >= 0 else []
        last = max((int(n) for n in names if n.isdecimal()), default=compact)
        wanted += [str(n) for n in range(compact + 1, last + 1)]
        return [line for name in wanted for line in self.log.store.read(f"{folder}/{name}").decode().splitlines()[1:]]

    def die(self):
        self.opened.__exit__(None, None, None)
        self.store._leases[""].leave()


@pytest.mark.parametrize("seed", range(8))
def test_the_next_owner_goes_on_from_the_last_committed_batch(seed):
    random, client, clock, told = Random(seed), memory(), Clock(), []
    for owner in range(6):
        engine = Engine(client, clock)
        assert engine.manifest.last_batch == len(told) - 1
        if told:
            assert [json.loads(e)["file"] for e in engine.entries()] == told
            assert engine.log.identity(engine.manifest.last_batch) == engine.manifest.identity
            assert engine.log.store.exists(f"{CHECKPOINT}/sources/kafka/0")
            assert engine.log.last_commit() in (len(told) - 1, len(told) - 2)
        for _ in range(random.choice([0, 1, 3, 15, WHOLE_EVERY + 5])):
            engine.commit(f"{owner}-{len(told)}")
            told.append(f"{owner}-{len(told)}")
        if random.random() < 0.5:  # it dies with a plan that it has copied and not committed
            engine.log.make_durable(engine.plan("never"))
        engine.die()
        if random.random() < 0.3:  # somebody owned the store for a moment, and read nothing
            other = ObjectStore(Objects("memory:", client=client), None, clock.times)
            with other.owner_lock():
                fenced(ManifestLog(other))
    kept = ObjectStore(Objects("memory:", client=client)).names(CHECKPOINT)
    assert len(kept) <= 8
    for folder in kept:
        copies = _copies(ObjectStore(Objects("memory:", client=client)), int(folder))
        found = [copies.read(number) for number in copies.numbers()]
        assert len(found) <= 2 * WHOLE_EVERY
        assert all(len([n for n in copy.files if "a_g1" in n]) <= COMPACT for copy in found)


def test_a_former_owner_writes_where_nobody_reads():
    client, clock = memory(), Clock()
    first = Engine(client, clock)
    first.commit("one")
    first.store._leases[""].leave()
    second = Engine(client, clock)
    second.commit("two")
    folder = f"{CHECKPOINT}/{first.store.epoch:012d}"
    ObjectStore(first.store.objects).write(f"{folder}/000000000001.json", b"the plan of an engine that was paused")
    second.die()
    third = Engine(client, clock)
    assert [json.loads(e)["file"] for e in third.entries()] == ["one", "two"]


def test_a_copy_that_is_lost_is_named():
    client, clock = memory(), Clock()
    first = Engine(client, clock)
    first.commit("one")
    first.commit("two")
    ObjectStore(first.store.objects).delete(f"{CHECKPOINT}/{first.store.epoch:012d}/000000000000.json")
    first.die()
    with pytest.raises(StateError, match=r"checkpoint/000000000001/000000000000\.json, a copy of Spark's own log, is"):
        Engine(client, clock)


def test_where_locks_end_with_their_process_spark_writes_beside_the_state():
    store = MemoryStore()
    with store.owner_lock(), opened_log(store) as log:
        assert log.store is store
