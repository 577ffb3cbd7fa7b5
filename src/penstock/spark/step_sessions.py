"""Spark sessions that are set up for steps: the stream's own, in which batches come, and one for steps without a batch.

Both are clones, so that nobody else sees their settings. The session that people give is set up in `session`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.model.limits import LARGEST_VALUE

# No setting may be among these by which Spark keeps Python workers apart (such as the size of their buffers): results are read elsewhere too.
SETTINGS = {
    # The number of a stage in a plan shall not be part of its code: it depends on which streams bring rows, and is no reason to compile.
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.adaptive.enabled": "false",  # one exchange with a known number of tasks: nothing to adapt
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(
        2**31 - 1
    ),  # any lower limit makes Spark add up all sizes for each row
    "spark.sql.maxPlanStringLength": "20000",  # constants of a plan may be long, and Spark keeps the texts of a thousand plans
    # Hashes every row to find out whether a repeated map task gave other rows; streams are refused if they can.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


# Where values may be much larger than rows, or a task may get many parcels, adding up sizes is what keeps a batch within memory: Spark's buffers, which
# double as they grow, end the JVM at about 800 MB in one batch if it has 2 GB.
LARGE_VALUES = {"spark.sql.execution.arrow.maxBytesPerBatch": str(LARGEST_VALUE)}


class StepSessions:
    """The sessions of one run's steps. Expressions mean in them what they meant when the queries were registered: `settings` are those of the registry."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._prepared: Mapping[str, str] | None = None
        self._own: SparkSession | None = None

    def forget(self) -> None:
        """Set up sessions anew with the next step: their settings may have changed."""
        self._prepared, self._own = None, None

    def prepare(self, session: SparkSession, settings: Mapping[str, str]) -> None:
        """Set up the session of a batch, unless it was done before: all batches of a Spark query have the same one."""
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
