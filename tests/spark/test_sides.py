"""Late and invalid rows: kept for a while, merged into few files, expired by the clock, and reported in the status."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.results.sides import merge_sides
from penstock.state.manifest import ManifestLog
from penstock.state.orphans import collect_orphans
from penstock.state.side_files import MANY_FILES, SideFile
from penstock.storage.local import LocalStore
from tests.spark.replay import Replay, drain, rows_of, stream

STREAM = stream("a", "ts bigint, k bigint", delay=0)


def test_merged_files_hold_the_same_rows_and_are_as_old_as_their_newest(tmp_path):
    store = LocalStore(str(tmp_path), durable=False)
    files, rows = [], []
    for number in range(MANY_FILES):
        table = pa.table({"_row": [str(number)], "_step": [number], "_reason": ["late"], "_progress": [9]})
        with store.create(f"sides/{number}-x.parquet") as file:
            pq.write_table(table, file, write_page_checksum=True)
        rows += table.to_pylist()
        files.append(SideFile(f"sides/{number}-x.parquet", "a", "late", number, 1, 100, float(number)))
    ((merged, gone),) = merge_sides(store, files, {"a": None}, 70)
    assert gone == [f.name for f in files]
    assert (merged.stream, merged.reason, merged.rows, merged.at) == ("a", "late", MANY_FILES, MANY_FILES - 1.0)
    assert merged.bytes == store.size(merged.name)
    assert pq.read_table(store.path(merged.name)).to_pylist() == rows
    assert merge_sides(store, files[1:], {"a": None}, 70) == []


@pytest.mark.spark
def test_late_rows_are_kept_until_their_time_is_over_which_a_restart_may_change(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    state = tmp_path / "state"

    def run(ts, **retain):
        replay.add(a=[{"ts": ts, "k": ts}, {"ts": 1, "k": ts}, {"ts": None, "k": ts}])
        engine = Engine(spark, state, tasks=2, durable=False)
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", delay=0, **retain)
        engine.query("SELECT k FROM a", name="q")
        return engine, drain(engine).status()["streams"]["a"]["sides"]

    run(10)
    engine, sides = run(20)
    assert len(rows_of(engine.late("a"))) == 1
    assert len(rows_of(engine.bad("a"))) == 2
    assert (sides["kept"], sides["expired"]) == (3, 0)
    engine, sides = run(30, side_retain="forever")
    assert (sides["kept"], sides["expired"]) == (5, 0)
    files = [s.name for s in engine.manifest().sides]
    engine, sides = run(40, side_retain="1 microsecond")
    assert (sides["kept"], sides["expired"], sides["oldest"]) == (0, 7, None)
    assert rows_of(engine.late("a")) == rows_of(engine.bad("a")) == []
    manifest = ManifestLog(engine.store).load()
    assert not manifest.sides
    assert set(files) <= set(collect_orphans(engine.store, manifest, grace=0))
    assert engine.store.names("sides") == []
