"""Rows that go to a folder are written once, as Spark's own sink would write them, and are what everybody reads."""

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from penstock import Engine, RegistrationError
from penstock.model.time import SECOND
from penstock.results import retention
from penstock.results.layout import MERGED, OWN
from penstock.spark import job
from penstock.storage import listed_folder
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

WIDE = (
    "ts timestamp, k bigint, n int, s string, x double, d decimal(10,2), day date, l timestamp_ntz, f boolean, v bigint"
)
STREAMS = (stream("a", WIDE), stream("b", WIDE), stream("i", "at int, k bigint, v bigint", event_time="at"))
BATCH = (
    "FROM a, b WHERE unix_micros(b.ts) - unix_micros(a.ts) < 3000000 AND unix_micros(a.ts) - unix_micros(b.ts) < "
    "2000000"
)
PAIRS = "FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"
PIECE = "timestamp_micros(unix_micros(ts) DIV 2000000 * 2000000 + 2000000)"

# name -> (the query, the same as a batch query)
CASES = {
    "columns": (f"SELECT a.ts, a.n, b.s, a.x, b.d, a.f, b.day, a.l, a.k {PAIRS}", None),
    "named": (
        f"SELECT a.v AS `a v`, b.v AS `select`, result_time AS `wann?` {PAIRS}",
        f"SELECT a.v AS `a v`, b.v AS `select`, greatest(a.ts, b.ts) AS `wann?` {BATCH} AND a.k = b.k",
    ),
    "made": (
        f"SELECT a.v + b.v AS total, a.v < b.v AS less {PAIRS}",
        f"SELECT a.v + b.v AS total, a.v < b.v AS less {BATCH} AND a.k = b.k",
    ),
    "by_spark": (
        f"SELECT a.v, b.v AS w {PAIRS} AND length(concat(a.s, b.s)) > 1",
        f"SELECT a.v, b.v AS w {BATCH} AND a.k = b.k AND length(concat(a.s, b.s)) > 1",
    ),
    "single": ("SELECT * FROM a WHERE v > 3", "SELECT * FROM a WHERE v > 3"),
    "single_computed": (
        (
            "SELECT v, 0.908 * n AS price, upper(s) AS u, CASE WHEN hour(ts) > 1 THEN 'x' ELSE s END AS c FROM a "
            "WHERE concat(s, 'y') <> 'y'"
        ),
        (
            "SELECT v, 0.908 * n AS price, upper(s) AS u, CASE WHEN hour(ts) > 1 THEN 'x' ELSE s END AS c FROM a "
            "WHERE concat(s, 'y') <> 'y'"
        ),
    ),
    "single_raising": (
        "SELECT v, 1 / (v - 5) AS r FROM a WHERE v <> 6",
        "SELECT v, try_divide(1, v - 5) AS r FROM a WHERE v <> 6",
    ),
    "integers": ("SELECT at, v, result_time AS t FROM i WHERE k = 1", "SELECT at, v, at AS t FROM i WHERE k = 1"),
    "windows": (
        (
            "SELECT k, count(*) AS n, sum(x) AS x, max(s) AS s, avg(d) AS d, window_end "
            "FROM a [TUMBLING 2 SECONDS] GROUP BY k"
        ),
        (
            f"SELECT k, count(*) AS n, sum(x) AS x, max(s) AS s, avg(d) AS d, {PIECE} AS window_end "
            f"FROM a GROUP BY k, {PIECE}"
        ),
    ),
    "having": (
        "SELECT window_start, window_end, min(v) AS v FROM a [TUMBLING 2 SECONDS] HAVING count(*) > 5",
        (
            f"SELECT {PIECE} - INTERVAL 2 SECONDS AS window_start, {PIECE} AS window_end, min(v) AS v FROM a "
            f"GROUP BY {PIECE} HAVING count(*) > 5"
        ),
    ),
}
CASES["columns"] = CASES["columns"][0], CASES["columns"][0].replace(PAIRS, f"{BATCH} AND a.k = b.k")


