"""What goes through the exchange for a window aggregate: its rows, or partials of them made by mappers.

Either way the same kernels make partials of every row once, in the mapper or in the task. The difference is what is
sent: each row, or each partial, which the task then merges with those of other mappers. So partials pay where many rows
make one (decision 0017), and how many must be measured: from the counts of tasks while rows are sent, of mappers while
partials are. Rows that go to the same task for other tables anyway save nothing. The answers are the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from penstock.planner.counters import Counters, TableCounters
from penstock.planner.decisions import Sending
from penstock.planner.network import Network
from penstock.planner.panes import PARTIALS
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate

# Microseconds of CPU on one machine, from `python -m benchmarks.partials`; between machines rows cost more.
ROW = 0.3  # to send and receive a row
PARTIAL = 0.55  # to send, receive and merge a partial
STATE = 120.0  # per sketch or user's state in it: packed, unpacked and merged as objects
LEAST = 1_000  # rows needed for a decision
GAIN = 0.2  # the least share of the cost that a change must save
DECAY = 0.7  # weight of a step relative to the next one
_FARTHEST = 8.0  # maximal ratio of a measured to an expected number of partials


class FoldingStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics of an aggregate: decayed sums over steps, and whether its rows are `folded` by mappers.

    `rows` had mappers for all tasks; `saved` of them would not have been sent without this aggregate; `partials` were
    made of them, or are expected. `bias` is the ratio of made to expected partials when they were last made.
    """

    rows: float = 0.0
    saved: float = 0.0
    partials: float = 0.0
    bias: float = 1.0
    folded: bool = False
    measured: bool = False  # whether mappers counted the partials of the last step
    rolled: str = ""  # the aggregate whose partials mappers make them from, see `rollup`; "" for rows

    @property
    def reduction(self) -> float:
        """Rows per partial in a mapper."""
        return self.rows / self.partials if self.partials else 1.0


UNKNOWN = FoldingStatistics()


def is_foldable(aggregate: WindowAggregate) -> bool:
    """Whether mappers can make partials of its rows: only partials are stored, and each row counts at one time.

    Rows that count at several ticks are results of a join, and become partials in the task.
    """
    plan = aggregate.plan
    once = all(source.ticks is None for source in aggregate.sources)
    return once and not plan.buffered and all(own.kept == PARTIALS for own in plan.sets)


def foldable_tables(network: Network) -> dict[int, tuple[WindowAggregate, AggregateSource]]:
    """The state tables of whose rows mappers can make partials, and their aggregates."""
    return {s.table: (a, s) for a in network.aggregates if is_foldable(a) for s in a.sources}


def folded_in(network: Network, stored: Mapping[str, FoldingStatistics]) -> frozenset[int]:
    """The aggregates, by number, of whose rows mappers send partials."""
    return frozenset(a.index for a in network.aggregates if is_foldable(a) and stored.get(a.name, UNKNOWN).folded)


def observe(
    network: Network, stored: Mapping[str, FoldingStatistics], step: Counters, tasks: int
) -> dict[str, FoldingStatistics]:
    """The statistics after one more step. Steps without rows from mappers change nothing."""
    tables = {table.index: step.table(table.name) for table in network.tables}
    sent = {table: _share_sent(network, step, table) for table in tables}
    for aggregate in network.aggregates:  # where partials clearly pay, rows are not sent for long
        known = stored.get(aggregate.name, UNKNOWN)
        if is_foldable(aggregate) and (known.folded or _pays(aggregate, replace(known, saved=known.rows))):
            sent |= {source.table: 0.0 for source in aggregate.sources}
    found = {}
    for aggregate in network.aggregates:
        known = stored.get(aggregate.name, UNKNOWN)
        own = [tables[source.table] for source in aggregate.sources]
        rows = sum(counts.exchanged for counts in own)
        if not is_foldable(aggregate):
            known = replace(known, folded=False)
        elif rows:
            saved = 0.0
            for source in aggregate.sources:
                alone = float(tables[source.table].exchanged)
                for table in network.tables_of(source.stream):
                    alone *= 1 if table.index == source.table else 1 - sent[table.index] / tasks
                saved += alone
            mappers = max(counts.mappers for counts in own)
            expected = _expected(rows, mappers, step.table(aggregate.name))
            made, folded = sum(counts.partials for counts in own), sum(counts.folded for counts in own)
            if folded and expected:
                known = replace(known, bias=min(max(made / expected, 1 / _FARTHEST), _FARTHEST))
            known = replace(
                known,
                rows=DECAY * known.rows + rows,
                saved=DECAY * known.saved + saved,
                measured=bool(folded),
                partials=DECAY * known.partials + (made if folded else min(expected * known.bias, rows)),
            )
        if known != UNKNOWN:
            found[aggregate.name] = known
    return found


