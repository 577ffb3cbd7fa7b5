"""An engine without Spark in a process of its own, which a test stops and lets go on: a step for each line it reads."""

import sys

from penstock.state.manifest import ManifestLog
from penstock.storage.cache import Cache
from penstock.storage.lease import Times
from penstock.storage.memory import MemoryStore
from penstock.storage.objects import Objects
from penstock.testing.engine import Engine
from penstock.testing.source import COMMITS, END, OFFSETS, HandedOver
from penstock.testing.stores import SharedObjects
from tests.spark.replay import stream

SECONDS = 3.0
STREAMS = (stream("a", "ts bigint, k bigint"), stream("b", "ts bigint, k bigint"))
SQL = "SELECT a.k, a.ts AS at, b.ts AS bt FROM a [RANGE 3], b [RANGE 3] WHERE a.k = b.k"


def rows_of_step(step):
    return {name: [{"ts": 2 * step + i % 2, "k": i % 3} for i in range(4)] for name in "ab"}


class OwnLog(HandedOver):
    """Rows of which each process has a log of its own, as Spark has: who is paused knows of no later batch."""

    def on(self, store):
        own = MemoryStore()
        for batch in range(ManifestLog(store).load().last_batch + 1):
            own.replace(f"{OFFSETS}/{batch}", f"{batch + 1}{END}".encode())
            own.replace(f"{COMMITS}/{batch}", b"{}")
        return super().on(own)


def engine_on(url, cache, delivered):
    """An engine whose source has the rows of all steps so far."""
    store = SharedObjects(Objects(url), Cache(cache), Times(SECONDS))
    engine = Engine(store, source=OwnLog(), tasks=2)
    for one in STREAMS:
        engine.stream(one)
    engine.query(SQL, name="q", into=lambda table, step: delivered(step, table))
    return engine


if __name__ == "__main__":
    engine = engine_on(sys.argv[1], sys.argv[2], lambda step, table: print(f"delivered {step}", flush=True))
    engine.source.given = [rows_of_step(step) for step in range(int(sys.argv[3]))]
    engine.start()
    print(f"owns it from step {engine.manifest.step} on", flush=True)
    for line in sys.stdin:
        try:
            engine.take(**rows_of_step(int(line)))
        except Exception as error:  # noqa: BLE001  (told to the test)
            print(f"{type(error).__name__}: {error}", flush=True)
            break
        print(f"step {engine.manifest.step}", flush=True)
