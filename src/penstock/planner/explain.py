"""The plan as text that a person can read and paste into a ticket. Printed from the object that runs."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.time import FOREVER, format_duration
from penstock.planner.network import Join, Member, Network, StateTable

Measured = Mapping[str, Mapping[str, int]]  # counts so far by 'stream:name', 'table:name', 'query:id'


def explain_network(network: Network, measured: Measured, name: str | None = None) -> str:
    """The whole network, or what concerns one query."""
    joins = [j for j in network.joins if name is None or any(m.name == name for m in j.members)]
    tables = [t for t in network.tables if name is None or any(t.index in j.tables for j in joins)]
    queries = _count(len(network.queries), "query", "queries")
    sizes = f"{queries}, {_count(len(network.streams), 'stream')}, {_count(len(network.joins), 'join')}"
    lines = [f"network version {network.version}: {sizes}"]
    for stream in network.streams.values():
        if name is not None and not any(t.stream == stream.name for t in tables):
            continue
        unit = str(stream.delay) if stream.integer_time else format_duration(stream.delay)
        lines.append(
            f"stream {stream.name}: event time {stream.event_time}, delay {unit}, late -> {stream.late}, bad -> {stream.bad}"
        )
    for table in tables:
        lines += _table(network, table, measured)
    for join in joins:
        lines += _join(network, join, measured, name)
    return "\n".join(lines)


def _table(network: Network, table: StateTable, measured: Measured) -> list[str]:
    integer = network.streams[table.stream].integer_time
    if table.stateless:
        lines = [f"pass-through {table.name}: nothing is kept"]
    else:
        chain = sorted({life for entry in table.entries for _, life in entry.lives})
        cuts = ", ".join(_length(c, integer=integer) for c in chain) or "none"
        lines = [
            f"state table {table.name}: {_count(len(table.entries), 'role')} in its bits, stores {', '.join(table.columns) or 'time and key only'}",
            f"  chain: {cuts}",
        ]
    for index in table.indexes:
        lines.append(
            f"  predicate index on {index.column}: {_count(len(index.literals), 'literal')}, {len(set(index.masks))} distinct masks"
        )
    for truth, entries in table.truths:
        text = next(
            "".join(p if isinstance(p, str) else p.column for p in d.parts) for d in network.derived if d.name == truth
        )
        lines.append(f"  computed by Spark for {_count(len(entries), 'role')}: {text}")
    counts = measured.get(f"table:{table.name}", {})
    if counts:
        lines.append("  measured: " + ", ".join(f"{k} {v:,}" for k, v in counts.items()))
    return lines


def _join(network: Network, join: Join, measured: Measured, name: str | None) -> list[str]:
    lines = [f"join {join.name}: {_count(len(join.members), 'query', 'queries')} in one probe"]
    if len(join.tables) > 1:
        for start, order in enumerate(join.orders):
            hops = " -> ".join(
                f"{_label(network, join, h.position)}{' (with new rows)' if h.fresh else ''}" for h in order
            )
            lines.append(f"  new rows of {_label(network, join, start)}: {hops}")
    lines.extend(_member(network, join, m, measured) for m in join.members if name is None or m.name == name)
    return lines


def _member(network: Network, join: Join, member: Member, measured: Measured) -> str:
    spans = []
    for position in range(len(join.tables)):
        others = [member.bounds[position][p] for p in range(len(join.tables)) if p != position]
        if others:
            integer = network.streams[network.tables[join.tables[position]].stream].integer_time
            life = FOREVER if max(others) >= FOREVER else max(others) + 1
            spans.append(f"{_label(network, join, position)} {_length(life, integer=integer)}")
    text = f"  bit {member.bit}: {member.name}"
    if spans:
        text += f" (reaches back {', '.join(spans)})"
    if member.finished_by_spark:
        text += ", finished by Spark"
    counts = measured.get(f"query:{member.id}", {})
    if counts:
        text += ", " + ", ".join(f"{k} {v:,}" for k, v in counts.items())
    return text


def _label(network: Network, join: Join, position: int) -> str:
    stream = network.tables[join.tables[position]].stream
    same = [p for p, t in enumerate(join.tables) if network.tables[t].stream == stream]
    return stream if len(same) == 1 else f"{stream}#{same.index(position) + 1}"


def _length(length: int, *, integer: bool) -> str:
    if length >= FOREVER:
        return "for ever"
    return str(length) if integer else format_duration(length)


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
