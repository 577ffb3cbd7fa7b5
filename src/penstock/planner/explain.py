"""The plan as text that users can read and paste into a ticket. Printed from the object that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from penstock.model import Stream
from penstock.model.time import FOREVER, MILLISECOND, format_duration, format_length
from penstock.planner.chain import link_of
from penstock.planner.counters import Counters
from penstock.planner.decisions import Decisions
from penstock.planner.explain_aggregates import aggregates_of, explain_aggregates, measured_line
from penstock.planner.explain_derived import explain_derived
from penstock.planner.explain_orders import Checks, explain_orders
from penstock.planner.explain_sharing import explain_access, explain_stream, explain_table, last_recut
from penstock.planner.folding import FoldingStatistics
from penstock.planner.join import Join, Member
from penstock.planner.links import links_in
from penstock.planner.network import Network
from penstock.planner.pane_sharing import PaneStatistics
from penstock.planner.routes import MOVED, WHOLE, Hop, Routes, build_routes
from penstock.planner.share import SURPLUS, Facts, Held, compare_strategies, facts, partners
from penstock.planner.state_table import StateTable
from penstock.planner.ways import Way, explain_way

NOTHING: Mapping[str, Any] = MappingProxyType({})
_CHOSEN = {"auto": "auto: ", "asked": "asked for", "kept": "auto: kept, the state was written by it"}


def explain_network(
    network: Network,
    measured: Counters = Counters(),  # noqa: B008  (never changed)
    runs: Sequence[Held] = (),
    name: str | None = None,
    routes: Routes | None = None,
    decisions: Decisions = (),
    checks: Checks = NOTHING,
    folding: Mapping[str, FoldingStatistics] = NOTHING,
    panes: Mapping[str, PaneStatistics] = NOTHING,
    way: Way = Way(1),  # noqa: B008  (frozen)
    buckets: Sequence[str] = (),
) -> str:
    """The whole network, or what concerns one query; with measurements, also the estimates behind choices.

    `decisions` are the last ones of all choices, `checks` those of probe orders; `folding` are the statistics of
    partials in mappers, `panes` those of pane sets, `way` those of the rows of the last step; `buckets` are
    lines about the work of tasks.
    """
    joins = [j for j in network.joins if name is None or any(m.name == name for m in j.members)]
    tables = [t for t in network.tables if name is None or any(t.index == own for j in joins for _, own in j.places)]
    tables = [t for t in tables if not t.grouped]
    shown = {t.stream for t in tables} | {stream for a in aggregates_of(network, name) for stream in a.streams}
    queries = _count(len({query.name for query in network.queries}), "query", "queries")
    streams = len(network.streams) - len(network.derived_streams)
    sizes = f"{queries}, {_count(streams, 'stream')}, {_count(len(network.joins), 'join')}"
    if network.aggregates:
        sizes += f", {_count(len(network.aggregates), 'aggregate')}"
    lines = [f"network version {network.version}: {sizes}"]
    if name is None:
        lines += [_strategy(network, measured, runs), *explain_way(way), *buckets]
    lines += explain_derived(network, shown if name is not None else network.streams)
    derived = {d.name for d in network.derived_streams}
    for stream in network.streams.values():
        if (name is not None and stream.name not in shown) or stream.name in derived:
            continue
        lines.append(
            f"stream {stream.name}: event time {stream.event_time}, {_progress(stream)}, late -> "
            f"{stream.late}, bad -> {stream.bad}"
        )
        lines += explain_stream(network, stream.name, measured) if name is None else []
    for table in tables:
        lines += _table(network, table, measured, runs, decisions)
    known = {t.index: facts(t, measured, runs) for t in tables if _sampled(t, measured)}
    for join in joins:
        lines += _join(network, join, routes, measured, way.tasks, decisions)
        lines += _apart(network, join, [j for j in network.joins if name is not None or j.index < join.index])
        lines += explain_orders(join.name, partial(_label, network, join), decisions, checks)
        lines += [_member(network, join, m, measured, known) for m in join.members if name is None or m.name == name]
    return "\n".join([*lines, *explain_aggregates(network, measured, runs, name, decisions, folding, panes)])


def _progress(stream: Stream) -> str:
    """The sources of the stream's progress."""
    found = []
    if stream.delay is not None:
        found.append(f"delay {format_length(stream.delay, integer=stream.integer_time)}")
    if stream.delay_rows is not None:
        found.append(f"delay {stream.delay_rows} rows by {stream.sequence}")
    if stream.heartbeat is not None:
        found.append(f"heartbeat {format_duration(stream.heartbeat)}")
    if stream.idle is not None:
        found.append(f"idle {format_duration(stream.idle)}")
    if stream.punctuation is not None:
        found.append(f"punctuation in {stream.punctuation}")
    if stream.patterns:
        found.append(f"punctuation by {', '.join(c.name for c in stream.patterns)}")
    return ", ".join(found)


