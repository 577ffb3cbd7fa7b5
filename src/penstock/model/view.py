"""What an integration view is: sources, the nodes and edges of its join graph, a select list, aggregates on top.

A node is one item of FROM, so a self-join has one node per occurrence. `Ref.role` in an expression of a view is the
index of a node; above aggregates it is `GROUP_ROLE` or `AGGREGATE_ROLE`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from penstock.model.expression import Expression
from penstock.model.item import Item
from penstock.model.stream import Column

CAPTURES = {  # how changes of each kind of source may be captured, its default first
    "postgres": ("trigger", "table", "snapshot"),
    "parquet": ("snapshot",),
    "dataframe": ("snapshot",),
    "query": ("snapshot", "stream"),
}
SYSTEMS = tuple(CAPTURES)


@dataclass(frozen=True)
class Source:
    """A relation in some system, its key columns, and how its changes are captured."""

    name: str
    columns: tuple[Column, ...]
    system: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may contain a password
    key: tuple[str, ...] = ()
    changes: str = "snapshot"
    change_table: str | None = None

    def column(self, name: str) -> Column | None:
        """The column of that name, ignoring case, as in Spark SQL."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Node:
    """One item of FROM."""

    alias: str
    source: str


@dataclass(frozen=True)
class Edge:
    """All conditions between two nodes: equal columns (of left, of right), and any other comparison of the two.

    An edge without `equal` is joined by shipping the whole source, as a broadcast join would.
    """

    left: int
    right: int
    equal: tuple[tuple[str, str], ...]
    others: tuple[Expression, ...] = ()

    def toward(self, node: int) -> tuple[int, tuple[tuple[str, str], ...]]:
        """(the other end, pairs of (its column, the column of `node`))."""
        if node == self.right:
            return self.left, self.equal
        return self.right, tuple((b, a) for a, b in self.equal)


@dataclass(frozen=True)
class ViewAggregate:
    """An aggregate function over the joined rows; no argument is `count(*)`."""

    function: str
    argument: Expression | None
    distinct: bool = False


@dataclass(frozen=True)
class View:
    """A select-project-join over sources with bag semantics, and aggregates by group on top of it.

    There is one edge at most per pair of nodes, and the graph is connected. `filters` read one node each, `residuals`
    three or more. With aggregates, or with `groups`, `items` read `GROUP_ROLE` and `AGGREGATE_ROLE` only.
    """

    name: str
    sql: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    filters: tuple[Expression, ...]
    items: tuple[Item, ...]
    groups: tuple[Expression, ...] = ()
    aggregates: tuple[ViewAggregate, ...] = ()
    residuals: tuple[Expression, ...] = ()

    @property
    def aggregated(self) -> bool:
        """Whether there are aggregates or groups over the joined rows."""
        return bool(self.groups or self.aggregates)

    @cached_property
    def outputs(self) -> tuple[tuple[str, Expression], ...]:
        """Columns of the joined rows as maintained: `c0`.. for items; under aggregates `g0`.. and arguments `a0`.."""
        if not self.aggregated:
            return tuple((f"c{k}", item.expression) for k, item in enumerate(self.items))
        arguments = ((f"a{k}", a.argument) for k, a in enumerate(self.aggregates) if a.argument is not None)
        return (*((f"g{k}", g) for k, g in enumerate(self.groups)), *arguments)

    def local(self, node: int) -> tuple[Expression, ...]:
        """The filters of one node."""
        return self._local[node]

    def columns(self, node: int) -> tuple[str, ...]:
        """The columns of a node that joins and outputs read, each once; the source evaluates the filters."""
        return self._columns[node]

    @cached_property
    def _local(self) -> tuple[tuple[Expression, ...], ...]:
        return tuple(tuple(f for f in self.filters if f.roles == (node,)) for node in range(len(self.nodes)))

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], ...]:
        needed: list[list[str]] = [[] for _ in self.nodes]
        for edge in self.edges:
            for a, b in edge.equal:
                needed[edge.left].append(a)
                needed[edge.right].append(b)
        others = (e for edge in self.edges for e in edge.others)
        for expression in (*others, *self.residuals, *(e for _, e in self.outputs)):
            for ref in expression.refs:
                needed[ref.role].append(ref.column)
        return tuple(tuple(dict.fromkeys(names)) for names in needed)
