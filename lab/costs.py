"""Costs of shared window joins by closed formula (Wang 2008, with its printed errors corrected).

CPU counts comparisons of a nested loop: probing, expiring, routing, filtering and union weigh the same. Memory is that
of the join state alone. `chain` chooses a chain from measured costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

PerStream = tuple[float, float, float]  # of streams A, B, C


@dataclass(frozen=True)
class Cost:
    """Memory of the state, and comparisons per unit of time; each plan below states its units."""

    memory: float
    cpu: float


@dataclass(frozen=True)
class TwoQueries:
    """A[short] x B[short] and select(A)[long] x B[long], with `short` <= `long`, sharing one plan.

    `rate` in rows per second of each stream, windows in seconds, `row_size` in any unit of memory; `passing` is the
    share of A that passes the selection, `matching` the share of probed pairs that join.
    """

    rate: float
    short: float
    long: float
    passing: float
    matching: float
    row_size: float = 1.0


@dataclass(frozen=True)
class Savings:
    """What state slicing saves, as a share of the other plan's cost."""

    memory_of_pull_up: float
    memory_of_push_down: float
    cpu_of_pull_up: float
    cpu_of_push_down: float


def pull_up(queries: TwoQueries) -> Cost:
    """One join over the longer window, a router, then the selection (4.1). Memory in row sizes, CPU per second."""
    q = queries
    pairs = 2 * q.rate**2 * q.long
    route = select = pairs * q.matching
    return Cost(2 * q.rate * q.long * q.row_size, pairs + 2 * q.rate + route + select)


def push_down(queries: TwoQueries) -> Cost:
    """A split by the selection, one join for each part, union (4.2). Memory in row sizes, CPU per second."""
    q = queries
    rows = (2 - q.passing) * q.rate * q.short + (1 + q.passing) * q.rate * q.long
    probe = 2 * q.rate**2 * ((1 - q.passing) * q.short + q.passing * q.long)
    route = 2 * q.passing * q.rate**2 * q.long * q.matching
    union = 2 * q.rate**2 * q.short * q.matching
    split, purge = q.rate, 3 * q.rate
    return Cost(rows * q.row_size, split + probe + purge + route + union)


def state_slice(queries: TwoQueries) -> Cost:
    """A chain of two links with the selection between them (5.1). Memory in row sizes, CPU per second."""
    q = queries
    older = q.long - q.short
    rows = 2 * q.rate * q.short + (1 + q.passing) * q.rate * older
    probe = 2 * q.rate**2 * (q.short + q.passing * older)
    filter_rows, filter_results = q.rate, 2 * q.rate**2 * q.matching * q.short
    purge, union = 4 * q.rate, 2 * q.rate
    return Cost(rows * q.row_size, probe + filter_rows + purge + union + filter_results)


def savings(queries: TwoQueries) -> Savings:
    """The savings of `state_slice` where rates are high, so that terms linear in the rate vanish (5.2)."""
    q = queries
    r = q.short / q.long
    return Savings(
        memory_of_pull_up=(1 - r) * (1 - q.passing) / 2,
        memory_of_push_down=r / (1 + 2 * r + (1 - r) * q.passing),
        cpu_of_pull_up=((1 - r) * (1 - q.passing) + (2 - r) * q.matching) / (1 + 2 * q.matching),
        cpu_of_push_down=q.passing * q.matching / (r * (1 - q.passing) + (q.passing + r) * q.matching + q.passing),
    )


@dataclass(frozen=True)
class TreeQuery:
    """One query (A x B) x C: its windows in minutes, and the share of each stream that passes its selections."""

    window_ab: float
    window_bc: float
    passing: PerStream


@dataclass(frozen=True)
class TwoTrees:
    """Two queries over the same join tree; `first` has the shorter window on A x B, `second` the shorter on B x C.

    `rates` in rows per minute, `row_kb` the size of a base row in KB (a row of A x B is twice as large), `either` the
    share of each stream that passes the selections of at least one query, `matching_ab` and `matching_bc` the shares
    of probed pairs that join.
    """

    rates: PerStream
    first: TreeQuery
    second: TreeQuery
    either: PerStream
    matching_ab: float
    matching_bc: float
    row_kb: float


CASE_STUDY = TwoTrees(
    rates=(1000, 1000, 1000),
    first=TreeQuery(window_ab=1, window_bc=30, passing=(0.25, 0.25, 0.25)),
    second=TreeQuery(window_ab=60, window_bc=15, passing=(0.25, 0.25, 0.25)),
    either=(0.3, 0.3, 0.3),
    matching_ab=0.1,
    matching_bc=0.1,
    row_kb=0.1,
)


def tree_isolated(trees: TwoTrees) -> Cost:
    """Each query by its own plan (6.1, 6.5). Memory in MB, CPU in 10^6 comparisons per minute."""
    rows = cpu = 0.0
    for query in (trees.first, trees.second):
        a, b, c = _streams(trees, query.passing)
        ab = _joined(trees, a, b, query.window_ab)
        rows += (a + b) * query.window_ab + c * query.window_bc + 2 * ab * query.window_bc
        probe = ab / trees.matching_ab + 2 * ab * c * query.window_bc
        cpu += sum(trees.rates) + (a + b + c + ab) + probe
    return _tree_cost(trees, rows, cpu)