def _strategy(network: Network, measured: Counters, runs: Sequence[Held]) -> str:
    """The strategy in force, why it was chosen, and the state of each strategy."""
    text = f"strategy {network.strategy}"
    if not any(_sampled(table, measured) for table in network.tables):
        begins = {**_CHOSEN, "auto": "auto: it holds the fewest rows by the model"}
        return text + (f" ({begins[network.chosen]})" if network.chosen else "")
    held = compare_strategies(network, measured, runs)
    fewest = min(held, key=lambda strategy: held[strategy])
    why = _CHOSEN.get(network.chosen, "")
    if network.chosen == "auto":
        # A chain may store slightly more than the fewest rows for fewer links; with 'cpu_opt' also much more.
        least = held[network.strategy] <= (1 + SURPLUS) * held[fewest]
        why += "it holds the fewest rows" if least else f"the chain in force holds more rows than {fewest} would"
    rows = ", ".join(f"{s} {round(n):,}" for s, n in held.items())
    return f"{text}{f' ({why})' if why else ''}; rows that each strategy would hold (estimated): {rows}"


def _sampled(table: StateTable, measured: Counters) -> bool:
    return measured.table(table.name).sampled > 0


def _table(
    network: Network, table: StateTable, measured: Counters, runs: Sequence[Held], decisions: Decisions
) -> list[str]:
    integer = network.streams[table.stream].integer_time
    if table.stateless:
        lines = [
            f"pass-through {table.name}: nothing is kept" + (", mappers write the results" if table.mapped else "")
        ]
    else:
        cuts = ", ".join(_life(c, integer=integer) for c in table.chain) or "none"
        lines = [
            (
                f"state table {table.name}: {_count(len(table.entries) - len(table.counted), 'role')} in its "
                f"bits, stores {', '.join(table.columns) or 'time and key only'}"
            ),
            f"  chain: {cuts}",
        ]
        if table.counted:
            lines.append(
                f"  counts all rows of {table.stream}, for {_count(len(table.counted), 'window')}, by "
                f"{', '.join(table.order)}"
            )
        if _sampled(table, measured):
            found = facts(table, measured, runs)
            lines += explain_table(table, found, measured, runs, partial(_life, integer=integer))
            lines += [f"  {text}" for text in last_recut(table, decisions, partial(_life, integer=integer))]
            lines += _links(network, table, measured, runs)
    for index in table.indexes:
        lines.append(
            f"  predicate index on {index.column}: {_count(len(index.literals), 'literal')}, "
            f"{len(set(index.masks))} distinct masks"
        )
    for truth, entries in table.truths:
        value = next(d for d in network.derived if d.name == truth)
        text = "".join(p if isinstance(p, str) else p.column for p in value.parts)
        where = "by Spark" if value.term is None else "in the kernel"
        lines.append(f"  computed {where} for {_count(len(entries), 'role')}: {text}")
    return lines + measured_line(table.name, measured, runs)


def _links(network: Network, table: StateTable, measured: Counters, runs: Sequence[Held]) -> list[str]:
    """For each link the rows that end in it, estimated and stored (fresh runs belong to the longest link they reach).

    With several links, also the rows that probed it and the results with a row of its ages.
    """
    found = facts(table, measured, runs)
    integer = network.streams[table.stream].integer_time
    work = _work(network, table, measured, found) if len(table.chain) > 1 else [""] * len(table.chain)
    lines = []
    for cut, done in zip(table.chain, work, strict=True):
        ending = sum(rate for life, rate in found.lives.items() if link_of(table.chain, life) == cut)
        rows = "" if cut >= FOREVER else f"estimated {round(ending * cut):,} rows, "
        # A run may have been written for a dropped query that reached back further.
        held = [r for r in runs if r.table == table.name and link_of(table.chain, min(r.life, table.chain[-1])) == cut]
        lines.append(
            f"  link to {_life(cut, integer=integer)}: {rows}holds {sum(r.rows for r in held):,} in "
            f"{_count(len(held), 'run')}{done}"
        )
    return lines


def _work(network: Network, table: StateTable, measured: Counters, found: Facts) -> list[str]:
    """For each link of a chain its probes and results so far: by the cost model, and as counted.

    The model lets every wanted row of the other streams visit every link, and spreads their results over the rows by
    age; results of the table's own rows have age 0 here. It ignores composites, so results are estimated for joins of
    two streams only.
    """
    counts = measured.table(table.name)
    others = [network.tables[other] for other in sorted(partners(network, table))]
    probes = round(sum(_wanted(other, measured) for other in others))
    joins = [join for join in network.joins if any(own == table.index for _, own in join.places)]
    pairs = [measured.table(other.name).compared for other in others]
    held = [
        0.0
        if end >= FOREVER
        else sum(rate for life, rate in found.lives.items() if life > begin) * (end - max(begin, 0))
        for begin, end in pairwise((0, *table.chain))
    ]
    told = (
        all(len(join.tables) == 2 for join in joins) and table.chain[-1] < FOREVER and sum(held) > 0 and len(others) > 0
    )
    lines = []
    for k, (begin, end) in enumerate(links_in(table.chain)):
        probed, results = (found.get(begin, {}).get(end, 0) for found in (counts.probes, counts.results))
        text = f"; probes: estimated {probes:,}, counted {probed:,}; results: "
        if told:
            own = counts.compared if k == 0 else 0
            text += f"estimated {round(own + sum(pairs) * held[k] / sum(held)):,}, "
        lines.append(f"{text}counted {results:,}")
    return lines


