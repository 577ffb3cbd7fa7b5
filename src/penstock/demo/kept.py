"""The state that each query alone would need, counted in the input by the rules of windows and progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.demo.sensors import Reading, micros
from penstock.model import Query, Stream
from penstock.planner.bounds import time_bounds
from penstock.reference.join import serves

Ticks = np.ndarray[Any, Any]


def kept_until(query: Query, streams: Mapping[str, Stream], readings: Sequence[Reading]) -> Ticks:
    """The last tick after which the query alone would still store each row; -1 for rows it never needs.

    A row is needed if it passes the query's filters and later rows may still join it. Computed from the input, for an
    engine that accepts and expires everything at every tick.
    """
    ticks = 1 + max(r.tick for r in readings)
    progress = {}
    for name, stream in streams.items():
        newest = np.full(ticks, np.iinfo(np.int64).min // 4)
        for r in readings:
            if r.stream == name and not r.kind:
                newest[r.tick] = max(newest[r.tick], micros(r.row["at"]))
        progress[name] = np.maximum.accumulate(newest) - (stream.delay or 0)
    until, bounds = np.full(len(readings), -1), time_bounds(query)
    for i, role in enumerate(query.roles):
        others = [j for j in range(len(query.roles)) if j != i]
        for number, r in enumerate(readings):
            if others and r.stream == role.stream and not r.kind and serves(query, streams, i, r.row):
                ends = [micros(r.row["at"]) + bounds[i][j] for j in others]
                last = [
                    np.searchsorted(progress[query.roles[j].stream], end, "right") - 1
                    for j, end in zip(others, ends, strict=True)
                ]
                until[number] = max(until[number], *last)
    return until


def most_kept(untils: Iterable[Ticks], readings: Sequence[Reading]) -> int:
    """The most rows stored after any tick, with each query's rows counted separately."""
    arrived = np.array([r.tick for r in readings])
    held = np.zeros(2 + int(arrived.max()), np.int64)
    for until in untils:
        kept = until >= arrived
        np.add.at(held, arrived[kept], 1)
        np.subtract.at(held, until[kept] + 1, 1)
    return int(np.cumsum(held).max())
