"""The cost of a shape: the formulas of Liu 2005 (2.4.2 and 3.1.2) for a cluster, and its time on Spark.

All counts are rows from `Relations`; `Costs` are seconds per row, measured or assumed. The thesis leaves the contention
f(k) open: here it grows linearly with the cores. Its printed sums for bushy trees disagree in their limits; they are
read here as its text defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.planner.views.relations import Relations
from penstock.planner.views.shapes import Segment, Shape, copied, exchanges


@dataclass(frozen=True)
class Costs:
    """Seconds per row to read, partition, send, build and probe; seconds to fill and to drain a pipeline.

    `byte` is the extra cost of sending per byte of a row, `contention` what each further core adds to f(k), `job` the
    fixed cost of a Spark job and `hop` of an exchange, `write` the cost of a row written between two pieces. Tables of
    at most `small` bytes are copied to every core. The defaults were measured by `views.calibrate` on two busy cores:
    their proportions matter, not the seconds.
    """

    read: float = 4.7e-7
    partition: float = 5.7e-7
    send: float = 5.7e-7
    build: float = 1.7e-6
    probe: float = 9e-7
    setup: float = 0.0
    deplete: float = 0.0
    byte: float = 8e-9
    contention: float = 0.0
    job: float = 0.075
    hop: float = 0.037
    write: float = 8.8e-7
    small: float = 2.0**20

    @property
    def building(self) -> float:
        """To move a row from its source into a hash table."""
        return self.read + self.partition + self.send + self.build

    @property
    def probing(self) -> float:
        """To move a row from its source to the first hash table that it probes."""
        return self.read + self.partition + self.send + self.probe

    def congestion(self, cores: int) -> float:
        """f(k): how much slower each of k cores is for sharing the network."""
        return 1.0 + self.contention * (cores - 1)


@dataclass(frozen=True)
class Rows:
    """The rows that a segment handles: the tables built from relations and from other segments, the probe, what flows
    between two of its joins, and its result.
    """

    sources: tuple[float, ...]
    handed: tuple[float, ...]
    probe: float
    probes_source: bool
    inner: tuple[float, ...]
    result: float


def rows_of(relations: Relations, shape: Shape, segment: Segment) -> Rows:
    reached = [relations.size(members) for members in shape.reached(segment)]
    return Rows(
        tuple(relations.rows[b] for b in segment.builds if b < shape.count),
        tuple(relations.size(shape.members[b]) for b in segment.builds if b >= shape.count),
        reached[0],
        segment.probe < shape.count,
        tuple(reached[1:-1]),
        reached[-1],
    )


# -- the cluster of the thesis ----------------------------------------------------------------------------------------


def probing_work(rows: Rows, costs: Costs, cores: int, *, redirected: bool = True) -> float:
    """W_p: rows are sent on after every join but the last, unless all tables of the segment have one key."""
    sent = (cores - 1) / cores * costs.send if redirected else 0.0
    return costs.probing * rows.probe + (sent + costs.probe) * sum(rows.inner)


def building_time(rows: Sequence[float], costs: Costs, cores: int) -> float:
    """T_b: all tables are filled at the same time; the largest takes longest."""
    return costs.building * costs.congestion(cores) / cores * max(rows, default=0.0)


def segment_time(rows: Rows, costs: Costs, cores: int, *, redirected: bool = True) -> float:
    """T of one pipelined segment over relations."""
    work = probing_work(rows, costs, cores, redirected=redirected)
    return building_time(rows.sources, costs, cores) + costs.setup + work / cores + costs.deplete


# -- Spark ------------------------------------------------------------------------------------------------------------


def spark_time(relations: Relations, shape: Shape, costs: Costs, cores: int) -> float:
    """Seconds on Spark, where cores share all work: a segment's tables take as long as all their rows, not the largest.

    A wave lasts as long as its slowest segment on its own share of the cores. Rows are sent only where the key class
    changes; small tables and those without a key are copied to every core, and the latter are scanned for each row.
    """
    total = 0.0
    for wave in shape.waves:
        slowest = max(_work(relations, shape, s, costs, s.cores or cores) / (s.cores or cores) for s in wave)
        hops = sum(_hops(relations, shape, s, costs.small) for s in wave)
        stored = any(segment.stored for segment in wave)
        total += slowest + costs.hop * hops + (costs.job if stored else 0.0)
    return total + costs.job


def _hops(relations: Relations, shape: Shape, segment: Segment, small: float) -> int:
    """The exchanges of a segment: of every table distributed by a key, and of the probe wherever that key changes."""
    tables = list(zip(shape.reached(segment), segment.builds, strict=False))
    spread = sum(not copied(relations, bound, shape.members[build], small) for bound, build in tables)
    return spread + exchanges(relations, shape, segment, small) + (spread > 0)


def _work(relations: Relations, shape: Shape, segment: Segment, costs: Costs, cores: int) -> float:
    """Core seconds of a segment: reading, sending by key, building and probing."""

    def sending(members: frozenset[int]) -> float:
        return costs.partition + costs.send + costs.byte * relations.width(members)

    reached = shape.reached(segment)
    work = costs.read * relations.rows[segment.probe] if segment.probe < shape.count else 0.0
    current: frozenset[int] | None = None
    for bound, build in zip(reached, segment.builds, strict=False):
        members = shape.members[build]
        flowing, rows = relations.size(bound), relations.size(members)
        work += costs.read * rows if build < shape.count else 0.0
        key = relations.key(bound, members)
        if copied(relations, bound, members, costs.small):
            work += rows * (sending(members) + costs.build) * cores + flowing * costs.probe * (1 if key else rows)
        else:
            work += rows * (sending(members) + costs.build) + flowing * costs.probe
            work += flowing * sending(bound) if key != current else 0.0
            current = key
    return work + (costs.write * relations.size(reached[-1]) if segment.stored else 0.0)