def _wanted(table: StateTable, measured: Counters) -> float:
    """The rows so far that some query wanted."""
    return sum(measured.table(table.name).lives.values()) * _scale(table, measured)


def _scale(table: StateTable, measured: Counters) -> float:
    """The ratio of all rows so far to those whose lives and roles were counted, perhaps in some steps only."""
    sampled = measured.table(table.name).sampled
    rows = measured.stream(table.stream).accepted or sampled
    return rows / sampled if sampled else 0.0


def _join(
    network: Network, join: Join, routes: Routes | None, measured: Counters, tasks: int, decisions: Decisions
) -> list[str]:
    lines = [f"join {join.name}: {_count(len(join.members), 'query', 'queries')} in one probe"]
    if len(join.tables) > 1:
        own = (routes or build_routes(network)).joins[join.index]
        for route in own:
            hops = " -> ".join(_hop(network, join, hop) for hop in route.hops)
            sent = ", sent to every task" if route.everywhere else ""
            lines.append(f"  new rows of {_label(network, join, route.start)}{sent}: {hops}")
        lines += explain_access(network, own, measured, tasks, decisions, join.name)
    return lines


def _apart(network: Network, join: Join, others: Sequence[Join]) -> list[str]:
    """Why a join of several streams is separate from others of the same streams; once per further join in EXPLAIN."""
    alike = [o for o in others if o is not join and _streams(network, o) == _streams(network, join)]
    if len(join.tables) == 1 or not alike:
        return []
    if network.strategy == "isolated":
        return ["  shared with no other query: strategy isolated"]
    reasons: dict[str, list[str]] = {}
    for other in alike:
        same = (other.places, other.classes) == (join.places, join.classes)
        reasons.setdefault("only one of both waits for windows that count rows" if same else "other keys", []).append(
            other.name
        )
    lines = []
    for reason, names in reasons.items():
        more = f" and {_count(len(names) - 1, 'other')}" if len(names) > 1 else ""
        lines.append(f"  not shared with {names[0]}{more}: {reason}")
    return lines


def _streams(network: Network, join: Join) -> list[str]:
    return sorted(network.tables[table].stream for table in join.tables)


def _hop(network: Network, join: Join, hop: Hop) -> str:
    """One lookup: the position, its key if the stream has several tables, and where it happens."""
    text = _label(network, join, hop.position)
    if hop.source is None:
        text = f"scan {text}"
    elif len(join.classes) > 1:
        text = network.tables[hop.table].name
    if hop.access == MOVED:
        text = f"exchange, {text}"
    elif hop.access == WHOLE:
        text += " (whole)"
    return f"{text} (with new rows)" if hop.fresh else text


def _member(network: Network, join: Join, member: Member, measured: Counters, known: Mapping[int, Facts]) -> str:
    spans = []
    for position in range(len(join.tables)):
        others = [member.bounds[position][p] for p in range(len(join.tables)) if p != position]
        if others:
            integer = network.streams[network.tables[join.tables[position]].stream].integer_time
            life = FOREVER if max(others) >= FOREVER else max(others) + 1
            spans.append(f"{_label(network, join, position)} {_life(life, integer=integer)}")
    text = f"  bit {member.bit}: {member.name}"
    if spans:
        text += f" (reaches back {', '.join(spans)})"
    if member.finished_by_spark:
        text += ", finished by Spark"
    alone = _alone(network, join, member, measured, known)
    if alone is not None:
        text += f", alone it would hold {alone[0]:,} rows, and probe with {alone[1]:,} so far"
    counts = measured.query(member.id).shown()
    if counts:
        text += ", " + ", ".join(f"{k} {v:,}" for k, v in counts.items())
    return text


def _alone(
    network: Network, join: Join, member: Member, measured: Counters, known: Mapping[int, Facts]
) -> tuple[int, int] | None:
    """Estimated rows that a query would store alone, and rows that would have probed for it."""
    held = probes = 0.0
    for position, index in enumerate(join.tables):
        table = network.tables[index]
        entry = next(e for e in table.entries if e.query == member.share and e.position == position)
        if index not in known or entry.life >= FOREVER:
            return None
        held += known[index].roles[entry.id] * entry.life
        role = measured.table(table.name).roles.get(entry.id, 0)
        probes += role * _scale(table, measured)
    return (round(held), round(probes)) if len(join.tables) > 1 else None


def _label(network: Network, join: Join, position: int) -> str:
    stream = network.tables[join.tables[position]].stream
    same = [p for p, t in enumerate(join.tables) if network.tables[t].stream == stream]
    return stream if len(same) == 1 else f"{stream}#{same.index(position) + 1}"


def _life(length: int, *, integer: bool) -> str:
    """How long a row is needed. A closed bound (BETWEEN) reaches a microsecond further than it says."""
    if not integer and length < FOREVER and length % MILLISECOND == 1:
        return f"{format_duration(length - 1)} inclusive"
    return format_length(length, integer=integer)


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
