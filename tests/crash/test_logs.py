"""Spark's log and the manifest out of step, as a power cut or a wrong backup leaves them; and two engines at once."""

import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from functools import partial

import pytest

from penstock import Engine, StateError
from tests.crash import scene
from tests.crash.scene import FOLDERS, QUERIES, expected, in_folders, rows_of_step, source
from tests.oracle import bag
from tests.spark.replay import Saved, drain, rows_of, steps_by_batch

pytestmark = pytest.mark.spark

engine_of = partial(scene.engine_of, queries=QUERIES)  # windows over streams are in test_kill

BEFORE = 3  # batches answered before the accident
AFTER = 4


@pytest.fixture(scope="module")
def once(spark, tmp_path_factory):
    """A folder whose engine has stopped after a few batches, and a copy of it."""
    root, copy = tmp_path_factory.mktemp("stopped"), tmp_path_factory.mktemp("copy")
    source(root, BEFORE)
    drain(engine_of(spark, root))
    return Saved(root, copy)


@pytest.fixture
def stopped(once):
    return once.restore()


def forget(root, *names):
    """Remove files of Spark's log, with the checksums beside them."""
    for name in names:
        path = root / "state" / "checkpoint" / name
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def source_logs(root, batch):
    found = [p.relative_to(root / "state/checkpoint") for p in (root / "state/checkpoint/sources").glob(f"*/{batch}")]
    assert len(found) == 2
    return [str(p) for p in found]


def assert_whole(spark, root, batches=AFTER):
    engine = engine_of(spark, root)
    drain(engine, final=True)
    answers = expected(batches, QUERIES)
    for name, answer in answers.items():
        assert bag(rows_of(engine.results(name))) == answer, name
    assert in_folders(root) == {name: answers[name] for name in FOLDERS}
    assert engine.manifest().counters.stream("a").rows == sum(len(rows_of_step(s)["a"]) for s in range(batches))


def test_a_batch_that_spark_forgot_is_recognised(spark, stopped):
    last = BEFORE - 1
    forget(stopped, f"commits/{last}")
    source(stopped, AFTER)
    assert_whole(spark, stopped)


def test_a_batch_that_spark_plans_again_from_the_same_files_is_recognised(spark, stopped):
    last = BEFORE - 1
    forget(stopped, f"commits/{last}", f"offsets/{last}", *source_logs(stopped, last))
    source(stopped, AFTER)
    assert_whole(spark, stopped)


def test_a_batch_that_spark_plans_again_from_other_files_is_refused(spark, stopped):
    last = BEFORE - 1
    forget(stopped, f"commits/{last}", f"offsets/{last}", *source_logs(stopped, last))
    for stream in ("a", "b"):
        folder = stopped / "source" / stream
        (folder / f"{last:05d}.parquet").rename(folder / "other.parquet")
    before = engine_of(spark, stopped).manifest()
    with pytest.raises(StateError, match=f"batch {last} again with other rows .* Restore"):
        drain(engine_of(spark, stopped))
    after = engine_of(spark, stopped).manifest()
    assert (after.last_batch, after.results, after.progress) == (last, before.results, before.progress)


def test_a_spark_log_behind_the_manifest_by_more_than_a_batch_is_refused(spark, stopped):
    forget(stopped, *(f"{log}/{b}" for log in ("commits", "offsets") for b in (1, 2)))
    with pytest.raises(StateError, match=r"manifest holds batch 2, but Spark's log ends at batch 0.*Restore"):
        drain(engine_of(spark, stopped))


def test_a_spark_log_ahead_of_the_manifest_is_refused(spark, stopped):
    steps = steps_by_batch(engine_of(spark, stopped))
    for entry in (stopped / "state/manifest").glob("*.json"):
        if entry.stem.isdigit() and int(entry.stem) >= steps[BEFORE - 1]:
            entry.unlink()
    with pytest.raises(StateError, match=r"batch 2 as done, but the manifest ends at batch 1.*Restore"):
        drain(engine_of(spark, stopped))


def test_a_second_engine_in_the_process_is_refused(spark, stopped):
    run = engine_of(spark, stopped).start()
    try:
        with pytest.raises(StateError, match=rf"in use by .*{os.getpid()}"):
            engine_of(spark, stopped).start()
    finally:
        run.stop()
    drain(engine_of(spark, stopped))


HOLDER = textwrap.dedent("""
    import sys
    from penstock.storage.local import LocalStore
    with LocalStore(sys.argv[1]).owner_lock():
        print("held", flush=True)
        sys.stdin.read()
""")


