"""ALTER STREAM .. SET: another delay or path on an existing state directory, with the engine running or stopped."""

import os
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine, RegistrationError
from penstock.cli.check import check_sql
from penstock.cli.script import load, register
from penstock.errors import SqlError
from penstock.spark.executor import SparkExecutor
from penstock.step.core import Core
from tests.oracle import bag
from tests.spark.replay import drain, rows_of, wait_until

pytestmark = pytest.mark.spark

COUNT = "CREATE QUERY q AS SELECT count(*) AS n, window_end FROM a [TUMBLING 5];"


class Folder:
    """A folder of files that Spark reads one by one, in the order in which they are put there."""

    def __init__(self, path):
        self.path, self.files = path, 0
        path.mkdir()

    def put(self, *times):
        rows = pa.table({"t": pa.array(times, pa.int64()), "n": pa.array(range(len(times)), pa.int64())})
        aside = self.path / f".{self.files}"
        pq.write_table(rows, aside)
        modified = time.time() - 100_000 + self.files
        os.utime(aside, (modified, modified))
        aside.rename(self.path / f"{self.files}.parquet")
        self.files += 1


@pytest.fixture
def old(tmp_path):
    return Folder(tmp_path / "old")


def stream(path, delay, name="a"):
    return (
        f"CREATE STREAM {name} (t BIGINT, n BIGINT, WATERMARK FOR t AS t - {delay}, SEQUENCE BY n) LATE side "
        f"USING parquet OPTIONS (path '{path}', maxFilesPerTrigger 1);"
    )


def engine_with(spark, root, *statements):
    engine = Engine(spark, root / "state", tasks=2, durable=False)
    for statement in statements:
        engine.execute(statement)
    return engine


def found(engine):
    return bag(rows_of(engine.results("q")))


def progress(engine):
    return engine.manifest().progress["a"].value


def test_a_longer_delay_holds_progress_and_outlives_a_restart(spark, tmp_path, old):
    old.put(10)
    drain(engine_with(spark, tmp_path, stream(old.path, 2), COUNT))
    engine = engine_with(spark, tmp_path, stream(old.path, 2), "ALTER STREAM a SET DELAY 5")
    old.put(7, 11)
    drain(engine)
    assert progress(engine) == 8  # and not 11 - 5
    assert rows_of(engine.late("a").select("t")) == [(7,)]
    old.put(9, 20)
    with pytest.raises(RegistrationError, match=r"delay was 5, is 2; .* ALTER STREAM a SET DELAY"):
        engine_with(spark, tmp_path, stream(old.path, 2))
    engine = engine_with(spark, tmp_path, stream(old.path, 5))
    drain(engine)
    assert progress(engine) == 15
    assert found(engine) == bag([(1, 10), (2, 15)])
    assert engine.streams()[0]["delay"] == 5


@pytest.mark.parametrize("dies", [False, True])
def test_a_shorter_delay_closes_windows_before_the_next_row_is_judged(spark, tmp_path, old, monkeypatch, dies):
    old.put(3, 14)
    drain(engine_with(spark, tmp_path, stream(old.path, 9), COUNT))
    old.put(12, 16)
    if dies:  # after the change is registered, and before it has moved anything
        monkeypatch.setattr(Core, "_follow_delays", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine_with(spark, tmp_path, stream(old.path, 9), "ALTER STREAM a SET DELAY 1").start()
        monkeypatch.undo()
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.alter_stream("a", delay=1)  # before it is declared, and once more without effect
    engine.execute(stream(old.path, 1))
    drain(engine)
    assert (progress(engine), found(engine)) == (15, bag([(1, 5), (1, 15)]))
    assert rows_of(engine.late("a").select("t", "_progress")) == [(12, 13)]


def test_a_delay_changes_while_the_engine_runs(spark, tmp_path, old):
    old.put(3, 14)
    engine = engine_with(spark, tmp_path, stream(old.path, 12), COUNT)
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["streams"]["a"]["rows"] == 2)
    assert found(engine) == bag([])
    spark_query = run.spark_query
    engine.execute("ALTER STREAM a SET DELAY 4")
    assert (progress(engine), found(engine)) == (10, bag([(1, 5)]))
    with pytest.raises(RegistrationError, match="delay has no unit"):
        engine.execute("ALTER STREAM a SET DELAY INTERVAL 4 SECONDS")
    assert run.spark_query is spark_query
    engine.execute("ALTER STREAM a SET DELAY 1 ROW")  # rows come with their sequence from now on
    old.put(15, 13, 16)
    wait_until(lambda: run.status()["streams"]["a"]["rows"] == 5)
    run.stop()
    assert (progress(engine), found(engine)) == (15, bag([(1, 5), (2, 15)]))
    with pytest.raises(RegistrationError, match="there is no stream 'b'"):
        engine.alter_stream("b", delay=3)


