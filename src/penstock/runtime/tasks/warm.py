"""Python workers that are there before they are needed, with the compiled kernels loaded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def warm_workers(spark: SparkSession, tasks: int) -> None:
    """Start Python workers and load the compiled kernels in them, beside whatever else happens."""

    def warm() -> None:
        # In the same way as a step: Spark keeps apart the workers of other kinds of jobs.
        with contextlib.suppress(Exception):
            spark.range(0, tasks, 1, tasks).mapInArrow(_load_kernels, "id long").collect()

    threading.Thread(target=warm, name="penstock-warm", daemon=True).start()


def _load_kernels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Runs in the worker.
    import penstock.runtime.tasks.finish  # noqa: PLC0415
    import penstock.runtime.tasks.worker  # noqa: F401, PLC0415

    yield from batches
