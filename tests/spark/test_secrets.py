"""Passwords of sinks and streams: resolved when used, in no file of the state directory, and in no displayed text."""

from types import SimpleNamespace

import pytest

from penstock import Engine
from penstock.errors import PenstockError, RegistrationError
from penstock.model import Sink
from penstock.results.delivery import Delivery, SinkQuery, group_sinks
from penstock.spark import sink as spark_sink
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.storage.secrets import redacted, resolved
from tests.spark.replay import Replay, drain, stream


def test_references_are_looked_up(tmp_path, monkeypatch):
    monkeypatch.setenv("DB_USER", "me")
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    options = (
        ("url", "jdbc:x://${DB_USER}:${file:%s}@db" % (tmp_path / "secret")),
        ("user", "${ENV:DB_USER}"),
        ("plain", "$x{y}"),
    )
    assert resolved(options, "sink") == {"url": "jdbc:x://me:hunter2@db", "user": "me", "plain": "$x{y}"}
    assert redacted("cannot reach me:hunter2@db", options) == "cannot reach ***:***@db"


def test_what_is_referred_to_and_missing_is_named_with_its_option(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(
        PenstockError, match=r"^sink x: option 'password' refers to the environment variable NO_SUCH, which is not set"
    ):
        resolved((("password", "${NO_SUCH}"),), "sink x")
    with pytest.raises(
        PenstockError, match=r"option 'password' refers to the file .*/none, which cannot be read: no such file"
    ):
        resolved((("password", f"${{file:{tmp_path}/none}}"),), "sink x")
    with pytest.raises(
        PenstockError,
        match=r"option 'password' was given literally, so it was not stored, .* declare it again, or refer to it",
    ):
        resolved(Sink("jdbc", password="hunter2").stored.options, "sink x")
    assert redacted("${NO_SUCH}", (("password", "${NO_SUCH}"),)) == "${NO_SUCH}"


@pytest.fixture
def sent_to(monkeypatch):
    """What goes to each of these sinks, and the errors of those that get nothing."""

    def send(*sinks):
        sent = []
        writer = SimpleNamespace(save=lambda: None, options=lambda **given: sent.append(given) or writer)
        writer.format = writer.mode = lambda _: writer
        monkeypatch.setattr(spark_sink, "DataFrame", SimpleNamespace(union=lambda one, _: one))
        queries = [SinkQuery(n, f"q{n}", sink, ("a",)) for n, sink in enumerate(sinks)]
        files = ResultFiles([ResultFile("f", "j", 1, 1, 1, 1, 0, 0, tuple((q.query, 1) for q in queries))])
        rows = lambda *_: SimpleNamespace(write=writer)  # noqa: E731
        found = group_sinks(queries, {}, 0, lambda into: spark_sink.WriterSink(into, rows))
        Delivery(lambda *_: 0, found).deliver(Manifest(step=1, results=files))
        return sent, [one.error for one in found]

    return send


def test_a_sink_without_its_secret_delays_only_itself(sent_to):
    lost = Sink("jdbc", dbtable="t", password="hunter2").stored
    sent, errors = sent_to(lost, Sink("json", path="x"))
    assert sent == [{"path": "x"}]
    assert errors[1] is None
    assert "option 'password' was given literally, so it was not stored" in errors[0]


def test_a_sink_has_the_secret_of_the_query_that_gives_it(sent_to):
    sink = Sink("jdbc", dbtable="t", password="hunter2")
    assert sent_to(sink.stored, sink) == ([{"dbtable": "t", "password": "hunter2"}], [None])


STREAM = stream("a", "ts bigint, k bigint", delay=0)
COLUMNS = "(ts BIGINT, k BIGINT, WATERMARK FOR ts AS ts)"
TELLING = "option 'password' was given literally, so it was not stored, and this program has not given it"


@pytest.mark.spark
def test_no_file_of_a_state_directory_holds_a_secret_and_it_is_asked_for_again(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    state, out = tmp_path / "state", tmp_path / "out"

    def script(secret):
        return (
            f"CREATE STREAM a {COLUMNS} USING parquet OPTIONS (path '{tmp_path}/source/a', 'my.token' '{secret}');",
            f"CREATE QUERY q AS SELECT k FROM a INTO json OPTIONS (path '{out}', password '{secret}');",
        )

    def rows():
        return sorted(row.k for row in spark.read.json(str(out)).collect())

    def run(*statements):
        replay.add(a=[{"ts": replay.steps, "k": replay.steps}])
        engine = Engine(spark, state, tasks=2, durable=False)
        engine.execute("".join(statements))
        ended = drain(engine)
        assert "hunter" not in str(ended.status()) + engine.explain() + str(engine.queries()) + str(engine.streams())
        return ended.status()["sinks"][0]["error"]

    assert run(*script("hunter2")) is None
    assert rows() == [0]
    # Without the query's declaration the sink waits, and the engine goes on.
    assert TELLING in run(script("hunter2")[0])
    assert rows() == [0]
    assert run(*script("hunter3")) is None
    assert rows() == [0, 1, 2]
    held = [path for path in state.rglob("*") if path.is_file() and b"hunter" in path.read_bytes()]
    assert held == []
    with pytest.raises(RegistrationError) as refused:
        Engine(spark, state, tasks=2).execute(script("hunter2")[0].replace("my.token", "their.token"))
    assert "source was" in str(refused.value)
    assert "hunter" not in str(refused.value)
