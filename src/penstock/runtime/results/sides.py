"""Late and bad rows, which no query sees, as they came: put aside by steps, read here as DataFrames.

Which rows they are is said in `columns/verdict.py`; they were kept as text, with the reason, by the step that put them aside.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.model import Stream
from penstock.runtime.arrivals.ingest import SIDE_FORMATS
from penstock.runtime.results.read import VERIFIED
from penstock.runtime.spelling import ddl
from penstock.state.manifest import Manifest
from penstock.state.store import LocalStore

_SIDE_SCHEMA = "_row string, _step bigint, _reason string, _progress bigint"


def side_rows(spark: SparkSession, store: LocalStore, manifest: Manifest, stream: Stream, reason: str) -> DataFrame:
    """The whole late or bad rows of a stream, with `_step`, `_reason` and `_progress`."""
    files = [s for s in manifest.sides if s.stream == stream.name and s.reason == reason]
    if files:
        raw = spark.read.schema(_SIDE_SCHEMA).options(**VERIFIED).parquet(*[store.path(f.name) for f in files])
    else:
        raw = spark.createDataFrame([], _SIDE_SCHEMA)
    parsed = raw.withColumn("_row", F.from_json("_row", ddl(stream.columns), SIDE_FORMATS))
    return parsed.select("_row.*", "_step", "_reason", "_progress")
