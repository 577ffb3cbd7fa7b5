"""An engine whose state is in an object store: the same answers, restarts, sinks and results, on a real server."""

import json
import time
import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine, StateError
from penstock.model.time import SECOND
from penstock.spark.offset_log import CHECKPOINT
from penstock.storage.cache import FOLDER_VARIABLE
from penstock.storage.lease import LeaseLostError
from penstock.storage.listed_folder import OWNER
from penstock.storage.object import ObjectFiles
from penstock.storage.objects import Objects
from tests.crash.scene import JOIN, QUERIES, expected, source
from tests.oracle import bag
from tests.spark.replay import drain, rows_of, values_of
from tests.storage.s3_server import server

pytestmark = pytest.mark.spark
SHOWN = {name: QUERIES[name] for name in ("kept", "to_folder", "by_spark", "alone", "closed", "counted")}
SHOWN["here"] = f"SELECT b.v AS w {JOIN} AND a.v > 4"
COPIED = {"to_folder", "alone", "closed"}  # delivered to an object store


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    for name, value in server().environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{uuid.uuid4().hex}"


def engine_at(spark, tmp_path, place, steps):
    engine = Engine(spark, f"{place}/state", tasks=2, storage=server().config)
    source(tmp_path, steps).declare(engine)
    for name, sql in SHOWN.items():
        into = f"{place}/{name}" if name in COPIED else str(tmp_path / name) if name == "here" else None
        engine.query(sql, name=name, into=into)
    return engine


def objects_below(place):
    files = ObjectFiles(Objects(place))
    return {name: files.read(name) for name in files.objects.below("")}


def in_objects(place):
    """What somebody who lists the sinks' places finds."""
    found = {}
    for name in COPIED:
        own = objects_below(f"{place}/{name}")
        assert OWNER in own
        found[name] = bag(
            row
            for file, data in own.items()
            if file != OWNER
            for row in values_of(pq.read_table(pa.BufferReader(data)))
        )
    return found


def test_it_answers_goes_on_after_a_restart_and_delivers_each_result_once(spark, tmp_path, place):
    engine = engine_at(spark, tmp_path, place, 3)
    drain(engine)
    first = {name: bag(rows_of(engine.results(name))) for name in SHOWN}
    joins = [name for name in SHOWN if name not in ("closed", "counted")]
    assert {n: first[n] for n in joins} == {n: expected(3, SHOWN)[n] for n in joins}
    engine = engine_at(spark, tmp_path, place, 6)
    run = engine.start(available_now=True, final=True)
    with pytest.raises(StateError, match=rf"{place}/state is in use by process \d+, and only"):
        engine_at(spark, tmp_path, place, 6).start()
    assert run.await_termination(300)
    wanted = expected(6, SHOWN)
    assert {name: bag(rows_of(engine.results(name))) for name in SHOWN} == wanted
    assert in_objects(place) == {name: wanted[name] for name in COPIED}
    here = [pq.read_table(file) for file in (tmp_path / "here").glob("*.parquet")]
    assert bag(row for table in here for row in values_of(table)) == wanted["here"]

    steps = Counter(step for _, step in rows_of(engine.results("alone", step=True)))
    assert sum(steps.values()) == wanted["alone"].total()
    assert len(steps) == 6
    last = rows_of(engine.results("alone", since_step=sorted(steps)[-2]))
    assert len(last) == steps[max(steps)]
    objects = objects_below(place)
    secret = server().config["secret_access_key"].encode()
    assert not [name for name, data in objects.items() if secret in data]
    manifest = engine.manifest()
    assert (manifest.epoch, len(manifest.fences), manifest.final) == (2, 2, True)
    named = {*manifest.runs, *manifest.results, *(side.name for side in manifest.sides)}
    assert {f"state/{name}" for name in named} <= set(objects)


def test_rows_put_aside_are_read_and_a_lost_copy_of_sparks_log_is_refused(spark, tmp_path, place):
    replay = source(tmp_path, 2)
    replay.add(a=[{"ts": 100 * SECOND, "k": 1, "v": 1}])
    replay.add(a=[{"ts": 5 * SECOND, "k": 1, "v": 2}, {"ts": None, "k": 1, "v": 3}])
    engine = engine_at(spark, tmp_path, place, 4)
    drain(engine)
    assert [row.v for row in engine.late("a").collect()] == [2]
    assert [row.v for row in engine.bad("a").collect()] == [3]
    copies = [n for n in engine.store.names(CHECKPOINT) if engine.store.names(f"{CHECKPOINT}/{n}")]
    engine.store.delete_folder(f"{CHECKPOINT}/{copies[-1]}")
    with pytest.raises(StateError, match=r"a copy of Spark's own log, is missing\. Restore manifest/ and checkpoint/"):
        engine_at(spark, tmp_path, place, 4).start(available_now=True)


def test_a_run_whose_lease_was_taken_over_ends_although_it_has_nothing_to_do(spark, tmp_path, place):
    engine = engine_at(spark, tmp_path, place, 1)
    run = engine.start()
    while engine.manifest().last_batch < 0:
        assert run.active
        time.sleep(0.1)
    told = {"owner": "process 1", "host": "elsewhere", "id": "x", "seconds": 30, "renewals": 0, "released": False}
    ObjectFiles(Objects(f"{place}/state")).put_if_absent("owner/000000000009.json", json.dumps(told).encode())
    lease = engine.store._leases[""]
    lease._renewed = -1e9  # as if it had slept
    with pytest.raises(LeaseLostError, match=r"lost the lease on .*/state to process 1 on elsewhere"):
        run.await_termination(60)
    assert not run.active
    assert not run.spark_query.isActive
    assert engine.store.epoch == 0
