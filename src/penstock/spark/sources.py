"""Name the sources of a streaming DataFrame, so that Spark's checkpoint lets streams be added and removed later.

Spark has no call to name those of a finished DataFrame (decision 0031): the plan's leaves are renamed through Spark's
own classes (classic Spark, not Connect).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

# With these on, an unnamed source anywhere in the session fails to load, so they are on only during our start.
_EVOLUTION = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


def listed(items: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [items.apply(number) for number in range(items.size())]


def leaves_of(frame: DataFrame) -> list[Any]:
    """The sources of a DataFrame, as nodes of its plan."""
    return listed(frame._jdf.queryExecution().analyzed().collectLeaves())  # noqa: SLF001


def name_sources(frame: DataFrame, name: str) -> DataFrame:
    """The same DataFrame with its streaming sources named `name` (`name_1`, .. if there are several)."""
    spark = frame.sparkSession
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    taken: list[str] = []

    def rename(plan: Any) -> Any:
        children = listed(plan.children())
        if not children:
            if not plan.isStreaming():
                return plan
            own = name if not taken else f"{name}_{len(taken)}"
            taken.append(own)
            return plan.withSourceIdentifyingName(jvm.org.apache.spark.sql.catalyst.streaming.UserProvided(own))
        renamed = jvm.java.util.ArrayList()
        for child in children:
            renamed.add(rename(child))
        return plan.withNewChildren(jvm.scala.jdk.javaapi.CollectionConverters.asScala(renamed).toIndexedSeq())

    plan = rename(frame._jdf.queryExecution().analyzed())  # noqa: SLF001
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # noqa: SLF001
    return DataFrame(dataset, spark)


@contextmanager
def with_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set session settings for a moment."""
    before = {key: old for key, value in wanted.items() if (old := spark.conf.get(key, None)) != value}
    try:
        for key in before:
            spark.conf.set(key, wanted[key])
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def source_evolution(spark: SparkSession) -> Any:
    return with_settings(spark, _EVOLUTION)
