"""The pane sets of a network's window aggregates, changed at run time: which queries share panes, in which row form.

Stored state stays readable with any sets, so they change between two steps without moving anything. Counts of steps
become decayed rates, which are checked every few steps; sets change only if that saves a good part of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import msgspec
from msgspec import structs

from penstock.model import AggregateWindow
from penstock.model.time import format_length
from penstock.planner.counters import Counters
from penstock.planner.decisions import Arrangement
from penstock.planner.network import Network
from penstock.planner.panes import PaneSet, Rates, cost_of, pane_sets, pane_width, set_costs
from penstock.planner.window_aggregate import WindowAggregate

EVERY = 4  # steps with rows between two checks
LEAST = 1_000  # rows needed for a decision: below, all sets cost the same
GAIN = 0.2  # the least share of the cost that a change must save
DECAY = 0.7  # weight of a step relative to the next one


class PaneStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics of an aggregate as decayed sums over steps, and its sets.

    The sums: `rows`, event `time`, partials `made` in panes of `width`, `groups`, `weight`. `sets` are (queries, form);
    none before the first change.
    """

    rows: float = 0.0
    time: float = 0.0
    made: float = 0.0
    groups: float = 0.0
    weight: float = 0.0
    width: int = 0
    steps: int = 0
    sets: tuple[tuple[tuple[int, ...], str], ...] = ()

    @property
    def rates(self) -> Rates | None:
        if self.rows <= 0 or self.time <= 0:
            return None
        step = self.time / self.weight
        panes = max(1.0, step / self.width)  # in one step
        made = self.made / self.weight / panes
        return Rates(self.rows / self.time, made, min(float(self.width), step), step, self.groups / self.weight)


UNKNOWN = PaneStatistics()


def arrange(network: Network, stored: Mapping[str, PaneStatistics]) -> Network:
    """The network with the last chosen pane sets; where queries were added since, they are chosen again."""
    if network.plan:
        return network
    return replace(network, aggregates=tuple(_arranged(a, stored.get(a.name, UNKNOWN)) for a in network.aggregates))


def observe(
    network: Network, stored: Mapping[str, PaneStatistics], step: Counters, advanced: Mapping[str, int]
) -> dict[str, PaneStatistics]:
    """The statistics after one more step that has advanced the newest times of streams by `advanced`."""
    found = {}
    for aggregate in network.aggregates:
        if not _is_arranged(aggregate):
            continue
        known = stored.get(aggregate.name, UNKNOWN)
        tables = (network.tables[source.table].name for source in aggregate.sources)
        rows = sum(step.table(name).aggregated for name in tables)
        panes = step.table(aggregate.name).panes
        moved = max((advanced.get(stream, 0) for stream in aggregate.streams), default=0)
        if rows and panes.partials and moved >= 0:
            width = min(panes.partials)
            old = (
                known
                if known.width == width
                else structs.replace(known, rows=0.0, time=0.0, made=0.0, groups=0.0, weight=0.0)
            )
            known = structs.replace(
                old, rows=DECAY * old.rows + rows, time=DECAY * old.time + moved, weight=DECAY * old.weight + 1,
                made=DECAY * old.made + panes.partials[width], groups=DECAY * old.groups + panes.groups,
                width=width, steps=known.steps + 1,
            )  # fmt: skip
        found[aggregate.name] = known
    return found


def check(
    network: Network, stored: Mapping[str, PaneStatistics]
) -> tuple[dict[str, PaneStatistics], list[Arrangement]]:
    """The sets chosen now, with the decisions that were due."""
    after, decisions = dict(stored), []
    for aggregate in network.aggregates if not network.plan else ():
        known = stored.get(aggregate.name, UNKNOWN)
        rates = known.rates
        if rates is None or known.rows < LEAST or known.steps % EVERY:
            continue
        windows = {q.query: q.window for q in aggregate.plan.queries}
        present, best = aggregate.plan.sets, pane_sets(windows, rates)
        if _plain(best) == _plain(present):
            continue
        old, new = cost_of(present, windows, rates), cost_of(best, windows, rates)
        changes = new < (1 - GAIN) * old
        integer = network.streams[aggregate.streams[0]].integer_time
        held = rates.held(known.width)
        reason = (
            f"a pane of {format_length(known.width, integer=integer)} has {rates.rows * known.width:,.1f} "
            f"rows of {held:,.1f} groups; "
            + (f"that saves {1 - new / old:.0%}" if changes else f"a change would save only {1 - new / old:.0%}")
        )
        before, wanted = (tuple(set_text(aggregate, own, integer=integer) for own in sets) for sets in (present, best))
        action: Literal["changed", "kept"] = "changed" if changes else "kept"
        decisions.append(Arrangement(aggregate.name, known.steps // EVERY, action, before, wanted, old, new, reason))
        if changes:
            after[aggregate.name] = structs.replace(known, sets=_plain(best))
    return after, decisions


def work_of(aggregate: WindowAggregate, rates: Rates) -> dict[str, float]:
    """The work per new row, in units of putting one into a pane: with the sets in force, and with others."""
    windows = {q.query: q.window for q in aggregate.plan.queries}
    together = set_costs(list(windows.values()), rates)
    found = {"in force": cost_of(aggregate.plan.sets, windows, rates)}
    found |= {f"all as {form}": cost for form, cost in together.items()}
    if len(windows) > 1:
        found["each query apart"] = sum(min(set_costs([w], rates).values()) for w in windows.values())
    return {name: cost / rates.rows for name, cost in found.items()}


def set_text(aggregate: WindowAggregate, own: PaneSet, *, integer: bool) -> str:
    """A pane set, for EXPLAIN."""
    names = {m.id: m.name for m in aggregate.members}
    kept = {"rows": "rows", "either": "rows or partials, by bucket,"}.get(own.kept, "partials")
    return f"{kept} in panes of {format_length(own.width, integer=integer)}: {', '.join(names[n] for n in own.queries)}"


def _is_arranged(aggregate: WindowAggregate) -> bool:
    """Whether pane sets may change: not where rows count at several ticks, where partials skip single rows."""
    return not aggregate.plan.buffered and all(source.ticks is None for source in aggregate.sources)


def _arranged(aggregate: WindowAggregate, known: PaneStatistics) -> WindowAggregate:
    plan = aggregate.plan
    if not _is_arranged(aggregate) or not known.sets:
        return aggregate
    windows = {q.query: q.window for q in plan.queries}
    rates = known.rates
    if set(windows) <= {number for queries, _ in known.sets for number in queries}:
        kept = [(tuple(n for n in queries if n in windows), form) for queries, form in known.sets]
        sets = [PaneSet(queries, *_width(windows, queries), form) for queries, form in kept if queries]
    else:
        sets = pane_sets(windows, rates)
    return replace(aggregate, plan=plan.arranged(sets, rates=rates))


def _width(windows: Mapping[int, AggregateWindow | None], queries: Sequence[int]) -> tuple[int, int]:
    found = pane_width([windows[n] for n in queries])
    assert found is not None
    return found


def _plain(sets: Sequence[PaneSet]) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple(sorted((tuple(sorted(own.queries)), own.kept) for own in sets))