def wide(number):
    return {
        "ts": number // 3 * SECOND, "k": (1, 0, None, 1)[number % 4], "n": (0, 1, None)[number % 3],
        "s": ("x", "", "é", None)[number % 4], "x": (float("nan"), -0.0, 1.5, None)[number % 4],
        "d": (Decimal("1.10"), Decimal("-0.05"), None)[number % 3], "day": None, "l": number * SECOND,
        "f": (True, None, False)[number % 3], "v": number,
    }  # fmt: skip


def started(spark, root, queries, rows=(8, 8, 8), **options):
    """An engine that has answered queries that each go to a folder of their own."""
    replay = Replay(root / "source", *STREAMS)
    first = 0
    for count in rows:
        numbers = range(first, first + count)
        some = [wide(n) for n in numbers]
        replay.add(a=some, b=list(reversed(some)), i=[{"at": n, "k": n % 2, "v": n} for n in numbers])
        first += count
    engine = Engine(spark, root / "state", tasks=2, **options)
    replay.declare(engine)
    for name, sql in queries.items():
        engine.query(sql, name=name, into=root / "out" / name)
    return engine, replay


@pytest.fixture(scope="module", params=["few", "many"])
def answered(request, spark, tmp_path_factory):
    """All cases answered, by tasks that map for themselves or by mappers; the streams' rows are there as tables."""
    root = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            patch.setattr(job, "FEW_ROWS", -1)
        engine, replay = started(spark, root, {name: sql for name, (sql, _) in CASES.items()})
        drain(engine, final=True)
    for name in replay.streams:
        spark.read.parquet(str(root / "source" / name)).createOrReplaceTempView(name)
    return engine, root / "out"


@pytest.mark.parametrize("name", CASES)
def test_a_folder_has_what_spark_answers_under_its_names_and_of_its_types(answered, spark, name):
    engine, out = answered
    expected, listed, read = spark.sql(CASES[name][1]), spark.read.parquet(str(out / name)), engine.results(name)
    rows = bag(rows_of(expected))
    assert rows
    kinds = [f.dataType for f in engine.results(name).schema]
    for found in (listed, read):
        assert found.columns == list(engine.catalog.record(name).item_names) == expected.columns
        assert [f.dataType for f in found.schema] == kinds
        assert bag(rows_of(found)) == rows
        assert all(field.nullable for field in listed.schema)
    count = duckdb.connect().execute(f"SELECT count(*) FROM '{out / name}/*.parquet'").fetchone()
    assert count == (sum(rows.values()),)


def test_rows_lie_once_in_files_that_the_folders_share(answered):
    engine, out = answered
    files = engine.manifest().results.values()
    assert {file.kind for file in files} == {OWN}
    for file in files:
        path = Path(engine.store.path(file.name))
        ((query, count),) = file.counts
        assert count == file.rows == pq.read_metadata(path).num_rows
        linked = [p for p in (out / engine.catalog.numbered(query).name).glob("part-*") if p.samefile(path)]
        assert len(linked) == 1
        assert linked[0].name.startswith(f"part-{file.step:08d}-{query}-")
    published = [p for own in out.iterdir() for p in own.glob("*.parquet")]
    assert len(published) == len(files)


def test_what_mappers_answer_goes_to_no_task_and_what_raises_is_counted(answered):
    engine, _ = answered
    network, counters = engine.network(), engine.manifest().counters
    mapped = {name for name in CASES if name.startswith("single") or name == "integers"}
    assert {m.name for t in network.tables if t.mapped for m in network.joins[t.entries[0].join].members} == mapped
    for table in network.tables:
        assert (counters.table(table.name).shipped > 0) != table.mapped
    assert counters.query(engine.catalog.record("single_raising").id).errors == 1
    assert counters.query(engine.catalog.record("single").id).results == 20


def test_steps_can_be_asked_for(answered):
    engine, _ = answered
    rows = rows_of(engine.results("single", step=True))
    steps = {step: bag(row[:-1] for row in rows if row[-1] == step) for step in {row[-1] for row in rows}}
    assert len(steps) == 3
    later = engine.results("single", since_step=min(steps))
    assert bag(rows_of(later)) == sum((own for step, own in steps.items() if step > min(steps)), type(bag([]))())


