"""What the executors of a session are: their heap, and how many Python workers each runs at a time."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.model.memory import Budget, read_size


def budget_of(spark: SparkSession, memory: int) -> Budget:
    """The budget of one executor with that much memory. In a local session the driver is the executor."""
    context = spark.sparkContext
    conf = context.getConf()
    if str(context.master).startswith("local"):
        heap = conf.get("spark.driver.memory", "1g")
        workers = context.defaultParallelism
    else:
        heap = conf.get("spark.executor.memory", "1g")
        workers = int(conf.get("spark.executor.cores", "1") or 1)
    return Budget(memory, read_size(heap or "1g"), workers)
