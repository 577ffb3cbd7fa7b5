"""Measured costs of scans, from the reports of tasks, for the choice of the number of segments.

Only the last steps count, and nothing is stored: an engine starts with the constants and the averages of all its steps,
which changes the speed of steps for a while but no answer. The times of a task are those of all its joins, so lookups
by a key count as comparisons too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.planner.counters import Counters
from penstock.planner.decisions import Relocated
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.relocation import relocated
from penstock.planner.segments import Scan, Spread, Timing, rows_in_reach, settled_count
from penstock.planner.state_table import StateTable

RECENT = 16  # steps
SAMPLES = 64  # tasks of steps
FEW = 8  # samples without significance
WITHIN = 20.0  # a fit further off the constant, by ratio, is not a measurement

Sample = tuple[float, float]  # (amount of work, seconds)


@dataclass
class Scans:
    """Input, comparisons and times of the last steps."""

    rows: deque[Mapping[str, int]] = field(default_factory=lambda: deque(maxlen=RECENT))  # accepted, by stream
    met: deque[Mapping[str, int]] = field(default_factory=lambda: deque(maxlen=RECENT))  # pairs, by stream of the start
    compared: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    sent: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    counts: dict[str, int] = field(default_factory=dict)  # the segments of each table in the last step

    def observe(
        self, network: Network, replicated: Collection[int], counted: Sequence[tuple[Counters, Mapping[str, float]]]
    ) -> None:
        """Learn from one step; `replicated` tables sent rows to all tasks; `counted`: counts and phases by task."""
        rows: Counter[str] = Counter()
        met: Counter[str] = Counter()
        for own, _ in counted:
            rows.update({name: counts.accepted for name, counts in own.streams.items()})
            for table in network.tables:
                met[table.stream] += own.table(table.name).candidates
        if not rows:
            return
        self.rows.append(rows)
        self.met.append(met)
        everywhere = sum(_shipped(own, network, replicated) for own, _ in counted)
        others = {t.index for t in network.tables} - set(replicated)
        for own, phases in counted:
            pairs = sum(counts.candidates for counts in own.tables.values())
            if pairs:
                self.compared.append((pairs, phases.get("open", 0.0) + phases.get("probe", 0.0)))
            received = everywhere + _shipped(own, network, others)
            if received:
                self.sent.append((received, phases.get("receive", 0.0) + phases.get("prepare", 0.0)))

    def settled(self, table: str, scan: Scan, best: int, most: int) -> int:
        """The number of segments of a table in the next step, if `best` has the least latency."""
        return settled_count(scan, self.counts.get(table), best, most, self.timing)

    def cut(self, counts: Mapping[str, int]) -> list[Relocated]:
        """Learn how many segments each table had in a step; what has changed since the one before."""
        rows = sum(sum(step.values()) for step in self.rows) / max(1, len(self.rows))
        found = [
            relocated(table, self.counts[table], count, f"{rows:,.0f} new rows in a step")
            for table, count in counts.items()
            if self.counts.get(table, count) != count
        ]
        self.counts.update(counts)
        return found

    @property
    def timing(self) -> Timing:
        """The costs that explain the samples best."""
        start = Timing()
        pair, task = fit(self.compared, start.pair, start.task)
        send, _ = fit(self.sent, start.send, start.task)
        return Timing(pair, send, task)

    def scan(
        self,
        network: Network,
        table: StateTable,
        runs: Sequence[Spread],
        progress: Reached,
        counters: Counters,
    ) -> Scan:
        """What the next step must compare with a table; without recent steps, by the averages of all."""
        streams = scanning(network, table)
        held = rows_in_reach(runs, progress)
        count = len(streams | {table.stream})
        if not self.rows:
            steps = max(1, counters.engine.steps)
            accepted = sum(counters.stream(name).accepted for name in streams)
            return Scan(accepted / steps, held, count)
        came = sum(step.get(name, 0) for step in self.rows for name in streams)
        pairs = sum(step.get(name, 0) for step in self.met for name in streams)
        # A sorted search meets fewer rows than are in reach, and lookups in other tables count too: the lesser is
        # nearer.
        return Scan(came / len(self.rows), min(held, pairs / came) if came and pairs else held, count)


def scanning(network: Network, table: StateTable) -> frozenset[str]:
    """The streams whose new rows scan a table: those of the other positions of its joins."""
    return frozenset(
        network.tables[other].stream
        for join in network.joins
        for position, own in join.places
        if own == table.index
        for place, other in join.places
        if place != position
    )


def _shipped(counters: Counters, network: Network, tables: Collection[int]) -> int:
    return sum(counters.table(network.tables[index].name).shipped for index in tables)


def fit(samples: Sequence[Sample], each: float, fixed: float) -> tuple[float, float]:
    """Seconds per unit and fixed: a line with half of the samples above it; the start values while little is known.

    Medians, because single tasks take very long now and then. Samples of about one size cannot separate the two: then
    the fixed part stays.
    """
    if len(samples) < FEW:
        return each, fixed
    done, seconds = np.array(samples, dtype=np.float64).T
    spread = done.max() - done.min()
    if spread < done.min():
        return _near(np.median((seconds - fixed) / done), each), fixed
    apart = done[:, None] - done
    far = apart >= spread / 4
    slope = _near(np.median((seconds[:, None] - seconds)[far] / apart[far]), each)
    return slope, _near(np.median(seconds - slope * done), fixed)


def _near(value: np.floating[Any], start: float) -> float:
    return min(max(float(value), start / WITHIN), start * WITHIN)
