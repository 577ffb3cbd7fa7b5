"""How the queries of a network share state: the chain of each state table, and the state under other strategies.

Both follow from counts: the rows of each table by their own life and by role (`lives` and `roles` among its counters),
and the rows in its runs (decision 0020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.model.time import FOREVER
from penstock.planner.chain import Chain, Load, UnitCosts, budget_chain, chain_cost, chain_memory, cpu_opt, mem_opt
from penstock.planner.counters import Counters
from penstock.planner.decisions import Recut
from penstock.planner.network import Network
from penstock.planner.state_table import StateTable

CHAINS = ("auto", "mem_opt", "cpu_opt")
SURPLUS = 0.02  # of rows that 'auto' may store beyond the fewest, for fewer links
# Seconds, from probing 100,000 rows against 1, 16 and 64 runs once: a probing row costs about 15 ns per run, and a link
# has about 20 of them; a candidate pair costs 22 ns. Only their ratio matters.
COSTS = UnitCosts(link=300e-9, pair=22e-9, route=1e-9)


class Held(Protocol):
    """What is known of a run without opening it."""

    @property
    def table(self) -> str: ...
    @property
    def level(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def life(self) -> int: ...
    @property
    def min_time(self) -> int: ...
    @property
    def max_time(self) -> int: ...


@dataclass(frozen=True)
class Facts:
    """Statistics of one state table: rows per microsecond by own life and by role, and of all rows."""

    lives: Mapping[int, float]
    roles: Mapping[int, float]
    arriving: float

    def held(self, chain: Sequence[int]) -> float:
        """Rows that the table stores with this chain, without those that live for ever."""
        lives = tuple(sorted(life for life in self.lives if life < FOREVER))
        cuts = tuple(cut for cut in chain if cut < FOREVER)
        if not lives:
            return 0.0
        return chain_memory(Load(lives, tuple(self.lives[life] for life in lives), 0.0, 0.0), cuts)


def facts(table: StateTable, counters: Counters, runs: Sequence[Held]) -> Facts:
    """From counters and fresh runs; without any, as if each role had the same share of rows, one row per millisecond.

    Counters go back to the beginning. Rows counted with a life that only dropped queries had count for the longest
    shorter life that is still wanted; without one, no query wants them. The number of them wanted now is at most the
    count of the remaining roles.
    """
    counts = counters.table(table.name)
    by_life, sampled = counts.lives, counts.sampled
    by_role = {e.id: counts.roles.get(e.id, 0) for e in table.entries}
    wanted = {entry.life for entry in table.entries}
    stored = dict.fromkeys(wanted, 0)
    for life, number in by_life.items():
        now = max((other for other in wanted if other <= life), default=None)
        if now is not None:
            stored[now] += number
    total = sum(stored.values())
    if not total or not sampled:
        share = 1e-3 / max(1, len(wanted))
        return Facts(dict.fromkeys(wanted, share), {e.id: share for e in table.entries}, 1e-3)
    fresh = [r for r in runs if r.table == table.name and r.level == 0]
    span = max((r.max_time for r in fresh), default=0) - min((r.min_time for r in fresh), default=0)
    rate = sum(r.rows for r in fresh) / span if span > 0 else 1e-3
    served = total if by_life.keys() <= wanted else min(total, sum(by_role.values()) or total)
    roles = {role: number * rate / served for role, number in by_role.items()}
    return Facts({life: n * rate / total for life, n in stored.items()}, roles, sampled * rate / served)


def choose_chains(network: Network, mode: str, counters: Counters, runs: Sequence[Held]) -> Network:
    """The network with every table's chain chosen: fewest rows, least work, or nearly fewest with less work."""
    known = {t.index: facts(t, counters, runs) for t in network.tables}
    costs = replace(COSTS, pair=COSTS.pair * _candidates(counters, runs))
    tables = []
    for table in network.tables:
        probes = sum(sum(known[other].lives.values()) for other in partners(network, table))
        tables.append(replace(table, chain=_chain(table, mode, known[table.index], probes, costs)))
    return replace(network, tables=tuple(tables))


@dataclass(frozen=True)
class Offer:
    """A chain, the rows that a table would store with it, and the seconds for a row that probes it."""

    chain: Chain
    rows: float
    seconds: float


def chain_offers(table: StateTable, counters: Counters, runs: Sequence[Held]) -> dict[str, Offer]:
    """The estimates of `choose_chains` for the chain in force, for the fewest rows and for the least work."""
    found = facts(table, counters, runs)
    costs = replace(COSTS, pair=COSTS.pair * _candidates(counters, runs))
    lives = mem_opt(entry.life for entry in table.entries)
    load = Load(lives, tuple(found.lives.get(life, 0.0) for life in lives), 1.0, 0.0)
    chains = {"in force": table.chain, "fewest rows": lives, "least work": cpu_opt(load, costs)}
    known = {name: chain for name, chain in chains.items() if set(chain) <= set(lives)}
    return {name: Offer(chain, found.held(chain), chain_cost(load, costs, chain)) for name, chain in known.items()}


def recuts(before: Network, after: Network, counters: Counters, runs: Sequence[Held]) -> list[Recut]:
    """The tables of a network with other cuts now, in the form of `choose_chains`."""
    found = []
    for old, new in zip(before.tables, after.tables, strict=True):
        if old.chain != new.chain:
            offers = [chain_offers(table, counters, runs)["in force"] for table in (old, new)]
            (old_rows, new_rows), (old_cost, new_cost) = ((o.rows for o in offers), (1e6 * o.seconds for o in offers))
            found.append(Recut(new.name, old.chain, new.chain, old_rows, new_rows, old_cost, new_cost))
    return found


def _chain(table: StateTable, mode: str, found: Facts, probes: float, costs: UnitCosts) -> Chain:
    lives = mem_opt(entry.life for entry in table.entries)
    if mode == "mem_opt" or len(lives) <= 1:
        return lives
    load = Load(lives, tuple(found.lives.get(life, 0.0) for life in lives), probes, 0.0)
    return cpu_opt(load, costs) if mode == "cpu_opt" else budget_chain(load, costs, SURPLUS)


def _candidates(counters: Counters, runs: Sequence[Held]) -> float:
    """The share of stored rows that a probing row meets: those of its key."""
    probed = sum(counts.probed for counts in counters.tables.values())
    met = sum(counts.candidates for counts in counters.tables.values())
    held = sum(run.rows for run in runs)
    return met / probed / held if probed and held else 1e-3


def partners(network: Network, table: StateTable) -> set[int]:
    """The state tables whose new rows probe this one."""
    return {
        other
        for join in network.joins
        if any(own == table.index for _, own in join.places)
        for _, other in join.places
        if other != table.index
    }


def compare_strategies(network: Network, counters: Counters, runs: Sequence[Held]) -> dict[str, float]:
    """Strategy -> estimated rows that it would store, without rows that live for ever."""
    totals = dict.fromkeys(("state_slice", "push_down", "pull_up", "isolated"), 0.0)
    for table in network.tables:
        if table.stateless or table.grouped:
            continue
        found = facts(table, counters, runs)
        finite = [entry for entry in table.entries if entry.life < FOREVER]
        totals["state_slice"] += found.held(table.chain)
        totals["push_down"] += found.held(mem_opt(found.lives))
        totals["pull_up"] += found.arriving * max((e.life for e in finite), default=0)
        totals["isolated"] += sum(found.roles[e.id] * e.life for e in finite)
    return totals
