"""Reading a batch's Parquet files in mappers: whole columns, instead of single rows through Spark.

Spark still decides which files a batch has, and logs it (decision 0010). This is for streams that are such files, or
what mappers can compute from their rows (`selected.py`); all others of the batch come through Spark. So do files that
Arrow might read differently from Spark, and rows with something that cannot be computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from penstock.spark.ingest import read_together
from penstock.spark.selected import kind_of, selection_of
from penstock.spark.sources import leaves_of, listed
from penstock.step.files import FilePiece
from penstock.step.layout import Layout
from penstock.step.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Source:
    """A source in the running query, of one stream or several; it has `leaves` of the query's plan."""

    streams: tuple[str, ...]
    leaves: int
    selection: Selection | None  # if mappers may read its files


def sources_of(frames: Mapping[str, DataFrame], layout: Layout) -> tuple[Source, ...]:
    """The sources of all streams, in the order of reading."""
    found = []
    for names in read_together(frames, layout):
        frame = frames[names[0]]
        found.append(Source(tuple(names), len(leaves_of(frame)), selection_of(frame)))
    return tuple(found)


def read_apart(
    query: StreamingQuery, batch: DataFrame, sources: Sequence[Source], apart: Collection[Source]
) -> tuple[list[FilePiece], DataFrame | None]:
    """The files of some sources in the query's present batch, and the rows of all others; no files if inseparable."""
    if not apart:
        return [], batch
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001
    leaves = listed(execution.logical().collectLeaves())
    if len(leaves) != sum(source.leaves for source in sources):
        return [], batch
    relations, pieces, place = [], [], 0
    for source in sources:
        own, place = leaves[place : place + source.leaves], place + source.leaves
        if source not in apart or source.selection is None:
            continue
        (leaf,) = own
        kind = kind_of(leaf)
        if kind == "LocalRelation" and leaf.data().isEmpty():
            continue  # nothing new
        if kind != "LogicalRelation" or not leaf.relation().partitionSchema().isEmpty():
            return [], batch
        paths = _local(leaf.relation().location().inputFiles())
        if paths is None:
            return [], batch
        relations.append(leaf.relation())
        pieces += [FilePiece(stream, path, source.selection) for path in paths for stream in source.streams]
    if len(apart) == len(sources):
        return pieces, None
    if not pieces:
        return [], batch
    kept = _others(batch.sparkSession, execution.executedPlan(), relations)
    return ([], batch) if kept is None else (pieces, _rows_of(kept, batch))


def _local(names: Sequence[str]) -> list[str] | None:
    """The paths of local files; None if there are others."""
    places = [urlsplit(name) for name in names]
    if any(place.scheme != "file" or place.netloc for place in places):
        return None
    return [unquote(place.path) for place in places]


def _others(spark: SparkSession, plan: Any, relations: Sequence[Any]) -> list[Any] | None:
    """The parts of a plan with rows of other sources than these files; None if they cannot be separated."""
    known: Any = spark.sparkContext._jvm.java.util.IdentityHashMap()  # type: ignore[union-attr]  # noqa: SLF001
    for relation in relations:
        known.put(relation, "")
    kept, found = [], 0
    for branch in _branches(plan):
        leaves = branch.collectLeaves()
        scan = leaves.apply(0) if leaves.size() == 1 else None
        if scan is not None and kind_of(scan) == "FileSourceScanExec" and known.containsKey(scan.relation()):
            found += 1
        else:
            kept.append(branch)
    return kept if found == len(relations) else None


def _branches(plan: Any) -> Iterator[Any]:
    """The inputs of a union, or the plan itself."""
    children = listed(plan.children())
    inner = children[0] if len(children) == 1 else None
    if kind_of(plan) == "UnionExec":
        for child in children:
            yield from _branches(child)
    elif kind_of(plan) in ("WholeStageCodegenExec", "InputAdapter") and kind_of(inner) in ("UnionExec", "InputAdapter"):
        yield from _branches(inner)
    else:
        yield plan


def _rows_of(branches: Sequence[Any], batch: DataFrame) -> DataFrame | None:
    """The rows of some parts of a batch's plan; None without any."""
    if not branches:
        return None
    rows = branches[0].execute()
    for branch in branches[1:]:
        rows = rows.union(branch.execute())
    session, schema = batch.sparkSession, batch._jdf.schema()  # noqa: SLF001
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, schema, False), session)  # noqa: SLF001
