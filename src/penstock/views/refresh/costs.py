"""What Spark's joins cost on this machine: measured once, when a long computation is worth it, and kept with the state; and its memory."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from math import inf
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.planner.views.shape_cost import Costs
from penstock.storage.seal import seal, unseal
from penstock.storage.store import Store
from penstock.views.refresh.calibrate import calibrate

_FOLDER = "views/_costs"  # no view is called that
_ROWS = 100_000
_SHARE = 4  # of the memory that execution and storage share, one part is for tables


def known_costs(store: Store, cores: int) -> Costs | None:
    """The costs that were measured with so many cores, if they were."""
    name = _name(cores)
    try:
        return Costs(**unseal(store.read(name), store.label(name)))
    except FileNotFoundError:
        return None


def measured_costs(store: Store, spark: SparkSession) -> Costs:
    """The costs, measured now unless they are known."""
    cores = spark.sparkContext.defaultParallelism
    found = known_costs(store, cores)
    if found is None:
        scratch = Path(store.path(f"{_FOLDER}/scratch"))
        store.make(f"{_FOLDER}/scratch")
        try:
            found = calibrate(spark, scratch, _ROWS, repetitions=2)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        store.put_if_absent(_name(cores), seal(asdict(found)))
    return found


def memory_of(spark: SparkSession) -> float:
    """Bytes that the hash tables of all executors together may take."""
    context = spark.sparkContext
    try:
        status = context._jsc.sc().getExecutorMemoryStatus().values().iterator()  # noqa: SLF001  (Spark tells it nowhere else)
        found = []
        while status.hasNext():
            found.append(float(status.next()._1()))  # noqa: SLF001
    except AttributeError:  # a remote session does not tell
        return inf
    if len(found) > 1:  # the driver of a cluster joins nothing, but which one it is, its size does not say
        found = sorted(found)[1:]
    return sum(found) / _SHARE


def room() -> float:
    """Bytes of memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _name(cores: int) -> str:
    return f"{_FOLDER}/{cores}.json"
