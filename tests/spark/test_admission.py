"""Sources of DataFrames that would read everything are limited by cost, and the status says what limits each stream."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.planner import admission

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.int64())])


def put(folder, numbers):
    for number in numbers:
        rows = [{"ts": number * 1_000_000 + n, "k": n % 3} for n in range(100)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{number:03}.parquet")


def test_files_are_read_by_bytes_once_it_is_known_what_they_cost(spark, tmp_path, monkeypatch):
    for name in ("FIRST_BYTES", "LEAST_BYTES", "MOST_BYTES"):
        monkeypatch.setattr(admission, name, 4_000)  # a file or two
    engine = Engine(spark, tmp_path / "state", memory="64 GB")
    frames = {}
    for name in ("free", "own"):
        (tmp_path / name).mkdir()
        put(tmp_path / name, [0])
        reader = spark.readStream.schema("ts timestamp, k long")
        reader = reader.option("maxFilesPerTrigger", 7) if name == "own" else reader
        frames[name] = reader.parquet(str(tmp_path / name))
        engine.stream(name, frames[name], event_time="ts", delay="1 second")
    engine.stream("clock", spark.readStream.format("rate").load(), event_time="timestamp", delay="1 second")
    engine.query("SELECT x.k FROM free [RANGE 1 SECOND] x, own [RANGE 1 SECOND] y WHERE x.k = y.k", name="q")
    run = engine.start(trigger="100 milliseconds")
    try:
        wait(lambda: run.status()["streams"]["free"]["admitted"] not in ("unknown", None))
        streams = run.status()["streams"]
        assert "4000" in streams["free"]["admitted"].replace(",", "")
        assert "7" in streams["own"]["admitted"]
        assert streams["clock"]["admitted"] is None
        before = run.status()["step"]
        put(tmp_path / "free", range(1, 21))
        wait(lambda: run.status()["streams"]["free"]["rows"] == 2100)
        assert run.status()["step"] - before >= 5
    finally:
        run.stop()


def wait(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)
