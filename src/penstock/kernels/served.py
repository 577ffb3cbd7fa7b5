"""Which queries a row of a run can serve at a position of a join.

Runs store permanent ids of query roles, joins use bits of the present queries. The translation is cached in the
network, which a worker keeps over many steps.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.matches import rows_at, serves_any
from penstock.kernels.probe import Words, to_words, word_count
from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.state.run import Ints, Rows

MANY = 1 << 12  # cached translations of runs' dictionaries


class Served:
    """Translates the permanent role ids of a run's dictionary to the bits of this join's queries."""

    def __init__(self, network: Network, join: Join, suspended: frozenset[int]) -> None:
        self.width = word_count(len(join.leads))
        bit = {m.share: m.bit for m in join.leads}
        self.masks: dict[int, dict[int, int]] = {}
        self.known: dict[tuple[int, int], tuple[object, Words]] = {}
        for table in {table for _, table in join.places}:
            for entry in network.tables[table].entries:
                if entry.join == join.index and not entry.counting:
                    served = 0 if entry.query in suspended else 1 << bit[entry.query]
                    self.masks.setdefault(entry.position, {})[entry.id] = served

    def at(self, rows: Rows, position: int) -> tuple[Words, Ints]:
        """The queries that each row can serve at a position, and the rows that serve any."""
        bits = rows_at(self.words(rows, position), rows.bits)
        return bits, np.flatnonzero(serves_any(bits))

    def words(self, rows: Rows, position: int) -> Words:
        """The queries that a row of each bits id can serve at a position; cached, since many steps probe a run."""
        place = (id(rows.patterns), position)
        if place not in self.known:
            masks = self.masks[position]
            found = [to_words(sum(masks.get(role, 0) for role in pattern), self.width) for pattern in rows.patterns]
            if len(self.known) > MANY:
                self.known.clear()
            # Keeps the patterns alive, so that no others can get their id.
            self.known[place] = (rows.patterns, np.array(found, dtype=np.uint64).reshape(len(found), self.width))
        return self.known[place][1]


def served_by(network: Network, join: Join, suspended: frozenset[int]) -> Served:
    """Cached in the network, which a worker keeps over many steps."""
    kept: dict[tuple[int, frozenset[int]], Served] = network.__dict__.setdefault("_served", {})
    place = (join.index, suspended)
    if place not in kept:
        kept[place] = Served(network, join, suspended)
    return kept[place]
