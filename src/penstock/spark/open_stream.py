"""The streaming DataFrames of streams declared in SQL, opened with Spark's own readers.

A DataFrame from a program is used unchanged; one that is opened here reads a bounded part of its source per step.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import RegistrationError
from penstock.model import Stream
from penstock.spark.analysis import spark_message
from penstock.sql.spelling import ddl, quote
from penstock.storage.secrets import redacted, resolved

# The default limits of one step: the first batch after a pause must not be everything.
_FILES = ("maxFilesPerTrigger", "100")


_ADMISSION = {
    "parquet": _FILES, "json": _FILES, "csv": _FILES, "orc": _FILES, "text": _FILES, "avro": _FILES,
    "kafka": ("maxOffsetsPerTrigger", "1000000"),
}  # fmt: skip


def open_stream(spark: SparkSession, stream: Stream) -> DataFrame:
    """The streaming DataFrame of a stream declared in SQL."""
    assert stream.source is not None
    if stream.source.format == "socket":
        msg = (
            f"stream {stream.name!r}: what a socket has sent cannot be read again after a crash; put a log in "
            "between (files, Kafka)"
        )
        raise RegistrationError(msg)
    given = resolved(stream.source.options, f"stream {stream.name!r}")
    reader = spark.readStream.format(stream.source.format).options(**given)
    if stream.source.format not in ("rate", "rate-micro-batch", "kafka"):
        reader = reader.schema(ddl(stream.columns))
    limit = _ADMISSION.get(stream.source.format)
    if limit is not None and limit[0].lower() not in {k.lower() for k, _ in stream.source.options}:
        reader = reader.option(*limit)
    try:
        frame = reader.load()
        if [(f.name, f.dataType.simpleString()) for f in frame.schema] == [(c.name, c.type) for c in stream.columns]:
            return frame  # unchanged, so that workers may read its files themselves
        return frame.selectExpr(*[f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in stream.columns])
    except (PySparkException, Py4JJavaError) as error:
        said = redacted(spark_message(error), stream.source.options)
        raise RegistrationError(f"stream {stream.name!r}: {said}") from None
