"""To which batch of Spark's query the jobs of a thread belong.

Spark says so on the thread of its callback; steps run on the thread of the run, which says the same of itself (decision
0038). Then who stops Spark's query, or cancels its group of jobs, cancels the running step, and tasks know their batch.
"""

from __future__ import annotations

from py4j.clientserver import ClientServer
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class JobMarks:
    """The marks of the thread that calls. What does not change from batch to batch is said once."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        # Else a Python thread has no thread of the JVM for itself, and marks would be those of others.
        self._pinned = isinstance(context._gateway, ClientServer)  # noqa: SLF001
        self._query = self._group = self._description = ""
        self._inside: bool | None = None  # None: whatever the thread has inherited

    def follow(self, query: StreamingQuery, name: str) -> None:
        """Batches are those of this query from now on."""
        self._query, self._group = str(query.id), str(query.runId)
        self._description = f"{name}\nid = {self._query}\nrunId = {self._group}"
        self._inside = None

    def enter(self, batch: int) -> None:
        """Jobs belong to this batch."""
        if not self._pinned:
            return
        if not self._inside:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            self._context.setLocalProperty(QUERY, self._query)
            self._inside = True
        self._context.setLocalProperty(BATCH, str(batch))

    def leave(self) -> None:
        """Jobs belong to no batch: who cancels those of Spark's query does not mean them."""
        if self._pinned and self._inside is not False:
            for name in (*GROUP, QUERY, BATCH):
                self._context.setLocalProperty(name, None)  # type: ignore[arg-type]
            self._inside = False
