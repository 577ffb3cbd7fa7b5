"""Any Spark batch reader as a source: read whole at each look, and compared with what was there before.

A DataFrame over files knows the files of the moment it was made, so a source is given the way to make one, not the DataFrame itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.runtime.analysis import columns_of, spark_message
from penstock.views.snapshot import Comparison
from penstock.views.types import KNOWN, arrow_type, schema_of

MakeFrame = Callable[[], DataFrame]


def frame_feed(source: Source, make: MakeFrame) -> Comparison:
    """Looks at what Spark reads now."""
    schema = schema_of(source.name, source.columns)

    def read() -> pa.Table:
        try:
            return to_arrow(make().select(*(f"`{c.name}`" for c in source.columns))).cast(schema)
        except (PySparkException, Py4JJavaError) as error:
            raise StepError(f"source {source.name!r} cannot be read: {spark_message(error)}") from None

    return Comparison(read)


def reader_frame(spark: SparkSession, source: Source) -> MakeFrame:
    """How to make the DataFrame of a source that SQL declares: `format`, and the options of that format."""
    options = dict(source.options)
    form = options.pop("format", None)
    if form is None:
        raise RegistrationError(f"source {source.name!r} needs a format; write OPTIONS (format 'csv', path '..')")

    def make() -> DataFrame:
        reader = spark.read.format(form).options(**options)
        if source.columns:
            reader = reader.schema(", ".join(f"`{c.name}` {c.type}" for c in source.columns))
        return reader.load()

    return make


def frame_columns(name: str, make: MakeFrame) -> tuple[Column, ...]:
    """The columns of a DataFrame; refuses a stream, and types that views do not hold."""
    try:
        frame = make()
    except (PySparkException, Py4JJavaError) as error:
        raise RegistrationError(f"source {name!r} cannot be read: {spark_message(error)}") from None
    if frame.isStreaming:
        raise RegistrationError(f"source {name!r} is a stream; register a query over it, and use the query as a source")
    for column, kind in columns_of(frame):
        if arrow_type(kind) is None:
            msg = f"source {name!r}: column {column!r} has type {kind}, which views do not hold; select or cast it, known: {KNOWN}"
            raise RegistrationError(msg)
    return tuple(Column(n, t) for n, t in columns_of(frame))


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame, times in UTC."""
    found = frame.toArrow()
    fields = [
        pa.field(f.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(f.type) and f.type.tz else f.type)
        for f in found.schema
    ]
    return found.cast(pa.schema(fields))
