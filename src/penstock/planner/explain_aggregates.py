"""EXPLAIN of window aggregates: what queries share, pane widths, each query's plan and why, and stored state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from penstock.model.time import NEVER, SECOND, format_duration, format_length
from penstock.planner import folding as fold
from penstock.planner.counters import Counters
from penstock.planner.decisions import Arrangement, Decisions, last_of
from penstock.planner.network import Network
from penstock.planner.pane_sharing import UNKNOWN, PaneStatistics, set_text, work_of
from penstock.planner.panes import PARTIALS, window_class
from penstock.planner.rollup import rolled_text
from penstock.planner.share import Held
from penstock.planner.taxonomy import ROWS, Piece
from penstock.planner.window_aggregate import WindowAggregate

NOTHING: Mapping[str, Any] = MappingProxyType({})


def explain_aggregates(
    network: Network,
    measured: Counters,
    runs: Sequence[Held],
    name: str | None = None,
    decisions: Decisions = (),
    folding: Mapping[str, fold.FoldingStatistics] = NOTHING,
    panes: Mapping[str, PaneStatistics] = NOTHING,
) -> list[str]:
    """The aggregates of a network or of a query, with the last decision about their panes, and what mappers send.

    `panes` are the statistics of pane sets.
    """
    lines = []
    for aggregate in aggregates_of(network, name):
        lines += _aggregate(network, aggregate, measured, runs, name)
        lines += _work(network, aggregate, panes)
        if fold.is_foldable(aggregate):
            lines.append(f"  {fold.sent_text(folding.get(aggregate.name, fold.UNKNOWN))}")
            if (rolled := rolled_text(network, folding, aggregate)) is not None:
                lines.append(f"  {rolled}")
        if (found := last_of(decisions, Arrangement, aggregate.name)) is not None:
            step, last = found
            now = f"{'; '.join(last.before)} becomes {'; '.join(last.after)}"
            text = now if last.action == "changed" else f"kept {'; '.join(last.before)}"
            lines.append(
                f"  panes looked at after step {step:,}: {text}, cost {last.old_cost:,.3g} before "
                f"and {last.new_cost:,.3g} now; {last.reason}"
            )
    return lines


def aggregates_of(network: Network, name: str | None) -> list[WindowAggregate]:
    return [a for a in network.aggregates if name is None or any(m.name == name for m in a.members)]


def _aggregate(
    network: Network, aggregate: WindowAggregate, measured: Counters, runs: Sequence[Held], name: str | None
) -> list[str]:
    plan = aggregate.plan
    integer = network.streams[aggregate.streams[0]].integer_time
    count = len(aggregate.members)
    shared = "1 query has" if count == 1 else f"{count} queries share"
    if plan.width is None:
        kept = "rows"
    else:
        width = format_length(plan.width, integer=integer)
        kept = f"panes of {width}: {', '.join(_piece(aggregate, p) for p in plan.pieces)}"
    lines = [f"aggregate {aggregate.name}: {shared} {kept}"]
    if len(plan.sets) > 1 or any(own.kept != PARTIALS for own in plan.sets):
        lines += [f"  kept {set_text(aggregate, own, integer=integer)}" for own in plan.sets]
    for member, query, choice in zip(aggregate.members, plan.queries, plan.choices, strict=True):
        if name is None or member.name == name:
            text = f"  bit {member.bit}: {member.name}, {choice.plan} ({window_class(query.window)}; {choice.reason})"
            if choice.costs:
                text += ", work for a window: " + ", ".join(
                    f"{plan} {cost:,.0f}" for plan, cost in choice.costs.items()
                )
            if query.having is not None:
                text += (
                    f", HAVING {'in the kernel' if query.having.term is not None else 'by Spark when results are read'}"
                )
            if query.top is not None:
                where = "in the kernel" if query.cut else "by Spark when results are read"
                text += f", the first {query.top.count:,} rows of each window {where}"
            if member.paned:
                text += ", results kept as panes"
            elif member.repeats:
                text += ", results kept as runs of equal windows"
            if member.every is not None:
                text += f", open windows shown every {format_duration(member.every)}"
            if aggregate.flush is not None:
                text += f", at most {aggregate.flush[0]:,} results a step, {aggregate.flush[1]} windows late at most"
            if member.first > NEVER:
                text += f", windows that start from {member.first} on"
            counts = measured.query(member.id).shown()
            lines.append(text + "".join(f", {key} {value:,}" for key, value in counts.items()))
    indexes = network.tables[aggregate.home].indexes
    lines += [f"  predicate index on {index.column}: {len(index.literals)} literals" for index in indexes]
    return lines + measured_line(aggregate.name, measured, runs)


def measured_line(name: str, measured: Counters, runs: Sequence[Held]) -> list[str]:
    """The counters of a table or an aggregate, and what it holds."""
    counts = measured.table(name).shown()
    held = [r for r in runs if r.table == name]
    if held:
        counts |= {"rows": sum(r.rows for r in held), "bytes": sum(r.bytes for r in held), "runs": len(held)}
    return ["  measured: " + ", ".join(f"{k} {v:,}" for k, v in counts.items())] if counts else []


def _work(network: Network, aggregate: WindowAggregate, panes: Mapping[str, PaneStatistics]) -> list[str]:
    """The measured rates, and the work per row with these pane sets and with others."""
    known = panes.get(aggregate.name, UNKNOWN)
    if aggregate.plan.buffered or known.rates is None:
        return []
    integer = network.streams[aggregate.streams[0]].integer_time
    rows, unit = (known.rates.rows, "unit of time") if integer else (SECOND * known.rates.rows, "second")
    work = ", ".join(f"{name} {cost:,.3g}" for name, cost in work_of(aggregate, known.rates).items())
    width = format_length(known.width, integer=integer)
    return [
        (
            f"  panes: measured {rows:,.4g} rows a {unit}, {known.rates.held(known.width):,.1f} groups in a pane "
            f"of {width}; estimated work for a row: {work}"
        )
    ]


def _piece(aggregate: WindowAggregate, piece: Piece) -> str:
    what = "rows"
    if piece.argument != ROWS:
        what = aggregate.plan.arguments[piece.argument].shown(lambda ref: ref.column)
    return f"{piece.function or piece.kind} of {what}"
