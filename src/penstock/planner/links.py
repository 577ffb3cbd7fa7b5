"""The links of a chain, by which their work is counted. A link with another end is another link."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Link = tuple[int, int]  # where it begins, and where it ends


def links_in(chain: Sequence[int]) -> tuple[Link, ...]:
    return tuple(pairwise((0, *chain)))