@contextmanager
def held_elsewhere(root):
    """Another process holds the state directory, as an engine does that runs; its id."""
    command = [sys.executable, "-c", HOLDER, str(root / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()
        process.wait(60)


def test_an_engine_in_another_process_is_named(spark, stopped):
    engine = engine_of(spark, stopped)
    with held_elsewhere(stopped) as other, pytest.raises(StateError, match=rf"in use by process {other}"):
        engine.start()
    assert_whole(spark, stopped, BEFORE)


def test_beside_an_engine_of_another_process_everything_is_read_and_nothing_changed(spark, stopped):
    parquet = f"CREATE SOURCE side USING parquet OPTIONS (path '{stopped / 'source' / 'a'}')"
    view = "CREATE MATERIALIZED VIEW {} AS SELECT v FROM side"
    with_view = Engine(spark, stopped / "state")
    with_view.execute(f"{parquet}; {view.format('there')}")
    frame = source(stopped, BEFORE).frame(spark, "a")
    changes = {
        "stream": lambda e: e.stream("c", frame, event_time="ts", delay=0),
        "query": lambda e: e.query("SELECT v FROM a", name="more"),
        "replace": lambda e: e.query("SELECT ts FROM a", name="alone", replace=True),
        "create": lambda e: e.execute("CREATE QUERY more AS SELECT v FROM a"),
        "alter": lambda e: e.execute("ALTER QUERY alone AS SELECT v FROM b WHERE v > 2"),
        "drop": lambda e: e.drop("kept"),
        "drop stream": lambda e: e.drop_stream("a"),
        "advance": lambda e: e.advance("a", "2024-01-01"),
        "view": lambda e: e.view("SELECT v FROM side", name="more"),
        "create view": lambda e: e.execute(view.format("more")),
        "drop view": lambda e: e.execute("DROP VIEW there"),
    }
    with held_elsewhere(stopped) as other:
        engine = Engine(spark, stopped / "state")
        engine.execute(parquet)
        refused = (
            rf"state directory {stopped}/state is in use by process {other}, .*'penstock query add'.*or stop it first"
        )
        for change in changes.values():
            with pytest.raises(StateError, match=refused):
                change(engine)
        answers = expected(BEFORE, QUERIES)
        assert bag(rows_of(engine.results("alone"))) == answers["alone"]
        assert "kept" in {q["name"] for q in engine.queries()}
        assert engine.late("a").count() == 0
        there = engine.view("SELECT v FROM side", name="there")
        assert sum(row.v for row in there.read().collect()) == sum(
            r["v"] for n in range(BEFORE) for r in rows_of_step(n)["a"]
        )
    engine.query("SELECT v FROM a", name="more")


def test_an_engine_that_was_made_before_another_one_changed_the_queries_is_refused(spark, stopped):
    before = engine_of(spark, stopped)
    changing = engine_of(spark, stopped)
    changing.query("SELECT v FROM a", name="more")
    drain(changing)
    with pytest.raises(StateError, match=r"changed by another engine since this one was made .*make a new Engine"):
        before.start()
    assert_whole(spark, stopped, BEFORE)


def test_a_failed_step_leaves_nothing_and_is_repeated(spark, tmp_path, monkeypatch):
    """The points of a step once more, as exceptions in the running process."""
    batches = 3
    source(tmp_path, batches)
    for point in ("before_job", "after_job", "before_manifest", "after_manifest"):

        def fail(reached, step, point=point):
            if reached == point:
                raise OSError(f"stopped {reached} of step {step}")

        with monkeypatch.context() as patch:
            for module in ("stepper", "commit"):
                patch.setattr(f"penstock.step.{module}.kill_point", fail)
            with pytest.raises(OSError, match=f"stopped {point}"):
                drain(engine_of(spark, tmp_path))
    assert_whole(spark, tmp_path, batches)


def test_orphans_are_not_read(spark, stopped):
    """Files of a step that was never committed lie beside the named ones."""
    engine = engine_of(spark, stopped)
    manifest = engine.manifest()
    for name in (*manifest.runs, *manifest.results):
        path = stopped / "state" / name
        (path.with_name(f"{manifest.step + 1}-orphan{path.suffix}")).write_bytes(path.read_bytes())
        (path.with_name(f"{manifest.step}-orphan{path.suffix}")).write_bytes(path.read_bytes())
    source(stopped, AFTER)
    assert_whole(spark, stopped)
