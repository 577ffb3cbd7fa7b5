"""What a step costs on an object store, in requests: they are counted, so that no change adds some unseen."""

from collections import Counter

import pytest

from penstock.storage.lease import Times
from penstock.testing.engine import Engine
from penstock.testing.stores import SharedObjects
from tests.spark.replay import stream
from tests.storage.faulty_objects import FaultyObjects

memory = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore
STREAMS = (stream("a", "ts bigint, k bigint"), stream("b", "ts bigint, k bigint"))


class Counting(FaultyObjects):
    """Counts requests by kind and folder."""

    def __init__(self):
        super().__init__(memory())
        self.requests = Counter()

    def _before(self, operation, name):
        self.requests[operation, name.partition("/")[0]] += 1


def test_a_step_puts_each_file_once_and_its_record_and_asks_nothing_else():
    objects = Counting()
    engine = Engine(SharedObjects(objects, times=Times(1e9)), tasks=1)
    for one in STREAMS:
        engine.stream(one)
    engine.query("SELECT a.k, a.ts AS at, b.ts AS bt FROM a [RANGE 100], b [RANGE 100] WHERE a.k = b.k", name="q")
    engine.start()
    engine.take(a=[{"ts": 1, "k": 1}], b=[{"ts": 1, "k": 1}])
    objects.requests.clear()
    engine.take(a=[{"ts": 2, "k": 1}], b=[{"ts": 2, "k": 1}])
    of_source = {key: objects.requests.pop(key) for key in list(objects.requests) if key[1] == "checkpoint"}
    assert of_source  # the source of a test has its log there too
    # Without copies on a disk: the runs of the step before are mapped by one get each.
    assert objects.requests == {
        ("put", "runs"): 2, ("put", "results"): 1, ("put", "manifest"): 1, ("get", "runs"): 2,
    }  # fmt: skip
    objects.requests.clear()
    assert not engine.tick()
    assert not objects.requests
    engine.stop()