def test_queries_of_one_join_with_a_folder_and_without_lie_apart(spark, tmp_path):
    engine, _ = started(spark, tmp_path, {"one": f"SELECT a.v, b.s {PAIRS}", "two": f"SELECT b.v {PAIRS}"})
    engine.query(f"SELECT a.n, a.v AS x {PAIRS} AND a.v > 9", name="kept")
    drain(engine, final=True)
    rows = [(a, b) for a in map(wide, range(24)) for b in map(wide, range(24))]
    pairs = [
        (a, b) for a, b in rows
        if a["k"] == b["k"] is not None and b["ts"] - a["ts"] < 3 * SECOND and a["ts"] - b["ts"] < 2 * SECOND
    ]  # fmt: skip
    assert bag(rows_of(engine.results("one"))) == bag((a["v"], b["s"]) for a, b in pairs)
    assert bag(rows_of(engine.results("two"))) == bag((b["v"],) for _, b in pairs)
    assert bag(rows_of(engine.results("kept"))) == bag((a["n"], a["v"]) for a, _ in pairs if a["v"] > 9)
    shared = [file for file in engine.manifest().results.values() if file.kind != OWN]
    assert sum(file.rows for file in shared) == sum(a["v"] > 9 for a, _ in pairs)
    for file in shared:
        names = pq.read_schema(engine.store.path(file.name)).names
        assert len([n for n in names if not n.startswith("_")]) == 2, "only what is read there is stored"


def test_others_read_the_results_of_a_query_that_goes_to_a_folder(spark, tmp_path):
    engine, _ = started(spark, tmp_path, {"below": "SELECT ts, v FROM a WHERE v > 3"})
    engine.query("SELECT count(*) AS n, sum(v) AS s, window_end FROM below [TUMBLING 2 SECONDS ON ts]", name="above")
    drain(engine, final=True)
    assert sum(n for n, _, _ in rows_of(engine.results("above"))) == 20
    assert sum(s for _, s, _ in rows_of(engine.results("above"))) == sum(range(4, 24))


def test_small_files_are_put_together_and_every_step_can_still_be_read(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "MANY_FILES", 3)
    monkeypatch.setattr(retention, "FIRST_UPKEEP", 2)
    engine, _ = started(spark, tmp_path, {"one": "SELECT v FROM a"}, rows=(3,) * 6)
    drain(engine)
    kinds = [file.kind for file in engine.manifest().results.values()]
    assert MERGED in kinds
    assert OWN in kinds
    rows = rows_of(engine.results("one", step=True))
    steps = sorted({step for _, step in rows})
    assert sorted(v for v, _ in rows) == list(range(18))
    assert [sorted(v for v, step in rows if step == one) for one in steps] == [
        [n, n + 1, n + 2] for n in range(0, 18, 3)
    ]
    for one in steps:
        assert bag(rows_of(engine.results("one", since_step=one))) == bag((v,) for v, step in rows if step > one)
    published = pq.read_table(tmp_path / "out" / "one")
    assert sorted(published.column("v").to_pylist()) == list(range(18))


def test_a_folder_elsewhere_gets_copies(spark, tmp_path, monkeypatch):
    def elsewhere(*_args, **_options):
        raise OSError(18, "Invalid cross-device link")

    with monkeypatch.context() as patch:
        patch.setattr(listed_folder.os, "link", elsewhere)
        listed_folder.Path(tmp_path / "out").mkdir()
        (tmp_path / "out" / listed_folder.OWNER).touch()
        (tmp_path / "file").write_bytes(b"rows")
        listed_folder.link(str(tmp_path / "file"), str(tmp_path / "out"), "part")
        listed_folder.link(str(tmp_path / "file"), str(tmp_path / "out"), "part")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {listed_folder.OWNER, "part"}
    assert (tmp_path / "out" / "part").read_bytes() == b"rows"
    assert not (tmp_path / "out" / "part").samefile(tmp_path / "file")


