"""The computation of a whole view by Spark: its shape is chosen by counts and costs, and the joined rows become Arrow.

Decides when measuring costs is worthwhile; `costs` measures them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.model.view import View
from penstock.planner.views.initial_load import Machine, first
from penstock.planner.views.shape_choice import explain_choice
from penstock.planner.views.shape_cost import Costs
from penstock.views.refresh.compute import compute, count_nodes
from penstock.views.rows.files import read_files, to_arrow, to_frame
from penstock.views.rows.slices import Files

LONG = 60.0  # estimated seconds from which measuring the costs of joins is worthwhile

Given: TypeAlias = pa.Table | Files  # rows with their counts


@dataclass(frozen=True)
class Computed:
    """The joined rows with their counts, the shape as text, the counts of each node, and the estimated seconds."""

    rows: pa.Table
    shape: str
    counted: tuple[tuple[float, float, Mapping[str, float]], ...]
    estimated: float

    @property
    def facts(self) -> dict[str, Any]:
        """What is stored about it."""
        return {"shape": self.shape, "counted": [list(c) for c in self.counted], "estimated": self.estimated}


def compute_on_spark(
    spark: SparkSession,
    view: View,
    sources: Mapping[str, Given],
    scratch: Path,
    machine: Machine | None = None,
    measure: Callable[[], Costs] | None = None,
) -> Computed:
    """The view from the rows of each source. `measure` runs first if it will take long and costs are unknown."""
    machine = machine or Machine(cores=spark.sparkContext.defaultParallelism)
    frames = {name: _frame(spark, given) for name, given in sources.items()}
    counted = count_nodes(view, frames)
    found = first(view, counted, machine)
    if measure is not None and not machine.calibrated and found.spark > LONG:
        found = first(view, counted, replace(machine, costs=measure(), calibrated=True))
    try:
        rows = to_arrow(compute(view, frames, found.choice.shape, found.relations, scratch, found.machine.costs))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    shape = explain_choice(found.choice, found.relations, [node.alias for node in view.nodes])
    nodes = tuple((c.rows, c.width, dict(c.distinct)) for c in counted)
    return Computed(rows, shape, nodes, found.spark)


def _frame(spark: SparkSession, given: Given) -> DataFrame:
    return read_files(spark, given) if isinstance(given, Files) else to_frame(spark, given)
