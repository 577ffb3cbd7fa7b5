"""Results that lie in files of one query alone, with its select list and nothing else: read, and put together from many small files.

Such a file has the rows of one step, of which its name begins with the number. One that was put together holds the step as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.model import Column
from penstock.results.layout import MERGED, OWN, OWN_KINDS, STEP
from penstock.results.part import Part
from penstock.results.stored import VERIFIED, batches, checked, read
from penstock.sql.spelling import ddl, quote
from penstock.state.manifest import Manifest, ResultFile
from penstock.state.registry import QueryRecord
from penstock.storage.store import Store

_STEP_OF_NAME = r"([0-9]+)-[0-9a-f]+\.parquet"


def own_files(manifest: Manifest, query: int, part: Part) -> list[ResultFile]:
    """The files of a query alone with rows of that part. Their rows do not say their times, so none is left out by these."""
    mine = (f for f in manifest.results.values() if f.kind in OWN_KINDS and f.count(query))
    return [f for f in mine if part.holds(f) and (f.kind == MERGED or part.includes(f.step))]


def own_frames(
    spark: SparkSession, store: Store, record: QueryRecord, manifest: Manifest, part: Part, *, step: bool
) -> list[DataFrame]:
    """The rows in files of a query alone, plus `_step` if asked."""
    columns = [Column(name, kind) for name, kind in zip(record.item_names, record.item_types, strict=True)]
    found = own_files(manifest, record.id, part)
    frames = []
    for kind in OWN_KINDS:
        paths = [checked(store, f) for f in found if f.kind == kind]
        if not paths:
            continue
        schema = ddl(columns) + (f", {STEP} bigint" if kind == MERGED else "")
        frame = spark.read.schema(schema).options(**VERIFIED).parquet(*paths)
        if kind == MERGED:
            frame = frame.where(part.steps)
        number = F.col(STEP) if kind == MERGED else F.regexp_extract(F.input_file_name(), _STEP_OF_NAME, 1)
        frames.append(
            frame.select(*[quote(c.name) for c in columns], *([number.cast("bigint").alias(STEP)] if step else []))
        )
    return frames


def own_tables(store: Store, record: QueryRecord, manifest: Manifest, part: Part) -> Iterator[pa.Table]:
    """The same without a Spark job."""
    for file in own_files(manifest, record.id, part):
        yield from own_rows(checked(store, file), file.kind, record, part)


def own_rows(path: str, kind: str, record: QueryRecord, part: Part) -> Iterator[pa.Table]:
    """The rows of that part in one file."""
    merged = kind == MERGED
    for batch in batches(path, [*record.item_names, *([STEP] if merged else [])]):
        rows = pa.Table.from_batches([batch])
        if merged:
            steps = rows.column(STEP).to_pylist()
            rows = rows.filter(pa.array([part.includes(step) for step in steps])).drop_columns(STEP)
        yield rows


def with_steps(store: Store, files: Sequence[ResultFile]) -> list[pa.Table]:
    """The rows of such files, each with its step."""
    found = []
    for file in files:
        rows = read(checked(store, file))
        if file.kind == OWN:
            rows = rows.append_column(STEP, pa.repeat(pa.scalar(file.step, pa.int64()), len(rows)))
        found.append(rows)
    return found
