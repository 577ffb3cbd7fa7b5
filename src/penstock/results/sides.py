"""Late and bad rows, which no query sees, as they came: put aside by steps, read here as DataFrames, and merged into larger files.

Which rows they are is said in `columns/verdict.py`; they were kept as text, with the reason, by the step that put them aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.model import Stream
from penstock.results.stored import VERIFIED, checked
from penstock.spark.ingest import SIDE_FORMATS
from penstock.sql.spelling import ddl
from penstock.state.manifest import Manifest, SideFile
from penstock.state.sides import Retained, alike_sides
from penstock.storage.store import Store, file_name

_SIDE_SCHEMA = "_row string, _step bigint, _reason string, _progress bigint"


def side_rows(spark: SparkSession, store: Store, manifest: Manifest, stream: Stream, reason: str) -> DataFrame:
    """The whole late or bad rows of a stream, with `_step`, `_reason` and `_progress`."""
    files = [s for s in manifest.sides if s.stream == stream.name and s.reason == reason]
    if files:
        raw = spark.read.schema(_SIDE_SCHEMA).options(**VERIFIED).parquet(*[checked(store, f) for f in files])
    else:
        raw = spark.createDataFrame([], _SIDE_SCHEMA)
    parsed = raw.withColumn("_row", F.from_json("_row", ddl(stream.columns), SIDE_FORMATS))
    return parsed.select("_row.*", "_step", "_reason", "_progress")


def merge_sides(
    store: Store, sides: Iterable[SideFile], retained: Retained, step: int
) -> list[tuple[SideFile, list[str]]]:
    """Merge small files where there are many: (new file, files it replaces)."""
    return [(_merge(store, group, step), [s.name for s in group]) for group in alike_sides(sides, retained)]


def _merge(store: Store, group: Sequence[SideFile], step: int) -> SideFile:
    merged = pa.concat_tables([pq.read_table(store.path(s.name), page_checksum_verification=True) for s in group])
    name = file_name("sides", step, "parquet")
    with store.create(name) as file:
        pq.write_table(merged, file, write_page_checksum=True)
    newest = max(s.at for s in group)
    return replace(group[-1], name=name, step=step, rows=len(merged), bytes=store.size(name), at=newest)
