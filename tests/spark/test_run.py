"""What a run says of itself and of the places that it is given."""

import errno
import gc
import os
import weakref

import pytest

from penstock import Engine, RegistrationError, StateError, StepError
from penstock.storage.local import LocalStore
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint")


@pytest.fixture
def replay(tmp_path):
    found = Replay(tmp_path / "source", STREAM)
    found.add(a=[{"ts": 1, "k": 1}])
    return found


def full_at(root, folder):
    """A state directory on a disk that is full for new files in one of its folders; it is sent whole to the workers."""

    class Full(LocalStore):
        def create(self, name):
            if name.startswith(folder):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path(name))
            return super().create(name)

    return Full(str(root), durable=False)


@pytest.mark.parametrize(
    ("folder", "kind", "said"),
    [
        ("runs/", StepError,
         (r"step 0 failed and nothing of it was committed: a disk is full \(.*/runs/.*\); "
         r"make room in the state directory")),
        ("results/", StepError,
         (r"step 0 failed and nothing of it was committed: a disk is full \(.*/results/.*\); "
         r"make room in the state directory")),
        ("manifest/", StateError, r"/manifest/\S+ cannot be used: no space left on device; make room there"),
    ],
)  # fmt: skip
def test_a_full_disk_ends_the_run_in_a_line_and_room_lets_it_go_on(spark, tmp_path, replay, folder, kind, said):
    queries = {"q": "SELECT a.k FROM a [RANGE 5], a [RANGE 5] b WHERE a.k = b.k"}
    engine = replay.engine(spark, tmp_path / "state", queries)
    engine.store = full_at(tmp_path / "state", folder)
    with pytest.raises(kind, match=said) as caught:
        drain(engine)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # no stack of Spark's above it
    engine = replay.engine(spark, tmp_path / "state", queries)
    drain(engine, final=True)
    assert rows_of(engine.results("q")) == [(1,)]


def test_sparks_query_has_the_same_name_at_every_start(spark, tmp_path, replay):
    names = set()
    for state in ("one", "one", "two"):
        engine = replay.engine(spark, tmp_path / state, {"q": "SELECT k FROM a"})
        run = engine.start()
        names.add(run.spark_query.name)
        assert run.spark_query.name.startswith(f"penstock-{state}-")
        run.stop()
    assert len(names) == 2


def test_places_that_are_not_on_this_machine_are_refused_at_once(spark, tmp_path, replay, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegistrationError, match="state directory 'hdfs://n/x' is no folder on this machine"):
        Engine(spark, "hdfs://n/x")
    engine = replay.engine(spark, (tmp_path / "state").as_uri())
    assert engine.store.root == str(tmp_path / "state")
    for register in (
        lambda: engine.query("SELECT k FROM a", name="q", into="hdfs://n/x"),
        lambda: engine.execute("CREATE QUERY q AS SELECT k FROM a INTO 'hdfs://n/x'"),
    ):
        with pytest.raises(
            RegistrationError, match=r"query 'q': into= 'hdfs://n/x' is no folder.*Sink\('parquet', path=..\)"
        ):
            register()
    engine.query("SELECT k FROM a", name="q", into=(tmp_path / "out").as_uri())
    drain(engine)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"source", "state", "out"}


def test_a_state_directory_that_cannot_be_one_is_told_when_the_engine_is_made(spark, tmp_path, replay):
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(
        StateError, match=rf"{tmp_path}/state/registry cannot be used: not a directory; .*choose another one"
    ):
        replay.engine(spark, tmp_path / "state")


def test_an_engine_whose_run_has_ended_is_let_go(spark, tmp_path):
    """Spark's query, the JVM's side of the callback and the run refer to each other: ended engines must not be kept."""
    replay = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint"))
    replay.add(a=[{"ts": 1, "k": 1}])
    engine = replay.engine(spark, tmp_path / "state", {"q": "SELECT k FROM a"})
    run = drain(engine)
    kept = [weakref.ref(engine), weakref.ref(run), weakref.ref(run.stepper)]
    del engine, run
    gc.collect()
    assert [one() for one in kept] == [None] * 3
