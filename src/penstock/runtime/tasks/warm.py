"""Python workers that are there before they are needed, with the compiled kernels loaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.runtime.session import gone

_log = logging.getLogger("penstock.warm")


def warm_workers(spark: SparkSession, tasks: int) -> None:
    """Start Python workers and load the compiled kernels in them, beside whatever else happens.

    Only the job itself runs beside: what Spark imports to plan it, pandas above all, may not be imported by two threads at once.
    """
    # In the same way as a step: Spark keeps apart the workers of other kinds of jobs.
    with _logged(spark):
        job = spark.range(0, tasks, 1, tasks).mapInArrow(_load_kernels, "id long")
        threading.Thread(target=_run, args=(spark, job), name="penstock-warm", daemon=True).start()


def _run(spark: SparkSession, job: DataFrame) -> None:
    with _logged(spark):
        job.collect()


@contextmanager
def _logged(spark: SparkSession) -> Iterator[None]:
    """A step that cannot have workers fails by itself, and says why."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (nothing depends on warm workers)
        _log.debug("warming workers failed", exc_info=True)
        if gone(spark) is None:
            _log.warning(
                "Python workers could not be started ahead of time: %s",
                next(iter(str(error).splitlines()), repr(error)),
            )


def _load_kernels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Runs in the worker.
    import penstock.runtime.tasks.finish  # noqa: PLC0415
    import penstock.runtime.tasks.worker  # noqa: F401, PLC0415

    yield from batches