def test_what_needs_more_than_its_select_list_is_stored_with_it(spark, tmp_path):
    engine, _ = started(spark, tmp_path, {})
    out = tmp_path / "out"
    engine.query("SELECT v FROM a", name="retained", into=out / "retained", retain="1 hour")
    engine.query("SELECT v FROM a", name="ordered", into=out / "ordered", ordered=True)
    engine.query(
        "SELECT count(*) AS n, k FROM a [TUMBLING 2 SECONDS] GROUP BY k ORDER BY n LIMIT 1",
        name="top",
        into=out / "top",
    )
    last = (
        "SELECT sum(x) AS x, k, n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] "
        "GROUP BY k, n ORDER BY x DESC NULLS FIRST, n LIMIT 2"
    )
    engine.query(last, name="last", into=out / "last")
    engine.query("SELECT v FROM a", name="function", into=lambda *_: None)
    engine.query("SELECT v AS _STEP FROM a", name="called", into=out / "called")
    drain(engine, final=True)
    assert OWN not in {file.kind for file in engine.manifest().results.values()}
    assert sorted(pq.read_table(out / "called").column("_STEP").to_pylist()) == list(range(24))
    for name in ("top", "last"):
        rows = bag(rows_of(engine.results(name)))
        assert bag(rows_of(spark.read.parquet(str(out / name)))) == rows
        assert rows
    assert sorted(pq.read_table(out / "ordered").column("v").to_pylist()) == list(range(24))


def test_a_query_that_becomes_ordered_begins_anew(spark, tmp_path):
    engine, _ = started(spark, tmp_path, {"one": "SELECT v FROM a"})
    drain(engine)
    with pytest.warns(UserWarning, match="'one' is ordered from now on"):
        engine.execute(f"CREATE OR REPLACE QUERY one AS SELECT v FROM a ORDER BY result_time INTO '{tmp_path}/out/one'")
    assert rows_of(engine.results("one")) == []


# ------------------------------------------------------------------------------------------------------------ bounds


def test_a_query_with_too_many_results_stops_alone_without_a_part_of_them_and_can_go_on(spark, tmp_path):
    queries = {
        "many": f"SELECT a.v, b.v AS w {PAIRS}",
        "single": "SELECT v FROM a",
        "some": "SELECT v FROM a WHERE v < 20",
    }
    engine, replay = started(spark, tmp_path, queries, rows=(2, 10, 2), result_rows=8)
    engine.query("SELECT v FROM b WHERE v > 0", name="shared")
    engine.query("SELECT v FROM b WHERE v > 8", name="other")
    run = drain(engine)
    assert run.error is None
    status = run.status()["queries"]
    stopped = {name for name, own in status.items() if own["suspended"]}
    assert stopped == {"many", "single", "some", "shared"}
    assert all("more than 8 rows" in status[name]["suspended"] for name in stopped)
    steps = {step for *_, step in rows_of(engine.results("other", step=True))}
    assert len(steps) == 2
    for name in ("single", "some"):
        assert bag(rows_of(engine.results(name))) == bag([(0,), (1,)])
        assert sorted(pq.read_table(tmp_path / "out" / name).column("v").to_pylist()) == [0, 1]
        assert status[name]["results"] == 2
    assert bag(rows_of(engine.results("shared"))) == bag([(1,)])
    for name in ("single", "shared"):
        engine.execute(f"ALTER QUERY {name} RESUME")
    assert {n for n, why in run.status()["queries"].items() if why["suspended"]} == stopped, "of the run that has ended"
    replay.add(a=[wide(14)], b=[wide(14)], i=[])
    status = drain(engine).status()["queries"]
    assert {name for name, own in status.items() if own["suspended"]} == {"many", "some"}
    assert bag(rows_of(engine.results("single"))) == bag([(0,), (1,), (14,)])
    assert bag(rows_of(engine.results("shared"))) == bag([(1,), (14,)])


def test_only_what_was_suspended_for_what_it_may_do_again_goes_on(spark, tmp_path):
    engine, _ = started(spark, tmp_path, {"one": "SELECT v FROM a"})
    drain(engine)
    step = engine.manifest().step
    engine.execute("ALTER QUERY one RESUME")
    assert engine.manifest().step == step, "nothing to do"
    with pytest.raises(RegistrationError, match="no query 'two'"):
        engine.execute("ALTER QUERY two RESUME")
    with pytest.raises(RegistrationError, match="at least 1"):
        Engine(spark, tmp_path / "other", result_rows=0)
