"""A whole view computed by Spark from the files of its readers; what is stored of it and explained without Spark."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.initial_load import Machine
from penstock.planner.views.shape_cost import Costs
from penstock.storage.local import LocalStore
from penstock.views.catalog import ViewCatalog
from penstock.views.refresh import costs as module
from penstock.views.refresh import whole
from penstock.views.refresh.costs import known_costs, measured_costs, memory_of
from penstock.views.refresh.spark import compute_on_spark
from penstock.views.rows.bag import COUNT
from penstock.views.rows.files import read_files
from penstock.views.sources import frame
from penstock.views.sources.frame import FrameFeed
from penstock.views.sources.parquet import ParquetFeed
from penstock.views.sources.snapshot import SnapshotReader

from .memory import bag

PAIR = (Column("k", "bigint"), Column("v", "string"))
JOIN = "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND a.v <> 'z'"
TYPES = {
    "tinyint": 1, "int": 2, "double": 0.5, "boolean": True, "string": "ä", "date": date(2024, 2, 29),
    "decimal(12,3)": Decimal("1.250"),
    "timestamp": datetime(2024, 5, 1, 12, tzinfo=UTC), "timestamp_ntz": datetime(2024, 5, 1, 12),  # noqa: DTZ001
}  # fmt: skip


def write(path, rows):
    aside = path.with_suffix(".aside")
    pq.write_table(pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}), aside)
    aside.replace(path)


def catalog(root, spark=None):
    made = ViewCatalog(spark, LocalStore(str(root / "state"), durable=False), None)
    for name in ("a", "b"):
        (root / name).mkdir(exist_ok=True)
        made.add_source(Source(name, PAIR, "parquet", (("path", str(root / name)),)))
    return made


@pytest.mark.spark
def test_spark_reads_the_slices_of_a_reader_by_itself(tmp_path, spark, monkeypatch):
    """Rows that have gone are not among them, and nothing is scanned by the driver."""
    made = catalog(tmp_path, spark)
    write(tmp_path / "a" / "1.parquet", [(k, f"a{k}") for k in range(6)])
    write(tmp_path / "b" / "1.parquet", [(k // 2, f"b{k}") for k in range(8)])
    view = made.add_view(JOIN, "v", strategy="recompute", computed="spark")
    monkeypatch.setattr(SnapshotReader, "scan", None)
    facts = view.refresh()
    assert facts["scanned"] == [6, 8]
    assert sorted(map(tuple, (r.values() for r in view.to_arrow().to_pylist()))) == [
        (f"a{k // 2}", f"b{k}") for k in range(8)
    ]
    write(tmp_path / "a" / "1.parquet", [(1, "a1"), (1, "a1"), (2, "z")])
    facts = view.refresh()
    assert Counter(tuple(r.values()) for r in view.to_arrow().to_pylist()) == {("a1", "b2"): 2, ("a1", "b3"): 2}
    assert facts["scanned"] == [3, 8]
    text = view.explain()
    assert "computed by Spark in " in text
    assert "probe" in text
    slices = {f.name.rpartition("/")[2] for n in ("a", "b") for f in made.reader(n)._versions.newest.content}
    held = {p.name for n in ("a", "b") for p in (tmp_path / "state/sources" / n / "slices").glob("*.arrow")}
    assert slices <= held
    made.close()


@pytest.mark.spark
def test_every_type_comes_through_a_slice_unchanged(tmp_path, spark):
    columns = tuple(Column(f"c{n}", kind) for n, kind in enumerate(TYPES))
    source = Source("s", columns, "parquet", (("path", str(tmp_path / "s")),))
    (tmp_path / "s").mkdir()
    reader = SnapshotReader(source, LocalStore(str(tmp_path / "state"), durable=False), "s", ParquetFeed(source))
    schema = reader._versions.schema
    values = {c.name: [value, None] for c, value in zip(columns, TYPES.values(), strict=True)}
    table = pa.table(values, schema=pa.schema([schema.field(c.name) for c in columns]))
    pq.write_table(table, tmp_path / "s" / "1.parquet")
    with reader.files([c.name for c in columns]) as (files, position):
        found = read_files(spark, files).toArrow()
    assert (files.rows, position) == (2, 1)
    wanted = reader.scan([c.name for c in columns], ()).rows
    assert bag(found.cast(wanted.schema)) == bag(wanted)


@pytest.mark.spark
def test_times_in_a_view_mean_the_same_in_a_session_of_another_zone(tmp_path, spark):
    """Computed by Spark, and by its changes: a constant without an offset is in UTC for both."""
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    made = ViewCatalog(elsewhere, LocalStore(str(tmp_path / "state"), durable=False), None)
    columns = (Column("k", "bigint"), Column("at", "timestamp"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.add_source(Source(name, columns, "parquet", (("path", str(tmp_path / name)),)))
        hours = pa.array([datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in (0, 3, 6)], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"k": [0, 3, 6], "at": hours}), tmp_path / name / "1.parquet")
    sql = (
        "SELECT a.k, b.at FROM a, b WHERE a.k = b.k AND a.at >= TIMESTAMP '2024-05-01 03:00:00' AND b.at < "
        "'2024-05-01 06:00'"
    )
    view = made.add_view(sql, "v", strategy="batch", computed="spark")
    assert view.refresh()["shape"]
    expected = [{"k": 3, "at": datetime(2024, 5, 1, 3, tzinfo=UTC)}]
    assert view.to_arrow().to_pylist() == expected
    pq.write_table(pa.table({"k": [0, 3, 6], "at": hours}), tmp_path / "a" / "2.parquet")
    view.refresh()
    assert view.to_arrow().to_pylist() == 2 * expected
    made.close()


@pytest.mark.spark
def test_times_without_a_zone_are_the_same_in_a_session_of_another_zone(tmp_path, spark):
    """From slices, from a table and read back; 2:30 on the tenth of March is no time in New York."""
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    made = ViewCatalog(elsewhere, LocalStore(str(tmp_path / "state"), durable=False), None)
    times = [datetime(2024, 3, 10, 2, 30), datetime(2024, 3, 10, 22)]  # noqa: DTZ001
    held = pa.table({"k": [1, 2], "at": pa.array(times, pa.timestamp("us"))})
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pq.write_table(held, tmp_path / name / "1.parquet")
        made.add_source(Source(name, (), "parquet", (("path", str(tmp_path / name)),)))
    sql = "SELECT a.at, b.k FROM a, b WHERE a.k = b.k AND a.at < TIMESTAMP_NTZ '2024-03-10 20:00:00'"
    view = made.add_view(sql, "v", strategy="batch", computed="spark")
    assert view.refresh()["shape"]
    assert view.to_arrow().to_pylist() == [{"at": times[0], "k": 1}]
    assert view.read().dtypes == [("at", "timestamp_ntz"), ("k", "bigint")]
    assert [tuple(row) for row in view.read().collect()] == [(times[0], 1)]
    given = held.append_column(COUNT, pa.array([1, 1]))
    computed = compute_on_spark(elsewhere, view.view, {"a": given, "b": given}, tmp_path / "scratch")
    assert computed.rows.column("c0").to_pylist() == times[:1]
    (tmp_path / "a" / "1.parquet").unlink()
    view.refresh()
    assert view.to_arrow().num_rows == 0
    made.close()


def test_the_shape_is_drawn_without_spark_and_before_anything_was_read(tmp_path):
    made = catalog(tmp_path)
    write(tmp_path / "a" / "1.parquet", [(k, "x") for k in range(300)])
    write(tmp_path / "b" / "1.parquet", [(k, "x") for k in range(100)])
    view = made.add_view(JOIN, "v")
    text = view.explain()
    assert "computed whole:\n  here: here " in text
    assert "rows estimated, costs assumed" in text
    assert "a (100 rows)" in text  # a third of 300 by the filter
    assert "b (100 rows)" in text
    view.refresh()
    assert "computed whole:" in view.explain()
    made.close()


def test_what_a_computation_took_here_is_what_the_next_should_take(tmp_path):
    made = catalog(tmp_path)
    write(tmp_path / "a" / "1.parquet", [(k, "x") for k in range(300)])
    write(tmp_path / "b" / "1.parquet", [(k, "x") for k in range(100)])
    view = made.add_view(JOIN, "v")
    view.refresh()
    facts = view.store.newest.facts
    found = view.whole.first(facts)
    assert found.machine.here == pytest.approx(facts[-1]["seconds"] / (300 + 100 + 100))
    made.close()


def test_costs_are_measured_once_and_kept_with_the_state(tmp_path, spark_like, monkeypatch):
    measured = []
    monkeypatch.setattr(module, "calibrate", lambda *_, **__: measured.append(1) or Costs(read=7e-7))
    store = LocalStore(str(tmp_path), durable=False)
    assert known_costs(store, 3) is None
    assert measured_costs(store, spark_like) == measured_costs(store, spark_like) == Costs(read=7e-7)
    assert known_costs(LocalStore(str(tmp_path)), 3) == Costs(read=7e-7)
    assert measured == [1]
    made = ViewCatalog(None, store, None)
    monkeypatch.setattr("penstock.views.catalog.os.cpu_count", lambda: 3)
    assert made._machine().calibrated
    assert made._machine().costs.read == 7e-7


@pytest.fixture
def spark_like():
    class Session:
        class sparkContext:  # noqa: N801
            defaultParallelism = 3  # noqa: N815

    return Session()


@pytest.mark.spark
def test_costs_are_measured_when_it_will_take_long(tmp_path, spark, monkeypatch):
    monkeypatch.setattr("penstock.views.refresh.spark.LONG", 0.0)
    monkeypatch.setattr(module, "calibrate", lambda *_, **__: Costs(read=7e-7))
    made = catalog(tmp_path, spark)
    write(tmp_path / "a" / "1.parquet", [(1, "x")])
    write(tmp_path / "b" / "1.parquet", [(1, "y")])
    made.add_view(JOIN, "v", computed="spark").refresh()
    assert known_costs(made.store, spark.sparkContext.defaultParallelism) == Costs(read=7e-7)
    assert made._machine().calibrated
    assert 2**20 < memory_of(spark) == made._machine().memory < 2**40
    made.close()


def test_a_source_that_says_nothing_is_no_error(tmp_path, monkeypatch):
    made = catalog(tmp_path)
    monkeypatch.setattr(ParquetFeed, "estimate", lambda _: None)
    view = made.add_view(JOIN, "v")
    assert "does not say how many rows" in view.explain()
    view.whole.on_spark, view.whole.machine = object, lambda: Machine(here=1.0)
    assert not view.whole.for_spark(())
    monkeypatch.setattr(whole, "SPARK_ROWS", -1)
    assert not view.whole.for_spark(())
    made.close()


@pytest.mark.spark
def test_many_rows_of_a_dataframe_are_compared_by_spark(tmp_path, spark, monkeypatch):
    """NULL, NaN and -0.0 included; only what differs comes back."""
    monkeypatch.setattr(frame, "MANY", 2)
    columns = (Column("k", "bigint"), Column("x", "double"))
    source = Source("s", columns, "dataframe")
    before = [(1, 0.0), (1, 0.0), (2, math.nan), (None, None), (3, 1.0)]
    after = [(1, -0.0), (2, math.nan), (None, None), (4, 1.0), (4, 1.0)]
    shown = [before]
    make = lambda: spark.createDataFrame(shown[-1], "k bigint, x double")  # noqa: E731
    reader = SnapshotReader(source, LocalStore(str(tmp_path), durable=False), "s", FrameFeed(source, make))
    assert reader.position() == 1
    monkeypatch.setattr(frame, "difference", None)
    assert reader.position() == 1
    shown.append(after)
    changes, position = reader.changes(1)
    assert position == 2
    assert bag(changes) == {(1, 0.0): -1, (3, 1.0): -1, (4, 1.0): 2}