def _share_sent(network: Network, step: Counters, table: int) -> float:
    """The share of its stream's rows that a step sent for a state table."""
    own = network.tables[table]
    accepted, counts = step.stream(own.stream).accepted, step.table(own.name)
    gone = counts.unwanted + counts.folded
    return 0.0 if own.mapped or not accepted else max(0.0, 1 - gone / accepted)


def check(
    network: Network, stored: Mapping[str, FoldingStatistics]
) -> tuple[dict[str, FoldingStatistics], list[Sending]]:
    """What mappers send from now on, and the changes."""
    after, changes = dict(stored), []
    for aggregate in network.aggregates:
        known = stored.get(aggregate.name, UNKNOWN)
        if not is_foldable(aggregate) or known.rows < LEAST or known.partials <= 0:
            continue
        costs = costs_of(aggregate, known)
        old, new = (costs[now] for now in (known.folded, not known.folded))
        if new >= (1 - GAIN) * old:
            continue
        changed = replace(known, folded=not known.folded)
        after[aggregate.name] = changed
        reason = f"a partial stands for {known.reduction:,.1f} rows of a mapper"
        if known.saved < 0.99 * known.rows:
            reason += f", and {1 - known.saved / known.rows:.0%} of the rows are sent for other tables anyway"
        changes.append(Sending(aggregate.name, _said(known), _said(changed), old, new, reason))
    return after, changes


def costs_of(aggregate: WindowAggregate, known: FoldingStatistics) -> dict[bool, float]:
    """The cost of the exchange per row, with rows and with partials."""
    each = PARTIAL
    whole = 0.0
    for piece in aggregate.plan.pieces:
        each += STATE if piece.kind == "state" else 0.0
        whole += ROW if piece.kind == "bag" else 0.0  # it may have as many values as there are rows
    return {False: ROW * known.saved / known.rows, True: whole + each / known.reduction}


def sent_text(known: FoldingStatistics) -> str:
    """What mappers send, and why, for EXPLAIN."""
    if not known.partials:
        return f"{_said(known)} are sent to tasks by mappers, if any"
    counted = "measured" if known.measured else "estimated"
    return f"{_said(known)} are sent to tasks by mappers, {known.reduction:,.1f} rows per partial {counted}"


def _pays(aggregate: WindowAggregate, known: FoldingStatistics) -> bool:
    if known.rows < LEAST or known.partials <= 0:
        return False
    costs = costs_of(aggregate, known)
    return costs[True] < (1 - GAIN) * costs[False]


def _expected(rows: float, mappers: int, counts: TableCounters) -> float:
    """The partials of all mappers together, by those of tasks over all rows, if rows reach mappers at random."""
    made = [count for count in counts.panes.partials.values() if count]
    return sum(mappers * count * (1 - (1 - 1 / mappers) ** (rows / count)) for count in made) if mappers else 0.0


def _said(known: FoldingStatistics) -> str:
    return "partials" if known.folded else "rows"
