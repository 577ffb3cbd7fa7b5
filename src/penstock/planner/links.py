"""The names under which the work of a chain's links is counted. A link that gets another end is another link."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def link_counters(kind: str, chain: Sequence[int]) -> tuple[str, ...]:
    """For each link of a chain the name of a counter of its state table."""
    return tuple(f"{kind}:{begin}-{end}" for begin, end in pairwise((0, *chain)))
