"""The first computation of a view on Spark: counts its relations, and turns a shape into one lazy DataFrame.

Independent groups are independent stages of one job, so Spark runs them at the same time, each with as many tasks as
its share of the cores. Rows are sent only where the shape says that the key changes. Only pieces of a join that does
not fit in memory are written in between. `shape_choice` chooses the shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.model import Expression, Ref, View
from penstock.planner.views.relations import (
    Classes,
    Counted,
    Members,
    Place,
    Relations,
    equal_places,
    relations_of,
    width_of,
)
from penstock.planner.views.shape_choice import Choice, choose
from penstock.planner.views.shape_cost import Costs
from penstock.planner.views.shapes import Segment, Shape, copied
from penstock.views.rows.bag import COUNT

Frames = Mapping[str, DataFrame]  # by name of source


def cores_of(frames: Frames) -> int:
    """How many tasks run at the same time."""
    return next(iter(frames.values())).sparkSession.sparkContext.defaultParallelism


# -- what is joined ---------------------------------------------------------------------------------------------------


def count_relations(view: View, frames: Frames) -> Relations:
    """The relations of a view, counted now."""
    return relations_of(view, count_nodes(view, frames))


def count_nodes(view: View, frames: Frames) -> list[Counted]:
    """Count rows and distinct join values of every node, in one job."""
    nodes = range(len(view.nodes))
    keys = [sorted({column for own, column in equal_places(view) if own == node}) for node in nodes]
    prepared = [_prepared(view, frames, node) for node in nodes]
    counts = [_counts(frame, node, keys[node]) for node, frame in enumerate(prepared)]
    found = {row["node"]: row for row in reduce(DataFrame.unionAll, counts).collect()}
    counted = []
    for node, frame in enumerate(prepared):
        width = width_of(kind for _, kind in frame.dtypes)
        different = dict(zip(keys[node], map(float, found[node]["different"]), strict=True))
        counted.append(Counted(float(found[node]["rows"]), width, different))
    return counted


def _counts(frame: DataFrame, node: int, keys: Sequence[str]) -> DataFrame:
    different = [F.approx_count_distinct(_place((node, key))) for key in keys]
    values = F.array(*different) if different else F.array().cast("array<bigint>")
    return frame.agg(F.lit(node).alias("node"), F.count(F.lit(1)).alias("rows"), values.alias("different"))


def choose_shape(
    view: View, frames: Frames, costs: Costs | None = None, cores: int | None = None, memory: float = inf
) -> tuple[Choice, Relations]:
    """The shape to compute a view by, from counts made now."""
    relations = count_relations(view, frames)
    return choose(relations, costs or Costs(), cores or cores_of(frames), memory), relations


def _column(node: int, column: str) -> str:
    return f"n{node}_{column}"


def _named(ref: Ref) -> str:
    return f"`{_column(ref.role, ref.column)}`"


def _place(place: Place) -> Column:
    return F.col(f"`{_column(*place)}`")


def _prepared(view: View, frames: Frames, node: int) -> DataFrame:
    """The rows of a node that its filters keep, with the columns that the view needs under unique names."""
    frame = frames[view.nodes[node].source]
    for expression in view.local(node):
        frame = frame.filter(expression.sql(lambda ref: f"`{ref.column}`"))
    counts = [F.col(COUNT).alias(_column(node, COUNT))] if COUNT in frame.columns else []
    return frame.select(*(F.col(f"`{c}`").alias(_column(node, c)) for c in view.columns(node)), *counts)


# -- the join ---------------------------------------------------------------------------------------------------------


def compute(
    view: View, frames: Frames, shape: Shape, relations: Relations, scratch: Path, costs: Costs | None = None
) -> DataFrame:
    """The joined rows of a view (`view.outputs`) with their multiplicity. Pieces are computed at once, under `scratch`.

    Sources whose frames have a column of multiplicities multiply them in.
    """
    run = _Run(view, frames, shape, relations, scratch, (costs or Costs()).small)
    joined = run.results()
    everywhere = [e for e in (*view.filters, *view.residuals) if len(e.roles) == 0]
    for expression in everywhere:
        joined = joined.filter(expression.sql(_named))
    total = F.lit(1).cast("bigint")
    for node in range(len(view.nodes)):
        if _column(node, COUNT) in joined.columns:
            total *= F.col(_column(node, COUNT))
    outputs = [F.expr(expression.sql(_named)).alias(name) for name, expression in view.outputs]
    return joined.select(*outputs, total.alias(COUNT))


class _Run:
    """The frames of a shape's inputs, made segment by segment."""

    def __init__(
        self, view: View, frames: Frames, shape: Shape, relations: Relations, scratch: Path, small: float
    ) -> None:
        self.view = view
        self.shape = shape
        self.relations = relations
        self.scratch = scratch
        self.small = small
        self.cores = cores_of(frames)
        self.inputs = [_prepared(view, frames, node) for node in range(len(view.nodes))]

    def results(self) -> DataFrame:
        for number, segment in enumerate(self.shape.segments):
            frame = self.joined(segment)
            if segment.stored:
                path = str(self.scratch / f"piece-{number}")
                frame.write.parquet(path)
                frame = frame.sparkSession.read.parquet(path)
            self.inputs.append(frame)
        return self.inputs[-1]

    def joined(self, segment: Segment) -> DataFrame:
        """Rows of the probe through the tables of a segment."""
        tasks = segment.cores or self.cores
        frame, current = self.inputs[segment.probe], None
        bound = self.shape.members[segment.probe]
        for build in segment.builds:
            frame, current = self._join(frame, current, bound, build, tasks)
            bound |= self.shape.members[build]
        return frame

    def _join(
        self, frame: DataFrame, current: Classes | None, bound: Members, build: int, tasks: int
    ) -> tuple[DataFrame, Classes | None]:
        members, table = self.shape.members[build], self.inputs[build]
        pairs = _pairs(self.view, bound, members)
        conditions = [_place(a) == _place(b) for a, b in pairs]
        conditions += [F.expr(e.sql(_named)) for e in _decided(self.view, bound, members)]
        if copied(self.relations, bound, members, self.small):
            return frame.join(table.hint("broadcast"), conditions, "inner"), current
        key = self.relations.key(bound, members)
        if key != current:
            frame = frame.repartition(tasks, *(_place(a) for a, _ in pairs))
        table = table.repartition(tasks, *(_place(b) for _, b in pairs))
        return frame.join(table.hint("shuffle_hash"), conditions, "inner"), key


def _pairs(view: View, bound: Members, members: Members) -> list[tuple[Place, Place]]:
    """The columns that must be equal on both sides, in order of their key class, without redundant ones."""
    classes, ours, theirs = equal_places(view), equal_places(view, bound), equal_places(view, members)
    found: dict[tuple[object, object], tuple[Place, Place]] = {}
    for edge in view.edges:
        if edge.left in bound and edge.right in members:
            ends = [((edge.left, a), (edge.right, b)) for a, b in edge.equal]
        elif edge.right in bound and edge.left in members:
            ends = [((edge.right, b), (edge.left, a)) for a, b in edge.equal]
        else:
            continue
        for one, other in ends:
            found.setdefault((ours.get(one, one), theirs.get(other, other)), (one, other))
    return sorted(found.values(), key=lambda pair: (classes[pair[0]], pair))


def _decided(view: View, bound: Members, members: Members) -> list[Expression]:
    """The other conditions whose columns are first all available in this join."""
    other = [e for edge in view.edges for e in edge.others] + list(view.residuals)
    return [
        e
        for e in other
        if frozenset(e.roles) <= bound | members and not any(frozenset(e.roles) <= side for side in (bound, members))
    ]
