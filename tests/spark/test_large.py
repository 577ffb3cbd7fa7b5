"""Answers far larger than their input: readers get all they ask for; what cannot be built stops one query or sink."""

import pytest

from penstock.errors import RegistrationError
from penstock.model.limits import MOST_DELIVERED
from penstock.reference import aggregate_results
from penstock.sql import parse_query
from tests.aggregates import same_bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts timestamp, k bigint, v string")
YEAR = 31_557_600_000_000  # microseconds
EVERY = "SELECT count(*) AS n, window_end FROM a [RANGE ALL SLIDE 1 MICROSECOND]"
PANED = "SELECT k, count(*) AS n, window_end FROM a [RANGE 36525 DAYS SLIDE 1 MICROSECOND] GROUP BY k"
DAYS = "SELECT count(*) AS n, window_end FROM a [TUMBLING 36525 DAYS]"


def rows(*values, apart=100 * YEAR):
    return [{"ts": n * apart, "k": 1, "v": value} for n, value in enumerate(values)]


def test_windows_without_number_are_read_as_far_as_asked_and_stop_only_who_needs_them_all(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    replay.add(a=rows("x", "x", "x"))
    got = []
    engine = replay.engine(spark, tmp_path / "state", {"every": EVERY, "paned": PANED, "days": DAYS})
    having = (
        "SELECT count(*) AS n, window_end FROM a [RANGE ALL SLIDE 1 SECOND] HAVING window_end > TIMESTAMP '1970-01-02'"
    )
    best = "SELECT k, count(*) AS n, window_end FROM a [RANGE ALL SLIDE 1 SECOND] GROUP BY k ORDER BY n LIMIT 1"
    engine.query(having, name="having")
    engine.query(best, name="best")
    engine.query("SELECT sum(n) AS n FROM every [TUMBLING 1 DAY]", name="above")
    engine.query(EVERY, name="folder", into=tmp_path / "out")
    engine.query(EVERY, name="function", into=lambda table, _: got.append(len(table)))
    engine.query(EVERY, name="early", emit="1 second")
    engine.query(EVERY, name="slowly", flush=5)
    run = drain(engine, final=True)
    status = run.status()
    queries = status["queries"]
    assert run.error is None
    assert queries["every"]["results"] == queries["folder"]["results"] == 200 * YEAR + 1
    assert queries["paned"]["results"] == 3 * 36525 * 86_400_000_000
    stopped = {name for name, own in queries.items() if own["suspended"]}
    assert stopped == {"best", "above", "slowly"}
    assert "windows that it needs one by one, of which a task can build 16,777,216" in queries["best"]["suspended"]
    assert "query 'every', which it reads, has up to" in queries["above"]["suspended"]
    assert queries["best"]["results"] == 0
    assert queries["having"]["results"] is None  # it is decided where results are read
    assert len(rows_of(engine.results("days"))) == 3
    refused = {sink["sink"]: sink["error"] for sink in status["sinks"]}
    for name, error in refused.items():
        called = "folder" if name.startswith("path:") else "function"
        # The last delivery to a sink may precede the last window.
        assert any(
            f"query '{called}' has {count:,} results to deliver at once, and a sink takes {MOST_DELIVERED:,}" in error
            for count in (200 * YEAR, 200 * YEAR + 1)
        )
    assert got == []
    assert not (tmp_path / "out").exists()
    assert sum(file.rows for file in engine.manifest().results.values()) < 100
    for name in ("every", "paned", "folder", "early", "having"):
        assert len(engine.results(name).limit(5).collect()) == 5
    least = engine.results("every").where("n = 1").limit(3)
    assert rows_of(least) == [(1, 1), (1, 2), (1, 3)]


def test_long_runs_are_written_out_as_short_ones_are(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    given = rows("a", "b", "c", apart=70_000)
    replay.add(a=given)
    window = "SELECT count(*) AS n, window_start, window_end FROM a [RANGE {} SLIDE 1 MICROSECOND]"
    queries = {"every": window.format("ALL"), "long": window.format("100 MILLISECONDS")}
    engine = replay.engine(spark, tmp_path / "state", queries)
    got = []
    engine.query(queries["every"], name="sink", into=lambda table, _: got.append(table))
    drain(engine, final=True)
    for name, sql in queries.items():
        wanted = aggregate_results(parse_query(sql, {"a": STREAM}), {"a": STREAM}, {"a": given})
        assert engine.results(name).count() == len(wanted)
        assert same_bag(rows_of(engine.results(name)), wanted)
    assert sum(map(len, got)) == 140_001


def test_an_aggregate_over_a_join_with_too_many_ticks_is_refused(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    engine = replay.engine(spark, tmp_path / "state")
    window = "[RANGE 365 DAYS SLIDE 1 MICROSECOND]"
    with pytest.raises(RegistrationError, match="each joined row would count in up to 31,536,000,000,000 windows"):
        engine.query(f"SELECT count(*) AS n FROM a {window} x, a {window} y WHERE x.k = y.k", name="q")


GROWING = {
    "repeat": "repeat(v, k)",
    "constant": "length(repeat('x', 2000000000))",
    "hidden": "length(repeat(v, k))",
    "space": "length(space(CAST(k AS INT)))",
    "pad": "lpad(v, CAST(k AS INT), 'ab')",
    "sequence": "size(sequence(1, k))",
    "times": "size(sequence(ts, ts + INTERVAL 1000 DAYS, INTERVAL 1 MICROSECOND))",
    "array": "size(array_repeat(v, CAST(k AS INT)))",
    "replace": "length(replace(repeat(v, 10000), v, repeat('b', 10000)))",
    "regexp": "length(regexp_replace(repeat('a', 9000), 'a', repeat('b', 9000)))",
    "format": "length(format_string(concat('%', CAST(k AS STRING), 's'), v))",
    "concat": "length(concat(repeat(v, 40000000), repeat(v, 40000000)))",
    "fold": "length(aggregate(sequence(1, 50), v, (acc, x) -> acc || acc))",
    "insert": "size(array_insert(array(v), CAST(k AS INT), v))",
    "digits": "round(CAST(k AS DOUBLE), 1000000000)",
}


def test_values_that_would_take_all_memory_count_as_null_or_stop_their_query(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    replay.add(a=[{"ts": 1, "k": 2, "v": "x"}, {"ts": 2, "k": 2_000_000_000, "v": "x"}, {"ts": 3, "k": None, "v": "x"}])
    engine = replay.engine(spark, tmp_path / "state")
    for name, text in GROWING.items():
        engine.query(f"SELECT k, {text} AS r FROM a", name=name)
    engine.query("SELECT k FROM a WHERE length(repeat(v, k)) > 1", name="filter")
    engine.query("SELECT sum(length(repeat(v, k))) AS n, window_end FROM a [TUMBLING 1 DAY]", name="argument")
    engine.query("SELECT max(k) AS k, length(repeat(max(v), max(k))) AS r FROM a [TUMBLING 1 DAY]", name="read")
    engine.query(
        "SELECT count(*) AS n FROM a [TUMBLING 1 DAY] HAVING length(space(max(CAST(k AS INT)))) > 0", name="having"
    )
    engine.query("SELECT k, repeat(v, k) FROM a", name="stops", on_error="stop")
    run = drain(engine, final=True)
    queries = run.status()["queries"]
    assert {name for name, own in queries.items() if own["suspended"]} == {"stops"}
    found = {name: dict(rows_of(engine.results(name))) for name in GROWING}
    large = 2_000_000_000
    assert all(found[name][large] is None for name in GROWING)
    every = {"constant", "times", "replace", "regexp", "concat", "fold", "digits"}  # whatever the row holds
    assert {name for name in GROWING if found[name][2] is None} == every
    assert {name: queries[name]["errors"] for name in GROWING} == {name: 3 if name in every else 1 for name in GROWING}
    assert found["repeat"] == {2: "xx", large: None, None: None}
    assert found["sequence"] == {2: 2, large: None, None: None}
    assert found["pad"][2] == "ax"
    assert rows_of(engine.results("filter")) == [(2,)]
    assert rows_of(engine.results("argument")) == [(2, 86_400_000_000)]
    assert rows_of(engine.results("read")) == [(large, None)]
    assert rows_of(engine.results("having")) == []
    assert engine.results("stops").columns == ["k", "repeat(v, k)"]
