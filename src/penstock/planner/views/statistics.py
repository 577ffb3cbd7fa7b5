"""Statistics of a view's sources: how many rows, how many of them match, how long requests took.

A frozen value; `learned` makes the next one from the requests of a refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from penstock.planner.views.regression import Tau, fit

KEPT = 64  # samples per directed edge
REMEMBERED = 8  # of them, stored beyond the end of a process
FITTED = 6  # samples that an edge needs for its own model
_WEIGHT = 0.3  # of the newest observation


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One request as measured: keys shipped, rows and columns returned, joined rows before and after, seconds."""

    node: int
    via: tuple[int, ...]
    keys: int
    columns: int
    rows: int
    before: int
    after: int
    seconds: float


@dataclass(frozen=True)
class Statistics:
    """`rows` and `widths` (columns) of each node; `fanout[v, j]`, v < j: rows of j that one row of v joins.

    `recompute` is the seconds of a full recompute, if measured. `connections` is how many concurrent requests each
    node's source answers, `cores` how many cores all of them share.
    """

    rows: tuple[float, ...]
    widths: tuple[int, ...]
    fanout: Mapping[tuple[int, int], float]
    samples: Mapping[tuple[int, int], tuple[Sample, ...]] = field(default_factory=dict)
    recompute: float | None = None
    connections: tuple[int, ...] = ()
    cores: int = 2

    def __post_init__(self) -> None:
        if any(not count >= 0 for count in self.rows):
            raise ValueError(f"the number of rows of every node must be known, not {self.rows}")

    def selectivity(self, v: int, node: int) -> float:
        """The share of all pairs of rows of the two nodes that match."""
        low, high = min(v, node), max(v, node)
        return min(1.0, self.fanout.get((low, high), 1.0) / max(self.rows[high], 1.0))

    def tau(self, v: int, node: int) -> Tau:
        """The time of a request to `node` by keys of `v`: from its own samples, else from all requests to the node.

        Requests that waited for others took longer than they need: of samples of about one size, those of the lower
        quarter count. Beyond the largest size, index lookups are assumed until measured.
        """
        mine = self.samples.get((v, node), ())
        if len(mine) < FITTED:
            mine = tuple(s for (_, j), found in self.samples.items() if j == node for s in found)
        if not mine:
            mine = tuple(s for found in self.samples.values() for s in found)
        if not mine:
            return DEFAULT
        sizes: dict[tuple[int, int], list[Sample]] = {}
        for sample in mine:
            sizes.setdefault((sample.keys.bit_length(), sample.columns), []).append(sample)
        quick: list[Sample] = []
        for found in sizes.values():
            found.sort(key=lambda s: s.seconds / max(s.keys, 1))
            quick += found[: max(1, len(found) // 4)]
        model = fit([(s.keys, s.columns, s.seconds) for s in quick], rising=True)
        return replace(model, until=max(s.keys for s in quick), beyond=PER_KEY)


PER_KEY = 0.000003  # seconds per key of an indexed lookup
DEFAULT = Tau(0.0005, (("C", PER_KEY),))  # an indexed lookup over a local socket


def learned(statistics: Statistics, samples: Iterable[Sample]) -> Statistics:
    """The statistics after a refresh: newest samples are kept, fanouts move toward observed ones, scans count rows."""
    kept, fanout, rows = dict(statistics.samples), dict(statistics.fanout), list(statistics.rows)
    for s in samples:
        if not s.via:
            rows[s.node] = float(s.rows)
            continue
        kept[s.via[-1], s.node] = (*kept.get((s.via[-1], s.node), ()), s)[-KEPT:]
        if len(s.via) == 1 and s.before >= 5:
            edge = (min(s.via[0], s.node), max(s.via[0], s.node))
            seen = s.after / s.before * statistics.rows[edge[1]] / max(statistics.rows[s.node], 1.0)
            fanout[edge] = seen if edge not in fanout else (1 - _WEIGHT) * fanout[edge] + _WEIGHT * seen
    return replace(statistics, samples=kept, fanout=fanout, rows=tuple(rows))


class Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is worth storing for another process: without columns and connections, which it knows.

    `fanout` as (v, node, rows).
    """

    rows: tuple[float, ...]
    fanout: tuple[tuple[int, int, float], ...]
    samples: tuple[Sample, ...]
    recompute: float | None


def remembered(statistics: Statistics) -> Remembered:
    samples = tuple(s for found in statistics.samples.values() for s in found[-REMEMBERED:])
    fanout = tuple((v, node, rows) for (v, node), rows in sorted(statistics.fanout.items()))
    return Remembered(statistics.rows, fanout, samples, statistics.recompute)


def recalled(statistics: Statistics, known: Remembered) -> Statistics:
    """The statistics with the stored values."""
    if len(known.rows) != len(statistics.rows):
        return statistics
    samples: dict[tuple[int, int], tuple[Sample, ...]] = {}
    for s in known.samples:
        samples[s.via[-1], s.node] = (*samples.get((s.via[-1], s.node), ()), s)
    fanout = {(v, node): rows for v, node, rows in known.fanout}
    return replace(statistics, rows=known.rows, fanout=fanout, samples=samples, recompute=known.recompute)
