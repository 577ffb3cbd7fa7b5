"""EXPLAIN of sharing: for each rule its estimate, and the cost of the alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model.time import FOREVER
from penstock.planner.counters import Counters, TableCounters
from penstock.planner.decisions import Decisions, Recut, Rerouted, last_of
from penstock.planner.network import Network
from penstock.planner.routes import Route
from penstock.planner.share import Facts, Held, chain_offers
from penstock.planner.state_table import StateTable, key_column
from penstock.planner.steering import EXCHANGE, accesses, new_rows, price_of_whole


def explain_stream(network: Network, stream: str, measured: Counters) -> list[str]:
    """A stream's state tables and the key hashes they share, and how many tables a row goes to, shared and not."""
    tables = network.tables_of(stream)
    members = {a.home: len(a.members) for a in network.aggregates}
    members |= {source.table: len(a.members) for a in network.aggregates for source in a.sources}
    roles = {t.index: members.get(t.index, len(t.entries) - len(t.counted)) for t in tables}
    if sum(roles.values()) < 2:
        return []
    hashes = {(t.hashed or (key_column(t.name),), t.key_types, t.grouped) for t in tables if t.key}
    text = (
        f"  shared: {_many(len(tables), 'state table')} with {_many(len(hashes), 'key hash', 'key hashes')} for "
        f"{_many(sum(roles.values()), 'role')}"
    )
    accepted = measured.stream(stream).accepted
    if accepted:
        counts = {t.index: measured.table(t.name) for t in tables}
        shipped = sum(own.shipped for own in counts.values())
        alone = sum(_alone(t, roles[t.index], counts[t.index]) for t in tables)
        text += (
            f"; a row goes to {shipped / accepted:.1f} tables, with one for each role to {alone / accepted:.1f} "
            "(estimated, at most)"
        )
    return [text]


def _alone(table: StateTable, roles: int, counts: TableCounters) -> float:
    """The rows that tables for each role would get: as counted by role, else all rows for each."""
    sampled, shipped = counts.sampled, counts.shipped
    by_role = [counts.roles.get(e.id) for e in table.entries if not e.counting]
    known = [count for count in by_role if count is not None]
    if not sampled or len(known) < len(by_role):
        return float(roles * shipped)
    return sum(known) * (shipped + counts.unwanted) / sampled


def explain_table(
    table: StateTable, found: Facts, measured: Counters, runs: Sequence[Held], life: Callable[[int], str]
) -> list[str]:
    """A state table's estimated rows for all roles together, and for each alone; and the cost of other chains."""
    lines = []
    entries = [e for e in table.entries if e.life < FOREVER and not e.counting]
    if len(entries) > 1:
        alone = sum(found.roles[e.id] * e.life for e in entries)
        lines.append(
            f"  shared by {len(entries)} roles: estimated {found.held(table.chain):,.0f} rows, {alone:,.0f} "
            "if each had its own"
        )
    if len({e.life for e in entries}) > 1:
        offers = chain_offers(table, measured, runs)
        texts = []
        for name, offer in offers.items():
            if name != "in force" and offer.chain == table.chain:
                texts.append(f"{name} the same")
            else:
                cuts = "" if name == "in force" else f" ({', '.join(map(life, offer.chain))})"
                texts.append(f"{name}{cuts} {offer.rows:,.0f} and {1e6 * offer.seconds:.3g}")
        lines.append("  chains by rows held and us for a row that probes them (estimated): " + "; ".join(texts))
    return lines


def last_recut(table: StateTable, decisions: Decisions, life: Callable[[int], str]) -> list[str]:
    """The last change of a table's chain in this run, with its estimates."""
    found = last_of(decisions, Recut, table.name)
    if found is None:
        return []
    step, last = found
    old, new = (", ".join(map(life, chain)) for chain in (last.before, last.after))
    text = (
        f"chain changed after step {step:,}: {old} becomes {new}, {last.old_rows:,.0f} rows "
        f"before and {last.new_rows:,.0f} now, "
        f"{last.old_cost:.3g} us for a row that probes it before and {last.new_cost:.3g} now; {last.reason}"
    )
    return [text]


def explain_access(
    network: Network, routes: Sequence[Route], measured: Counters, tasks: int, decisions: Decisions, join: str
) -> list[str]:
    """For each table that a join looks up by another key: the cost of both ways per row, and the last change."""
    steps = measured.engine.steps
    if tasks < 2 or not steps:
        return []
    lines = []
    for index, ways in sorted(accesses(routes).items()):
        table = network.tables[index]
        rows = new_rows(table, measured)
        lines.append(
            f"  {table.name} is {' and '.join(sorted(ways))}: {rows:,.0f} new rows in a step sent to {tasks} "
            f"tasks cost {price_of_whole(rows, tasks):,.0f}, "
            f"an exchange {EXCHANGE:,.0f}"
        )
        if (found := last_of(decisions, Rerouted, join, table=table.name)) is not None:
            step, last = found
            lines.append(
                f"  {table.name} {last.before} becomes {last.after} after step {step:,}, cost "
                f"{last.old_cost:,.0f} before and {last.new_cost:,.0f} now; {last.reason}"
            )
    return lines


def _many(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
