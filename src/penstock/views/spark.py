"""The computation of a whole view given to Spark: its shape is chosen from counts, and the joined rows come back as Arrow."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.model.view import View
from penstock.planner.views.shape_choice import explain_choice
from penstock.views.compute import choose_shape, compute
from penstock.views.frame import to_arrow


def compute_on_spark(
    spark: SparkSession, view: View, scanned: Mapping[str, pa.Table], scratch: Path
) -> tuple[pa.Table, str]:
    """(the joined rows with their counts, the shape as text) from rows of each source with their counts."""
    frames = {name: spark.createDataFrame(rows) for name, rows in scanned.items()}
    choice, relations = choose_shape(view, frames)
    try:
        rows = to_arrow(compute(view, frames, choice.shape, relations, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return rows, explain_choice(choice, relations, [node.alias for node in view.nodes])
