"""What a reader of results gets: the select list as Spark names and types it, of every kind of time and key."""

from datetime import date
from decimal import Decimal

import pytest

from penstock import Engine, PenstockError, RegistrationError
from penstock.model.time import SECOND
from penstock.reference import results
from penstock.results import retention
from penstock.results.views import results_table
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, generated_code, rows_of, steps_by_batch, stream, values_of

pytestmark = pytest.mark.spark

NAN = float("nan")
WIDE = "ts timestamp, k bigint, n int, s string, x double, d decimal(10,2), v bigint"
STREAMS = (
    stream("a", WIDE),
    stream("b", WIDE),
    stream("i", "at int, k string, v bigint", event_time="at"),
    stream("j", "at bigint, k string, v bigint", event_time="at"),
    stream("p", "day date, k bigint, v bigint", event_time="day"),
    stream("q", "day date, k bigint, v bigint", event_time="day"),
    stream("l", "at timestamp_ntz, k bigint, v bigint", event_time="at"),
    stream("m", "at timestamp_ntz, k bigint, v bigint", event_time="at"),
)
AB = "FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS]"
STRICT = (
    "FROM a, b WHERE unix_micros(b.ts) - unix_micros(a.ts) < 3000000 AND unix_micros(a.ts) - unix_micros(b.ts) < "
    "2000000"
)

# name -> (the standing query, the same as a batch query with every window written out)
CASES = {
    "spark_names": (
        f"SELECT a.v, b.v, a.v + 1, upper(a.s), a.x * 2, CAST(a.n AS STRING), a.d AS price, a.ts {AB} WHERE a.k = b.k",
        (
            f"SELECT a.v, b.v, a.v + 1, upper(a.s), a.x * 2, CAST(a.n AS STRING), a.d AS price, a.ts {STRICT} "
            "AND a.k = b.k"
        ),
    ),
    "star": (f"SELECT * {AB} WHERE a.k = b.k", f"SELECT * {STRICT} AND a.k = b.k"),
    "result_time": (
        f"SELECT result_time, a.v {AB} WHERE a.k = b.k",
        f"SELECT greatest(a.ts, b.ts) AS result_time, a.v {STRICT} AND a.k = b.k",
    ),
    "by_string": (f"SELECT a.v, b.v AS w {AB} WHERE a.s = b.s", f"SELECT a.v, b.v AS w {STRICT} AND a.s = b.s"),
    "by_double": (f"SELECT a.v, b.v AS w {AB} WHERE a.x = b.x", f"SELECT a.v, b.v AS w {STRICT} AND a.x = b.x"),
    "by_decimal": (f"SELECT a.v, b.v AS w {AB} WHERE a.d = b.d", f"SELECT a.v, b.v AS w {STRICT} AND a.d = b.d"),
    "by_mixed_integers": (f"SELECT a.v, b.v AS w {AB} WHERE a.k = b.n", f"SELECT a.v, b.v AS w {STRICT} AND a.k = b.n"),
    "by_two": (
        f"SELECT a.v, b.v AS w {AB} WHERE a.k = b.k AND a.x = b.x",
        f"SELECT a.v, b.v AS w {STRICT} AND a.k = b.k AND a.x = b.x",
    ),
    "itself": (
        "SELECT x.v, y.v AS w FROM a [RANGE 2 SECONDS] AS x, a [RANGE 1 SECOND] AS y WHERE x.k = y.k",
        (
            "SELECT x.v, y.v AS w FROM a x, a y WHERE unix_micros(y.ts) - unix_micros(x.ts) < 2000000 "
            "AND unix_micros(x.ts) - unix_micros(y.ts) < 1000000 AND x.k = y.k"
        ),
    ),
    "by_integer_time": (
        "SELECT i.at, j.at, result_time FROM i [RANGE 3], j [RANGE 2] WHERE i.k = j.k",
        (
            "SELECT i.at, j.at, greatest(i.at, j.at) AS result_time FROM i, j "
            "WHERE j.at - i.at < 3 AND i.at - j.at < 2 AND i.k = j.k"
        ),
    ),
    "by_date": (
        "SELECT p.day, q.day, p.v FROM p [RANGE 3 DAYS], q [RANGE 2 DAYS] WHERE p.k = q.k",
        (
            "SELECT p.day, q.day, p.v FROM p, q "
            "WHERE datediff(q.day, p.day) < 3 AND datediff(p.day, q.day) < 2 AND p.k = q.k"
        ),
    ),
    "by_time_without_zone": (
        "SELECT l.at, m.at, l.v FROM l [RANGE 3 SECONDS], m [RANGE 2 SECONDS] WHERE l.k = m.k",
        (
            "SELECT l.at, m.at, l.v FROM l, m WHERE timestampdiff(MICROSECOND, l.at, m.at) < 3000000 "
            "AND timestampdiff(MICROSECOND, m.at, l.at) < 2000000 AND l.k = m.k"
        ),
    ),
    "alone": ("SELECT v, s FROM a WHERE k > 0", "SELECT v, s FROM a WHERE k > 0"),
}


