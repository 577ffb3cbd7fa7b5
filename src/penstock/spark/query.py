"""Spark's own streaming query of a run: all streams as one DataFrame, its trigger, and its status.

The run processes batches (`batches.py`); here the query is created and inspected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.errors import PenstockError, StateError
from penstock.model import Stream
from penstock.planner.admission import Admission
from penstock.spark.analysis import spark_message
from penstock.spark.failure import explained
from penstock.spark.ingest import read_together, unify
from penstock.spark.offset_log import CHECKPOINT
from penstock.spark.sources import name_sources
from penstock.spark.spark_log import REMEDY, of_log
from penstock.spark.throttle import TOGETHER, Throttle, source_count
from penstock.state.registry import StreamRecord
from penstock.step.happened import BatchArrived
from penstock.step.inbox import Inbox
from penstock.step.layout import Layout

ABANDONED_SECONDS = 5  # a query with a longer trigger may sleep, and notices its end only afterwards


class OnBatch:
    """The callback of Spark's query for every batch: it brings the batch to the run, and waits for the step.

    The JVM holds it as long as Python holds the query. It knows only the queue, since neither runs nor the engine would
    ever be collected if it knew them.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        event = BatchArrived(batch, batch_id)
        self._inbox.put(event)
        self._inbox.pause(self._inbox.outcome(event.outcome))


def make_throttle(
    spark: SparkSession, frames: Mapping[str, DataFrame], layout: Layout, admission: Admission | None = None
) -> Throttle:
    """The limits of a query over these streams that has not started yet."""
    # A source of several streams is throttled for none of them: one may be what the other waits for.
    together = read_together(frames, layout)
    order = [(TOGETHER.join(names), source_count(frames[names[0]])) for names in together]
    return Throttle(spark, order, admission)


def named_frames(
    frames: Mapping[str, DataFrame], layout: Layout, records: Mapping[str, StreamRecord]
) -> dict[str, DataFrame]:
    """The DataFrame of each stream with its sources named as in the checkpoint; streams on one source share it."""
    together = read_together(frames, layout)
    named = [name_sources(frames[names[0]], records[names[0]].source_name) for names in together]
    return {name: frame for names, frame in zip(together, named, strict=True) for name in names}


def query_writer(
    frames: Mapping[str, DataFrame],
    streams: Mapping[str, Stream],
    layout: Layout,
    location: str,
    on_batch: OnBatch,
    trigger: str | None,
    name: str,
) -> DataStreamWriter:
    """The query, ready to start; without a trigger it reads what is there now, and ends."""
    writer = (
        unify(frames, streams, layout)
        .writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", location)
        .queryName(name)
    )
    return writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)


def trigger_seconds(spark: SparkSession, trigger: str) -> float:
    """The length of a trigger in seconds, parsed by Spark, which knows more forms."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return float(jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(trigger).intervalMs()) / 1000


def unread(query: Any) -> bool:
    """True while Spark has seen offsets that no step has consumed yet, or has not polled (again)."""
    status = query.status
    looking = status["isTriggerActive"] or status["message"].startswith("Initializing")
    return bool(status["isDataAvailable"] or looking)


def abandon(query: StreamingQuery) -> None:
    """Let a query end whose session is gone: it must not write to the checkpoint beside another one."""
    with contextlib.suppress(Exception):
        query.stop()  # marks it as ended before it fails
    with contextlib.suppress(Exception):
        query.awaitTermination(ABANDONED_SECONDS)


@contextlib.contextmanager
def starting(root: str) -> Iterator[None]:
    """Turn Spark's refusal to start into one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _failure(spark_message(error), root, "did not start") from None


def query_failure(error: StreamingQueryException, root: str) -> PenstockError:
    """Why the query ended, in one line."""
    text = str(error)
    return _failure(text.splitlines()[0] if text else repr(error), root, "ended with an error")


def _failure(text: str, root: str, what: str) -> PenstockError:
    if of_log(text):
        return StateError(f"Spark's own log in {root}/{CHECKPOINT} is damaged: {text}. {REMEDY}")
    return PenstockError(f"the Spark query of the engine on {root} {what}: {explained(text, text)}")
