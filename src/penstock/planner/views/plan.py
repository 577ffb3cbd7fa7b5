"""A maintenance plan as data: which source is asked for which deltas, in what order, and in which state each is seen.

Every strategy has this form, so that requests, rounds and costs are counted, and plans executed, in one way. A *member*
is the delta of one node on its way through all other nodes (Liu 2005, 9.2), named by that node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

Pair = tuple[int, int]


@dataclass(frozen=True)
class Request:
    """One query to the source of `node`: the rows that join with any of `members`.

    The keys are taken from the nodes `via`, which all members have joined; none means that the whole source is read.
    """

    node: int
    members: tuple[int, ...]
    via: tuple[int, ...]

    def __str__(self) -> str:
        return f"R{self.node + 1} <- {', '.join(f'd{m + 1}' for m in self.members)}"


@dataclass(frozen=True)
class MaintenancePlan:
    """The requests of one refresh.

    A member sees nodes before its own in `sequence` as they are after the changes, later ones as before. `parallel`
    requests start as soon as their members have joined the nodes `via`; others one after the other. `each_row`: every
    row of a delta is sent alone.
    """

    strategy: str
    sequence: tuple[int, ...]
    requests: tuple[Request, ...]
    parallel: bool = False
    each_row: bool = False

    @cached_property
    def place(self) -> dict[int, int]:
        return {node: k for k, node in enumerate(self.sequence)}

    def sees_new(self, member: int, node: int) -> bool:
        """Whether the member sees the node after the changes."""
        return self.place[node] < self.place[member]

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The round, from 1, in which each request can be made."""
        if not self.parallel:
            return tuple(range(1, len(self.requests) + 1))
        visited = {(m, m): 0 for m in self.sequence}
        levels = []
        for request in self.requests:
            level = 1 + max((visited[m, v] for m in request.members for v in request.via), default=0)
            for m in request.members:
                visited[m, request.node] = level
            levels.append(level)
        return tuple(levels)

    @property
    def rounds(self) -> int:
        """The number of sequential round trips."""
        return max(self.levels, default=0)

    def without(self, empty: Collection[int]) -> MaintenancePlan:
        """The plan if these nodes have not changed: without their members and the requests only for these."""
        kept = ((r, tuple(m for m in r.members if m not in empty)) for r in self.requests)
        return replace(self, requests=tuple(replace(r, members=members) for r, members in kept if members))

    def explain(self, names: Iterable[str] | None = None) -> str:
        """The plan as text, a line per round."""
        labels = dict(enumerate(names if names is not None else (f"R{k + 1}" for k in range(len(self.sequence)))))
        lines = [f"{self.strategy}: {len(self.requests)} requests in {self.rounds} rounds"]
        for level in range(1, self.rounds + 1):
            asked = [
                f"{labels[r.node]} for changes of {'+'.join(labels[m] for m in r.members)}"
                for r, at in zip(self.requests, self.levels, strict=True)
                if at == level
            ]
            lines.append(f"  {level}. " + "; ".join(asked))
        return "\n".join(lines)
