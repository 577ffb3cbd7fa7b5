"""The connected components of a graph, for join graphs of every kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def components(near: Sequence[Collection[int]], members: Iterable[int]) -> tuple[frozenset[int], ...]:
    """The connected components of the members, in order of their lowest number; `near[m]` are the neighbours of m."""
    parts, left = [], set(members)
    while left:
        part: set[int] = set()
        reached = {min(left)}
        while reached:
            part |= reached
            left -= reached
            reached = {q for p in reached for q in near[p]} & left
        parts.append(frozenset(part))
    return tuple(parts)
