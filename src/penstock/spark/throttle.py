"""Throttles streams that are far ahead in event time, by the limit that Spark passes to its sources in each batch.

Only files can be throttled: their source honours a limit of no files. The limits are those of the running Spark query,
so they do not outlive it, and Spark's log of offsets contains only what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.sources import leaves_of, listed

_FILES = "FileStreamSource"


def source_count(frame: DataFrame) -> int:
    """How many streaming sources a DataFrame reads."""
    return sum(leaf.isStreaming() for leaf in leaves_of(frame))


class Throttle:
    """The limits of one running Spark query. `order` are its streams in order, each with its number of sources."""

    def __init__(self, spark: SparkSession, order: Sequence[tuple[str, int]]) -> None:
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
        if self._sources is None:
            self._usual = execution.uniqueSources()
            self._sources = self._known(execution.sources())
        held = frozenset(name for name in streams if name in self._sources)
        if held == self.held:
            return
        limits = self._usual
        nothing = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(0)
        for name in held:
            for source in self._sources[name]:
                limits = limits.updated(source, nothing)
        getattr(execution, "uniqueSources_$eq")(limits)
        self.held = held

    def _known(self, sources: Any) -> dict[str, list[Any]]:
        """The sources of each stream that can be throttled; none if they are not as the streams declare them."""
        every = listed(sources)
        if len(every) != sum(count for _, count in self._order):
            return {}
        found, place = {}, 0
        for name, count in self._order:
            own = every[place : place + count]
            if all(source.getClass().getSimpleName() == _FILES for source in own):
                found[name] = own
            place += count
        return found