@pytest.mark.parametrize("live", [True, False])
def test_all_files_of_a_new_path_are_new_and_its_neighbour_reads_on(spark, tmp_path, old, live):
    new = Folder(tmp_path / "new")
    declared = (stream(old.path, 0), stream(old.path, 0, "b"))  # both read one source
    old.put(1)
    engine = engine_with(spark, tmp_path, *declared, COUNT, "CREATE QUERY all_b AS SELECT t FROM b")
    move = f"ALTER STREAM a SET OPTIONS (path '{new.path}')"
    new.put(2, 11)  # a file of the same name
    if live:
        run = engine.start("100 milliseconds")
        wait_until(lambda: run.status()["streams"]["b"]["rows"] == 1)
        engine.execute(move)
        old.put(3)
        wait_until(lambda: [run.status()["streams"][name]["rows"] for name in "ab"] == [3, 2])
        run.stop()
    else:
        drain(engine)
        old.put(3)
        engine = engine_with(spark, tmp_path, *declared, move)
        drain(engine)
    assert found(engine) == bag([(2, 5)])
    assert sorted(rows_of(engine.results("all_b"))) == [(1,), (3,)]
    assert engine.catalog.registry.streams["a"].source_name == "a_g1"
    new.put(12, 20)
    engine = engine_with(spark, tmp_path, stream(new.path, 0), declared[1])
    drain(engine)
    assert found(engine) == bag([(2, 5), (2, 15)])


@pytest.mark.parametrize("where", ["before the step", "after the manifest"])
def test_a_batch_that_was_planned_when_the_engine_died_does_no_harm_to_a_new_path(
    spark, tmp_path, old, monkeypatch, where
):
    new = Folder(tmp_path / "new")
    old.put(1)
    drain(engine_with(spark, tmp_path, stream(old.path, 0), COUNT))
    old.put(2)
    if where == "before the step":
        monkeypatch.setattr(SparkExecutor, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drain(engine_with(spark, tmp_path, stream(old.path, 0)))
        monkeypatch.undo()
    else:
        drain(engine_with(spark, tmp_path, stream(old.path, 0)))
        commits = tmp_path / "state" / "checkpoint" / "commits"
        for name in ("1", ".1.crc"):
            (commits / name).unlink(missing_ok=True)
    new.put(3, 11)
    shutil.rmtree(old.path)
    engine = engine_with(spark, tmp_path, f"ALTER STREAM a SET OPTIONS (path '{new.path}')", stream(new.path, 0))
    drain(engine)
    assert found(engine) == bag([(2 if where == "before the step" else 3, 5)])  # what it had not read is left


def test_a_script_that_alters_a_stream_can_be_run_again_without_the_old_folder(spark, tmp_path, old):
    new, path = Folder(tmp_path / "new"), tmp_path / "app.sql"
    before = stream(old.path, 9) + COUNT
    old.put(1)
    new.put(3, 14)
    path.write_text(before)
    for text, answer in [
        (before, []),
        (f"{before} ALTER STREAM a SET DELAY 2; ALTER STREAM a SET OPTIONS (path '{new.path}');", [(2, 5)]),
        (f"{before} ALTER STREAM a SET DELAY 2; ALTER STREAM a SET OPTIONS (path '{new.path}');", [(2, 5)]),
        (stream(new.path, 2) + COUNT, [(2, 5)]),
    ]:
        path.write_text(text)
        engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
        check_sql(load(path))
        assert list(register(engine, load(path))) == []
        drain(engine)
        assert found(engine) == bag(answer)
        shutil.rmtree(old.path, ignore_errors=True)
    path.write_text(stream(new.path, 2).replace("n BIGINT", "n INT") + COUNT)
    told = "column 'n' was bigint, is int; declare it as before, declare it under another name"
    with pytest.raises(SqlError, match=told):
        list(register(Engine(spark, tmp_path / "state"), load(path)))
