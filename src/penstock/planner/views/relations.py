"""The relations of a view's first computation: their sizes, the conditions between them, and sizes of joins.

Sizes assume independent selectivities, so that the size of a set does not depend on the order of its joins. A group of
relations that is computed first can be treated as one relation (`contracted`). Where rows are, and how they are joined,
plays no part here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod

from penstock.model.view import View
from penstock.planner.components import components

Members = frozenset[int]
Classes = frozenset[int]
Place = tuple[int, str]  # a column of a node

BYTES = {"tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4, "boolean": 1, "string": 24}
OTHER = 8  # bytes of a value of any other type
COMPARED = 1 / 3  # assumed share of pairs that satisfy a comparison other than an equality


@dataclass(frozen=True)
class Tie:
    """The join condition between two relations.

    `classes` are the key classes by which it is an equality; without any it is another comparison.
    """

    left: int
    right: int
    selectivity: float
    classes: Classes = frozenset()


@dataclass(frozen=True)
class Relations:
    """The relations of a connected join, numbered from 0, with their rows and the bytes of a row."""

    rows: tuple[float, ...]
    ties: tuple[Tie, ...]
    widths: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("a join has at least one relation")
        if not self.widths:
            object.__setattr__(self, "widths", (1.0,) * len(self.rows))
        if len(self.widths) != len(self.rows):
            raise ValueError(f"{len(self.rows)} relations, but {len(self.widths)} widths of rows")
        for number, rows in enumerate(self.rows):
            if rows is None or not isfinite(rows) or rows < 0:
                raise ValueError(f"relation {number} has no known number of rows ({rows}): measure it first")
        for tie in self.ties:
            if tie.left == tie.right or not {tie.left, tie.right} <= self.all:
                raise ValueError(f"a tie joins two different relations of {len(self.rows)}: {tie}")
            if not 0 < tie.selectivity <= 1:
                raise ValueError(f"a selectivity lies in (0, 1]: {tie}")
        parts = self.components(self.all)
        if len(parts) > 1:
            apart = " and ".join(str(sorted(part)) for part in parts)
            raise ValueError(f"no condition joins the relations {apart}: add one, or make them separate views")

    @property
    def count(self) -> int:
        return len(self.rows)

    @cached_property
    def all(self) -> Members:
        return frozenset(range(len(self.rows)))

    @cached_property
    def _near(self) -> tuple[Members, ...]:
        near: list[set[int]] = [set() for _ in self.rows]
        for tie in self.ties:
            near[tie.left].add(tie.right)
            near[tie.right].add(tie.left)
        return tuple(map(frozenset, near))

    @cached_property
    def _sizes(self) -> dict[Members, float]:
        return {}

    def neighbours(self, members: Iterable[int]) -> Members:
        """The other relations that are tied to one of these."""
        given = frozenset(members)
        return frozenset[int]().union(*(self._near[m] for m in given)) - given

    def components(self, members: Iterable[int]) -> tuple[Members, ...]:
        """The connected components of the members, in order of their lowest number."""
        return components(self._near, members)

    def connected(self, members: Iterable[int]) -> bool:
        return len(self.components(members)) <= 1

    def size(self, members: Iterable[int]) -> float:
        """Estimated rows of the join of these relations."""
        given = frozenset(members)
        if given not in self._sizes:
            within = (tie.selectivity for tie in self.ties if tie.left in given and tie.right in given)
            self._sizes[given] = prod((self.rows[m] for m in given), start=1.0) * prod(within, start=1.0)
        return self._sizes[given]

    def width(self, members: Iterable[int]) -> float:
        """Bytes of a joined row."""
        return sum(self.widths[m] for m in members)

    def memory(self, members: Iterable[int]) -> float:
        """Bytes of the join of these relations."""
        given = frozenset(members)
        return self.size(given) * self.width(given)

    def key(self, bound: Iterable[int], other: Iterable[int]) -> Classes:
        """The key classes on which rows of these relations join the others'; none for other comparisons."""
        ours, theirs = frozenset(bound), frozenset(other)
        across = (
            t for t in self.ties if (t.left in ours and t.right in theirs) or (t.right in ours and t.left in theirs)
        )
        return frozenset[int]().union(*(tie.classes for tie in across))

    def contracted(self, parts: Sequence[Members]) -> Relations:
        """The same join with each part as one relation, numbered as given; ties between two parts are merged."""
        place = {member: number for number, part in enumerate(parts) for member in part}
        if sorted(m for part in parts for m in part) != sorted(self.all):
            raise ValueError(f"the parts {[sorted(p) for p in parts]} do not divide {self.count} relations")
        merged: dict[tuple[int, int], Tie] = {}
        for tie in self.ties:
            pair = (min(place[tie.left], place[tie.right]), max(place[tie.left], place[tie.right]))
            if pair[0] == pair[1]:
                continue
            known = merged.get(pair, Tie(*pair, 1.0))
            merged[pair] = Tie(*pair, known.selectivity * tie.selectivity, known.classes | tie.classes)
        rows = tuple(self.size(part) for part in parts)
        return Relations(rows, tuple(merged.values()), tuple(self.width(part) for part in parts))


# -- from a view ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """Counts of one node after its own filters: rows, bytes per row, and different values in its join columns."""

    rows: float
    width: float
    distinct: Mapping[str, float]


def width_of(types: Iterable[str]) -> float:
    """The bytes of a row with columns of these types."""
    return float(max(1, sum(BYTES.get(kind, OTHER) for kind in types)))


def equal_places(view: View, members: Iterable[int] | None = None) -> dict[Place, int]:
    """The key class of every join column: columns that equalities between these nodes make equal are in one class."""
    inside = frozenset(range(len(view.nodes)) if members is None else members)
    found: dict[Place, int] = {}
    for edge in view.edges:
        for a, b in edge.equal if {edge.left, edge.right} <= inside else ():
            ours = found.setdefault((edge.left, a), len(found))
            theirs = found.setdefault((edge.right, b), len(found))
            for place, number in found.items():
                if number == theirs:
                    found[place] = ours
    return found


def relations_of(view: View, counted: Sequence[Counted]) -> Relations:
    """The relations of a view. An equality keeps 1/n of the pairs, n being the greater number of different values."""
    classes = equal_places(view)
    ties = []
    for edge in view.edges:
        left, right = counted[edge.left], counted[edge.right]
        most = max(left.rows, right.rows, 1.0)
        kept = prod(1 / max(left.distinct[a], right.distinct[b], 1.0) for a, b in edge.equal)
        kept = max(kept, 1 / most) if edge.equal else 1.0
        keys = frozenset(classes[edge.left, a] for a, _ in edge.equal)
        ties.append(Tie(edge.left, edge.right, kept * COMPARED ** len(edge.others), keys))
    return Relations(tuple(c.rows for c in counted), tuple(ties), tuple(c.width for c in counted))