def tree_pull_up(trees: TwoTrees) -> Cost:
    """One plan of the longer windows under a router, behind the OR of the selections (6.2, 6.6). Units as above."""
    a, b, c = _streams(trees, trees.either)
    window_ab, window_bc = trees.second.window_ab, trees.first.window_bc
    ab = _joined(trees, a, b, window_ab)
    probe_bc = 2 * ab * c * window_bc
    results = probe_bc * trees.matching_bc
    rows = (a + b) * window_ab + c * window_bc + 2 * ab * window_bc
    select = sum(trees.rates) + 2 * results
    purge = a + b + c + ab
    route = 2 * results
    return _tree_cost(trees, rows, select + purge + ab / trees.matching_ab + probe_bc + route)


def tree_state_slice(trees: TwoTrees) -> Cost:
    """A chain for A x B, and one against C for the output of each of its two links (6.3, 6.7). Units as above."""
    first, second = trees.first, trees.second
    a, b, c = _streams(trees, trees.either)
    a1, b1, c1 = _streams(trees, first.passing)
    a2, b2, c2 = _streams(trees, second.passing)
    older_ab, older_bc = second.window_ab - first.window_ab, first.window_bc - second.window_bc
    ab = _joined(trees, a, b, first.window_ab)  # young pairs, for both queries
    ab_first = _joined(trees, a1, b1, first.window_ab)  # those of them that the first query alone still wants
    ab_second = _joined(trees, a2, b2, older_ab)  # old pairs, for the second query
    base_rows = (a + b) * first.window_ab + (a2 + b2) * older_ab + (c + c2) * second.window_bc + c1 * older_bc
    ab_rows = (ab + ab_second) * second.window_bc + ab_first * older_bc
    shared = 2 * ab * c * second.window_bc
    only_first = 2 * ab_first * c1 * older_bc
    only_second = 2 * ab_second * c2 * second.window_bc
    rate_a, rate_b, rate_c = trees.rates
    select = 2 * rate_a + 2 * rate_b + 3 * rate_c + 2 * shared * trees.matching_bc + ab
    purge = 2 * a + 2 * b + 3 * c + 2 * ab + ab_second
    probe = (ab + ab_second) / trees.matching_ab + shared + only_first + only_second
    union = (2 * shared + only_first + only_second) * trees.matching_bc
    return _tree_cost(trees, base_rows + 2 * ab_rows, select + purge + probe + union)


def _streams(trees: TwoTrees, passing: PerStream) -> PerStream:
    (a, b, c), (pass_a, pass_b, pass_c) = trees.rates, passing
    return a * pass_a, b * pass_b, c * pass_c


def _joined(trees: TwoTrees, a: float, b: float, window: float) -> float:
    return 2 * a * b * window * trees.matching_ab


def _tree_cost(trees: TwoTrees, rows: float, comparisons: float) -> Cost:
    return Cost(rows * trees.row_kb / 1000, comparisons / 1e6)


def chain_rows(rate_a: float, rate_b: float, windows: Sequence[float]) -> float:
    """Rows in a chain with a link for each of the ascending windows, without selections (7.1)."""
    return sum((rate_a + rate_b) * (end - start) for start, end in zip((0.0, *windows), windows, strict=False))


def merge_gain(
    rate_a: float, rate_b: float, windows: Sequence[float], first: int, last: int, matching: float, overhead: float
) -> float:
    """Comparisons saved per unit of time by merging links `first`..`last` (from 1) into one with a router (7.2).

    `overhead` is that of one operator for each of its input rows. The router is an operator too, so that two merged
    links save only one expiry test; nothing merged saves nothing.
    """
    merged = last - first
    start = windows[first - 2] if first > 1 else 0.0
    results = 2 * rate_a * rate_b * (windows[last - 1] - start) * matching
    operators = merged - (1 if merged else 0)
    return (rate_a + rate_b) * (merged + overhead * operators) - results * merged


@dataclass(frozen=True)
class Probed:
    """A stream on the path of a row through a multi-way join: rows per second, and seconds of window.

    `matching` is the share of probed pairs that join, `passing` the share of rows that some query's selection keeps.
    """

    rate: float
    window: float
    matching: float
    passing: float = 1.0


@dataclass(frozen=True)
class RingTimes:
    """Seconds to insert or expire a row, to join a pair, to send and receive a row, and of one hop's latency."""

    insert: float
    purge: float
    join: float
    send: float
    hop: float


def central_work(order: Sequence[Probed], times: RingTimes) -> float:
    """Seconds of work for one arriving row that probes the streams in `order`, on one node (13.1, 21.1)."""
    return times.insert + times.purge + times.join * sum(s.rate * s.window * s.passing * n for s, n in _probes(order))


def ring_work(order: Sequence[Probed], times: RingTimes, nodes: int) -> float:
    """The same on a ring, where the row and its intermediate results visit every node (13.1, 21.1)."""
    return central_work(order, times) + times.send * nodes * sum(n for _, n in _probes(order))


def ring_latency(order: Sequence[Probed], times: RingTimes, nodes: int) -> float:
    """Seconds until a result is emitted, averaged over the nodes of a balanced ring (13.5, 21.2)."""
    rounds = (len(order) + 1) * nodes * times.hop
    return (nodes - 1) / 2 * times.hop + max(ring_work(order, times, nodes) / nodes, rounds)


def best_ring(order: Sequence[Probed], times: RingTimes, most: int) -> int:
    """The number of nodes, at most `most`, with the lowest latency; ties go to fewer."""
    return min(range(1, most + 1), key=lambda nodes: ring_latency(order, times, nodes))


def _probes(order: Sequence[Probed]) -> list[tuple[Probed, float]]:
    """Each stream with the rows that probe it on behalf of one arriving row."""
    found = [s.rate * s.window * s.matching * s.passing for s in order]
    return [(stream, prod(found[:k])) for k, stream in enumerate(order)]
