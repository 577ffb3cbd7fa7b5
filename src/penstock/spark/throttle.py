"""What Spark's sources may read in each batch: nothing of streams far ahead in event time, a bounded part of others.

Only files can be throttled: their source honours a limit of no files. Sources that would read everything get a limit in
bytes (files) or rows (Kafka), if the engine admits by cost; the first batch of a query is planned before that. The
limits are those of the running Spark query, so they do not outlive it, and Spark's log of offsets contains only what
was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.planner.admission import Admission
from penstock.spark.sources import leaves_of, listed

_FILES, _KAFKA = "FileStreamSource", "KafkaMicroBatchStream"
_EVERYTHING = "ReadAllAvailable"


TOGETHER = " + "  # between the names of streams that share sources


def source_count(frame: DataFrame) -> int:
    """How many streaming sources a DataFrame reads."""
    return sum(leaf.isStreaming() for leaf in leaves_of(frame))


class Throttle:
    """The limits of one running Spark query. `order` are its streams in order, each with its number of sources."""

    def __init__(
        self, spark: SparkSession, order: Sequence[tuple[str, int]], admission: Admission | None = None
    ) -> None:
        self._admission = admission
        self.admitted: Mapping[str, str | None] = {}  # what limits each stream, once that is known; None: nothing
        self._open: list[Any] = []  # sources that would read everything, and can be limited
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        self._order = order
        self._sources: Mapping[str, list[Any]] | None = None
        self._usual: Any = None
        self.query: StreamingQuery | None = None  # once it has started
        self.held: frozenset[str] = frozenset()

    def hold(self, streams: frozenset[str]) -> None:
        """From the next batch on read nothing of these streams (if they can be throttled), and all others as usual."""
        if streams == self.held or self.query is None:
            return
        execution = self.query._jsq.streamingQuery()  # noqa: SLF001
        sources = self._looked(execution)
        held = frozenset(name for name in streams if name in sources)
        if held == self.held:
            return
        self._limit(execution, sources, held)

    def admit(self) -> None:
        """From the next batch on read as much as the admission says."""
        if self.query is None:
            return
        execution = self.query._jsq.streamingQuery()  # noqa: SLF001
        sources = self._looked(execution)
        if self._admission is None or not self._open:
            return
        limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        for source in self._open:
            files = _kind(source) == _FILES
            limit = limits.maxBytes(self._admission.bytes) if files else limits.maxRows(self._admission.rows)
            self._usual = self._usual.updated(source, limit)
        self._limit(execution, sources, self.held)
        self.admitted = self._limits(execution)

    def _limit(self, execution: Any, sources: Mapping[str, list[Any]], held: frozenset[str]) -> None:
        limits = self._usual
        nothing = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(0)
        for name in held:
            for source in sources[name]:
                limits = limits.updated(source, nothing)
        getattr(execution, "uniqueSources_$eq")(limits)
        self.held = held

    def _looked(self, execution: Any) -> Mapping[str, list[Any]]:
        """The sources of each stream that can be throttled; what all sources are is seen once."""
        if self._sources is None:
            self._usual = execution.uniqueSources()
            own = self._of_streams(execution.sources())
            self._sources = {n: sources for n, sources in own.items() if all(_kind(s) == _FILES for s in sources)}
            every = [source for sources in own.values() for source in sources]
            self._open = [s for s in every if _kind(s) in (_FILES, _KAFKA) and self._limit_of(s) is None]
            self.admitted = self._limits(execution)
        return self._sources

    def _limits(self, execution: Any) -> dict[str, str | None]:
        """What limits each stream; None if one of its sources is read to its end in each batch."""
        found: dict[str, str | None] = {}
        for names, sources in self._of_streams(execution.sources()).items():
            limits = [self._limit_of(source) for source in sources]
            known = list(dict.fromkeys(limit for limit in limits if limit is not None))
            found |= dict.fromkeys(names.split(TOGETHER), ", ".join(known) if limits and None not in limits else None)
        return found

    def _limit_of(self, source: Any) -> str | None:
        """What a batch may read of a source; None if it reads everything."""
        limit = self._usual.get(source)
        return str(limit.get().toString()) if limit.isDefined() and _kind(limit.get()) != _EVERYTHING else None

    def _of_streams(self, sources: Any) -> dict[str, list[Any]]:
        """The sources of each stream; none if they are not as the streams declare them."""
        every = listed(sources)
        if len(every) != sum(count for _, count in self._order):
            return {}
        found, place = {}, 0
        for name, count in self._order:
            found[name] = every[place : place + count]
            place += count
        return found


def _kind(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
