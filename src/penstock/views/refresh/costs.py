"""Costs of Spark's joins on this machine: measured once, when a long computation justifies it, and stored; memory."""

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
_SHARE = 4  # one part in so many of the memory for execution and storage is for tables


def known_costs(store: Store, cores: int) -> Costs | None:
    """The costs measured with so many cores, if there are any."""
    name = _name(cores)
    try:
        return Costs(**unseal(store.read(name), store.label(name)))
    except FileNotFoundError:
        return None


def measured_costs(store: Store, spark: SparkSession) -> Costs:
    """The costs, measured now unless known."""
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
    """Bytes for the hash tables of all executors together."""
    context = spark.sparkContext
    try:
        status = context._jsc.sc().getExecutorMemoryStatus().values().iterator()  # noqa: SLF001  (Spark tells it nowhere else)
        found = []
        while status.hasNext():
            found.append(float(status.next()._1()))  # noqa: SLF001
    except AttributeError:  # not available in a remote session
        return inf
    if len(found) > 1:  # the driver of a cluster joins nothing, but the sizes do not show which one it is
        found = sorted(found)[1:]
    return sum(found) / _SHARE


def room() -> float:
    """Bytes of memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _name(cores: int) -> str:
    return f"{_FOLDER}/{cores}.json"
