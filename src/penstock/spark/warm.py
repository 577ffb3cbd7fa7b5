"""Python workers started before they are needed, with the compiled kernels loaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.session import gone

_log = logging.getLogger("penstock.warm")


class Warming:
    """Starting workers. `told` gets a line if they cannot be started."""

    def __init__(self, spark: SparkSession, tasks: int, told: list[str]) -> None:
        self.spark, self.told = spark, told
        self._thread: threading.Thread | None = None
        with self._telling():
            job = spark.range(0, tasks, 1, tasks).mapInArrow(_loaded, "id long")
            self._thread = threading.Thread(target=self._run, args=(job,), name="penstock-warm", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until the workers are there or have failed: no step loads what they are loading."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, job: DataFrame) -> None:
        with self._telling():
            job.collect()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """A step that cannot have workers fails by itself, and says why."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (nothing depends on warm workers)
            _log.debug("warming workers failed", exc_info=True)
            if gone(self.spark) is None:
                why = next(iter(str(error).splitlines()), repr(error))
                self.told.append(f"Python workers could not be started ahead of time: {why}")
                _log.warning(self.told[-1])


def warm_workers(spark: SparkSession, tasks: int, told: list[str]) -> Warming:
    """Start Python workers and load the compiled kernels in them, concurrently.

    `spark` is a session of steps: Spark separates the workers of sessions with other settings, and of other kinds of
    jobs. Only the job itself is concurrent: two threads must not import at once what Spark imports to plan it, above
    all pandas.
    """
    return Warming(spark, tasks, told)


def _loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Runs in the worker.
    from penstock.spark.daemon import load  # noqa: PLC0415

    load()
    yield from batches
