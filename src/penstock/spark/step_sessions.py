"""Spark sessions configured for steps: the stream's own, in which batches run, and one for steps without a batch.

Both are clones, so that nobody else sees their settings (decision 0030). `session` configures the user's session.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.model.limits import LARGEST_VALUE

# Must not contain settings by which Spark separates Python workers (such as buffer sizes): others read results too.
SETTINGS = {
    # The number of a stage must not be part of its code: it depends on the streams with rows, and would recompile.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.adaptive.enabled": "false",  # one exchange with a known number of tasks: nothing to adapt
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(
        2**31 - 1
    ),  # any lower limit makes Spark add up all sizes for each row
    "spark.sql.maxPlanStringLength": "20000",  # constants of a plan may be long, and Spark keeps a thousand plan texts
    # Hashes every row to detect a repeated map task with other rows; streams for which that is possible are refused.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


# Where values may be much larger than rows, or a task may get many parcels, only summing sizes keeps a batch within
# memory: Spark's buffers, which double as they grow, exhaust a JVM of 2 GB at about 800 MB in one batch.
def batches_of(size: int) -> Mapping[str, str]:
    """The setting for Arrow batches of at most so many bytes, or of one row."""
    return {"spark.sql.execution.arrow.maxBytesPerBatch": str(size)}


LARGE_VALUES = batches_of(LARGEST_VALUE)


class StepSessions:
    """The sessions of one run's steps. `settings` are the registry's, so that expressions keep their meaning."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._prepared: Mapping[str, str] | None = None
        self._own: SparkSession | None = None

    def forget(self) -> None:
        """Configure sessions again at the next step: their settings may have changed."""
        self._prepared, self._own = None, None

    def prepare(self, session: SparkSession, settings: Mapping[str, str]) -> None:
        """Configure the session of a batch, once: all batches of a Spark query have the same one."""
        if self._prepared != settings:
            _set_up(session, settings)
            self._prepared = settings

    def own(self, settings: Mapping[str, str]) -> SparkSession:
        """A session like that of a batch, for steps that have none."""
        if self._own is None:
            clone = self.spark._jsparkSession.cloneSession()  # noqa: SLF001
            self._own = SparkSession(self.spark.sparkContext, clone)
            _set_up(self._own, settings)
        return self._own


def _set_up(session: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in {**SETTINGS, **settings}.items():
        session.conf.set(name, value)
