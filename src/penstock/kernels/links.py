"""Statistics of the links of a chain: the composites that probe each link, and the results with a row of its ages.

Counted only where a table has several links, per piece of matches. The counts do not affect results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.kernels.probe import Words, to_words, word_count
from penstock.planner.join import Join
from penstock.planner.links import Link, links_in
from penstock.planner.network import Network
from penstock.state.run import Ints


@dataclass(frozen=True)
class Links:
    """The links of a state table as one position of a join sees them.

    `masks[k]` are the queries that may need rows as old as the begin of link k; a subset of `masks[k - 1]`.
    """

    table: int
    position: int
    cuts: Ints
    masks: Words
    links: tuple[Link, ...]


def links_of(network: Network, join: Join) -> dict[tuple[int, int], Links]:
    """By (position, table), for tables with several links. Cached in the network, which a worker keeps over steps."""
    kept: dict[int, dict[tuple[int, int], Links]] = network.__dict__.setdefault("_links", {})
    if join.index not in kept:
        kept[join.index] = {(found.position, found.table): found for found in _links(network, join)}
    return kept[join.index]


def count_probes(links: Links, bits: Words, counts: Counter[tuple[int, Link]]) -> None:
    """Count composites with these bits for each link that they reach, up to the longest life among their queries."""
    deepest = np.bincount(_deepest(bits, links.masks), minlength=len(links.cuts))
    reached = deepest[::-1].cumsum()[::-1]
    counts.update({(links.table, link): int(n) for link, n in zip(links.links, reached, strict=True) if n})


def count_results(links: Links, ages: Ints, counts: Counter[tuple[int, Link]]) -> None:
    """Count results by the link that holds the age of their row of this table."""
    place = np.minimum(np.searchsorted(links.cuts, ages, side="right"), len(links.cuts) - 1)
    found = np.bincount(place, minlength=len(links.cuts))
    counts.update({(links.table, link): int(n) for link, n in zip(links.links, found, strict=True) if n})


def _deepest(bits: Words, masks: Words) -> Ints:
    """For each row the last link whose mask it intersects, by bisection; most rows reach the very last one."""
    found = np.full(len(bits), len(masks) - 1, dtype=np.int64)
    rest = np.flatnonzero(~(bits & masks[-1]).any(axis=1))
    low, high = np.zeros(len(rest), dtype=np.int64), np.full(len(rest), max(0, len(masks) - 2), dtype=np.int64)
    bits = bits[rest]
    for _ in range(len(masks).bit_length()):
        middle = (low + high + 1) // 2
        meets = (bits & masks[middle]).any(axis=1)
        low, high = np.where(meets, middle, low), np.where(meets, high, np.maximum(middle - 1, low))
    found[rest] = low
    return found


def _links(network: Network, join: Join) -> Iterator[Links]:
    bit = {m.share: m.bit for m in join.leads}
    words = word_count(len(join.leads))
    for position, index in join.places:
        table = network.tables[index]
        if len(table.chain) < 2:
            continue
        lives = {
            bit[e.query]: e.life
            for e in table.entries
            if e.join == join.index and e.position == position and not e.counting
        }
        begins = (None, *table.chain[:-1])
        masks = [sum(1 << b for b, life in lives.items() if begin is None or life > begin) for begin in begins]
        yield Links(
            index,
            position,
            np.array(table.chain, dtype=np.int64),
            np.array([to_words(mask, words) for mask in masks], dtype=np.uint64).reshape(len(masks), words),
            links_in(table.chain),
        )