def wide(number):
    return {
        "ts": number // 3 * SECOND,
        "k": (1, 0, None, 1)[number % 4],
        "n": (0, 1, 2)[number % 3],
        "s": ("x", "", "é", None, "x")[number % 5],
        "x": (NAN, 0.0, -0.0, 1.5, None, NAN, float("inf"))[number % 7],
        "d": (Decimal("1.10"), Decimal("-0.05"), None)[number % 3],
        "v": number,
    }


def slim(number, time):
    return {"k": (1, 2, None)[number % 3], "v": number, **time}


@pytest.fixture(scope="module")
def answered(spark, tmp_path_factory):
    """An engine that has answered all cases; the same rows are there as tables under the streams' names."""
    root = tmp_path_factory.mktemp("results")
    replay = Replay(root / "source", *STREAMS)
    for first in (0, 8, 16):
        numbers = range(first, first + 8)
        replay.add(
            a=[wide(n) for n in numbers],
            b=[wide(n + 2) for n in reversed(numbers)],
            **{name: [{**slim(n, {"at": n // 2}), "k": ("é", "")[n % 2]} for n in numbers] for name in "ij"},
            **{name: [slim(n, {"day": date(1969, 12, 25 + n // 4)}) for n in numbers] for name in "pq"},
            **{name: [slim(n, {"at": n * SECOND // 2 - SECOND}) for n in numbers] for name in "lm"},
        )
    engine = replay.engine(spark, root / "state", {name: sql for name, (sql, _) in CASES.items()})
    for name in replay.streams:
        spark.read.parquet(str(root / "source" / name)).createOrReplaceTempView(name)
    with generated_code(spark):
        drain(engine, final=True)
    return engine


@pytest.mark.parametrize("name", CASES)
def test_the_select_list_is_as_spark_answers_it(answered, spark, name):
    found, expected = answered.results(name), spark.sql(CASES[name][1])
    assert found.columns == expected.columns
    assert [f.dataType for f in found.schema] == [f.dataType for f in expected.schema]
    rows = rows_of(expected)
    assert rows
    with generated_code(spark):
        assert bag(rows_of(found)) == bag(rows)


@pytest.mark.parametrize("name", CASES)
def test_the_same_rows_are_read_without_spark(answered, name):
    found = results_table(answered.catalog, name, answered.manifest())
    assert found.column_names == answered.results(name).columns
    assert bag(values_of(found)) == bag(rows_of(answered.results(name)))


def test_steps_can_be_asked_for_and_read_on_from(answered):
    found = answered.results("alone", step=True)
    assert found.columns == ["v", "s", "_step"]
    rows = rows_of(found)
    steps = sorted({step for *_, step in rows})
    assert steps == sorted(steps_by_batch(answered).values())
    later = answered.results("alone", step=True, since_step=steps[0])
    assert bag(rows_of(later)) == bag(row for row in rows if row[-1] > steps[0])
    assert rows_of(answered.results("alone", since_step=steps[-1])) == []


def test_an_unknown_name_gets_a_hint(answered):
    with pytest.raises(RegistrationError, match=r"no query 'alon'.*did you mean alone"):
        answered.results("alon")
    with pytest.raises(RegistrationError, match="no stream 'z'"):
        answered.late("z")


# ---------------------------------------------------------------------------------------- queries come and go

PLAIN = (stream("a", "ts timestamp, k bigint, v bigint"), stream("b", "ts timestamp, k bigint, v bigint"))
FIRST = "SELECT a.v, b.v AS w FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"
SECOND_QUERY = f"{FIRST} AND a.v > 2"
THIRD = "SELECT b.v, a.v AS w FROM b [RANGE 8 SECONDS], a [RANGE 8 SECONDS] WHERE b.k = a.k AND b.v > 1"


def rows_at(number):
    return {name: [{"ts": number * SECOND, "k": k, "v": number + k} for k in (0, 1)] for name in "ab"}


def reference(sql, numbers):
    streams = {s.name: s for s in PLAIN}
    rows = {name: [row for n in numbers for row in rows_at(n)[name]] for name in "ab"}
    return bag(results(parse_query(sql, streams), streams, rows))


def test_queries_that_come_and_go_leave_old_results_readable(spark, tmp_path):
    replay = Replay(tmp_path / "source", *PLAIN)
    state = tmp_path / "state"
    for number in (0, 1):
        replay.add(**rows_at(number))
    drain(replay.engine(spark, state, {"first": FIRST, "second": SECOND_QUERY}))
    replay.add(**rows_at(2))
    engine = replay.engine(spark, state)
    engine.drop("first")
    engine.query(THIRD, name="third")
    drain(engine)
    assert bag(rows_of(engine.results("first"))) == reference(FIRST, (0, 1))
    assert bag(rows_of(engine.results("second"))) == reference(SECOND_QUERY, range(3))
    assert bag(rows_of(engine.results("third"))) == reference(THIRD, (2,)), "it begins with the rows after it"
    for number in (3, 4):
        replay.add(**rows_at(number))
    engine = replay.engine(spark, state)
    engine.execute("DROP QUERY second PURGE")
    engine.query(FIRST, name="first")
    drain(engine)
    with pytest.raises(RegistrationError, match="no query 'second'"):
        engine.results("second")
    assert bag(rows_of(engine.results("first"))) == reference(FIRST, (3, 4))
    assert bag(rows_of(engine.results("third"))) == reference(THIRD, range(2, 5))
    assert [q["name"] for q in engine.queries()] == ["third", "first"]


def test_a_replaced_query_begins_anew_and_its_results_go_on(spark, tmp_path):
    replay = Replay(tmp_path / "source", *PLAIN)
    for number in (0, 1):
        replay.add(**rows_at(number))
    drain(replay.engine(spark, tmp_path / "state", {"first": FIRST}))
    replay.add(**rows_at(2))
    engine = replay.engine(spark, tmp_path / "state")
    engine.execute(f"CREATE OR REPLACE QUERY first AS {SECOND_QUERY}")
    drain(engine)
    assert bag(rows_of(engine.results("first"))) == reference(FIRST, (0, 1)) + reference(SECOND_QUERY, (2,))


def test_two_columns_of_one_name_are_refused_where_names_must_differ(spark, tmp_path):
    replay = Replay(tmp_path / "source", *PLAIN)
    engine = replay.engine(spark, tmp_path / "state")
    twice = FIRST.replace("b.v AS w", "b.v")
    with pytest.raises(PenstockError, match=r"'v'.*use AS"):
        engine.query(twice, name="q", into=tmp_path / "folder")
    assert engine.query(twice, name="q").results().columns == ["v", "v"]


def test_results_past_their_time_are_given_up(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "UPKEEP_EVERY", 1)
    replay = Replay(tmp_path / "source", *PLAIN)
    for number in range(6):
        replay.add(**rows_at(10 * number))
    engine = replay.engine(spark, tmp_path / "state")
    engine.query("SELECT ts, v FROM a", name="short", retain="20 seconds")
    drain(engine)
    kept = bag((row["ts"], row["v"]) for number in (30, 40, 50) for row in rows_at(number)["a"])
    assert bag(rows_of(engine.results("short"))) == kept
    engine.drop("short")
    assert bag(rows_of(engine.results("short"))) == kept  # expired results do not come back
    assert min(f.max_time for f in engine.manifest().results.values()) >= 20 * SECOND


def test_merging_many_small_result_files_changes_no_answer(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "UPKEEP_EVERY", 2)
    monkeypatch.setattr(retention, "MANY_FILES", 3)
    replay = Replay(tmp_path / "source", *PLAIN)
    for number in range(6):
        replay.add(**rows_at(number))
    engine = replay.engine(spark, tmp_path / "state", {"first": FIRST})
    got = []
    engine.query(SECOND_QUERY, name="second", into=lambda table, step: got.extend(table.to_pylist()))
    drain(engine)
    written = sum(name.startswith("results") for name in engine.manifest().results)
    assert written < 6
    assert bag(rows_of(engine.results("first"))) == reference(FIRST, range(6))
    assert bag(rows_of(engine.results("second"))) == reference(SECOND_QUERY, range(6))
    assert bag(tuple(row.values()) for row in got) == reference(SECOND_QUERY, range(6))
    newest = {row["v"] for row in rows_at(5)["a"]}
    last = max(steps_by_batch(engine).values())
    since = rows_of(engine.results("first", step=True, since_step=last - 1))
    assert since
    assert {row[-1] for row in since} == {last}
    assert {row[0] for row in since} >= newest


@pytest.mark.parametrize("count", [96, pytest.param(256, marks=pytest.mark.long)])
def test_many_queries_share_one_step(spark, tmp_path, count):
    replay = Replay(tmp_path / "source", *PLAIN)
    for number in range(3):
        replay.add(**rows_at(number))
    queries = {
        f"q{n}": f"SELECT a.v, b.v AS w FROM a [RANGE {1 + n % 4} SECONDS], b [RANGE {1 + n // 4 % 4} SECONDS] "
        f"WHERE a.k = b.k AND a.v >= {n // 16 % 4} AND b.v < {1 + n // 64}"
        for n in range(count)
    }
    engine = replay.engine(spark, tmp_path / "state", queries)
    status = drain(engine, final=True).status()["queries"]
    expected = {name: reference(sql, range(3)) for name, sql in queries.items()}
    assert {name: query["results"] for name, query in status.items()} == {n: e.total() for n, e in expected.items()}
    assert len(engine.network().joins) == 1
    for name in list(queries)[::37]:
        assert bag(rows_of(engine.results(name))) == expected[name], name


def test_sql_alone_is_enough(spark, tmp_path):
    replay = Replay(tmp_path / "source", *PLAIN)
    for number in range(3):
        replay.add(**rows_at(number))
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    streams = "".join(
        f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR ts AS ts) "
        f"USING parquet OPTIONS (path '{tmp_path / 'source' / name}', maxFilesPerTrigger '1');\n"
        for name in "ab"
    )
    shown = engine.execute(f"{streams} CREATE QUERY first AS {FIRST}; SHOW QUERIES; SHOW STREAMS; EXPLAIN first;")
    drain(engine, final=True)
    assert bag(rows_of(engine.results("first"))) == reference(FIRST, range(3))
    assert [q["name"] for q in shown[0]] == ["first"]
    assert [s["name"] for s in shown[1]] == ["a", "b"]
    assert "first" in shown[2]


def test_results_do_not_depend_on_the_time_zone_of_who_reads(spark, tmp_path):
    replay = Replay(tmp_path / "source", *(stream(name, "ts timestamp, k bigint, v bigint") for name in "ab"))
    replay.add(a=[{"ts": 3 * 3600 * SECOND, "k": 1, "v": 1}], b=[{"ts": 3 * 3600 * SECOND, "k": 1, "v": 2}])
    got = []
    engine = Engine(spark, tmp_path / "state", tasks=1)
    replay.declare(engine)
    text = f"SELECT hour(a.ts) AS h, CAST(b.ts AS STRING) AS t {AB} WHERE a.k = b.k"
    engine.query(text, name="q", into=lambda table, _: got.extend(table.to_pylist()))
    before = spark.conf.get("spark.sql.session.timeZone")
    drain(engine)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert rows_of(engine.results("q")) == [tuple(row.values()) for row in got]
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_types_that_cannot_travel_are_refused_when_they_are_declared(spark, tmp_path):
    replay = Replay(tmp_path / "source", *STREAMS[:2])
    engine = Engine(spark, tmp_path / "state", tasks=1)
    replay.declare(engine)
    with pytest.raises(RegistrationError, match=r"YEAR.* has type interval year"):
        engine.query("SELECT INTERVAL '1' YEAR AS y, v FROM a", name="q")
    assert not engine.queries()
