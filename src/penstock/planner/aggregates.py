"""The plans of window aggregates: what the queries of one stream with the same groups share, and how each is computed.

Queries share pieces as far as possible: panes of partials where these suffice, rows where single rows are needed.
`panes` decides the pane width and the plan; the kernels execute the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.aggregate import Aggregate, Aggregation, Top, UserAggregate
from penstock.model.expression import AGGREGATE_ROLE, Expression
from penstock.model.time import format_duration
from penstock.model.windows import AggregateWindow, PerRow, Session, Sliding, SlidingRows
from penstock.planner.panes import (
    INSTANT,
    MEASURED,
    PANED,
    PARTIALS,
    Choice,
    Costs,
    PaneSet,
    Rates,
    choose,
    only_rows,
    pane_sets,
    pane_width,
    possible,
    window_class,
    window_costs,
)
from penstock.planner.taxonomy import ROWS, SKETCHES, Nature, Piece, nature, pieces


@dataclass(frozen=True)
class Windowed:
    """One aggregated query, prepared: `measures` are its aggregates, each with the numbers of the pieces it reads.

    `selection` identifies the rows that serve it: queries of one pane set with the same predicates may share one. If
    `cut`, kernels reduce windows to their `top`; else only Spark can rank these rows. With `stacks`, sums are merged
    with two stacks although differences would do.
    """

    query: int
    window: AggregateWindow | None
    aggregates: tuple[Aggregate, ...]
    measures: tuple[tuple[int, ...], ...]
    having: Expression | None = None
    selection: int = 0
    top: Top | None = None
    cut: bool = False
    stacks: bool = False


@dataclass(frozen=True)
class AggregatePlan:
    """Queries of one stream that share state: partials in panes or, if `width` is None, only rows.

    `pieces` are the contents of partials. Every window consists of panes [base + n * width, base + (n + 1) * width);
    each of the `sets` of queries stores new rows in its own panes and its own form. `arguments` are the expressions
    that pieces aggregate, `types` their Spark types, `groups` the number of group columns. `choices` give each query's
    plan and the reason.
    """

    groups: int
    arguments: tuple[Expression, ...]
    types: tuple[str, ...]
    pieces: tuple[Piece, ...]
    queries: tuple[Windowed, ...]
    choices: tuple[Choice, ...]
    width: int | None
    base: int = 0
    own: Mapping[str, UserAggregate] = field(default_factory=dict, compare=False)
    sets: tuple[PaneSet, ...] = ()

    def arranged(self, sets: Sequence[PaneSet], wanted: str | None = None, rates: Rates | None = None) -> AggregatePlan:
        """The same queries over other pane sets; with `rates`, choices include the estimated cost of each plan."""
        of = {number: own for own in sets for number in own.queries}
        found = []
        for query in self.queries:
            natures = _natures(query.aggregates, dict(zip(self.arguments, self.types, strict=True)))
            choice = choose(query.window, natures, of[query.query], wanted)
            window = query.window or INSTANT
            if rates is not None and isinstance(window, Sliding):
                costs = window_costs(window, of[query.query].width, rates, MEASURED)
                choice = replace(choice, costs=costs)
            found.append((choice, all(n.by_differences for n in natures)))
        queries = [
            replace(query, stacks=exact and choice.plan == PANED)
            for query, (choice, exact) in zip(self.queries, found, strict=True)
        ]
        return replace(self, sets=tuple(sets), choices=tuple(c for c, _ in found), queries=tuple(queries))

    @property
    def buffered(self) -> bool:
        return self.width is None

    @property
    def ordered(self) -> bool:
        """Whether rows of equal time must be ordered, so that the columns that order them are needed."""
        kinds = {piece.kind for piece in self.pieces}
        picked = kinds & {"first", "last", "valid_first", "valid_last", "list"}
        return bool(picked) or any(isinstance(q.window, SlidingRows | PerRow) for q in self.queries)

    @property
    def spreads(self) -> bool:
        """Whether rows that count at several ticks become partials directly, without a row per tick.

        Not where the order of rows matters; and sketches are made of many values faster than they are merged.
        """
        sketched = any(piece.function in SKETCHES for piece in self.pieces)
        return not (self.buffered or self.ordered or sketched) and all(own.kept == PARTIALS for own in self.sets)

    @property
    def ranked(self) -> bool:
        """Whether windows count rows, so that the number of expired rows must be stored."""
        return any(
            isinstance(q.window, SlidingRows) or (isinstance(q.window, PerRow) and q.window.rows > 1)
            for q in self.queries
        )

    def explain(self) -> list[str]:
        """One line about the panes, and one per query."""
        held = "rows" if self.width is None else f"panes of {format_duration(self.width)}"
        lines = [f"{held}: {', '.join(_piece_text(p) for p in self.pieces)}"]
        for query, choice in zip(self.queries, self.choices, strict=True):
            lines.append(f"query {query.query}: {choice.plan} ({window_class(query.window)}; {choice.reason})")
        return lines


def plan_aggregates(
    aggregations: Mapping[int, Aggregation],
    types: Mapping[Expression, str],
    *,
    selections: Mapping[int, int] | None = None,
    rates: Rates | None = None,
    costs: Costs = MEASURED,
    wanted: str | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> list[AggregatePlan]:
    """The plans for queries (by number) over one stream with the same groups: one on panes, one on rows if needed.

    `types` are the Spark types of the arguments; `wanted` forces a plan by name, to compare plans.
    """
    users = dict(own or {})
    reasons = {}
    for number, aggregation in aggregations.items():
        kept = [piece for aggregate in aggregation.aggregates for piece in pieces(aggregate, 0)]
        reason = only_rows(aggregation.window, kept)
        if reason is not None:
            reasons[number] = possible(wanted, reason)
    found = []
    paned = {n: a for n, a in aggregations.items() if n not in reasons}
    if paned:
        sets = pane_sets({n: a.window for n, a in paned.items()}, rates, costs, wanted=wanted)
        undecided = dict.fromkeys(paned, Choice(PANED, ""))
        plan = _plan(paned, undecided, types, False, selections or {}, users)
        found.append(plan.arranged(sets, wanted, rates))
    if reasons:
        rest = {n: aggregations[n] for n in reasons}
        found.append(_plan(rest, reasons, types, True, selections or {}, users))
    return found


def plan_of_panes(
    number: int, aggregation: Aggregation, types: Mapping[Expression, str], own: Mapping[str, UserAggregate]
) -> AggregatePlan:
    """The plan of one query over existing panes."""
    return _plan({number: aggregation}, {number: Choice(PANED, "its results are kept as panes")}, types, False, {}, own)


_LISTS = frozenset({"collect_list", "approx_top_k", "heavy_hitters"})  # functions whose values are lists


def is_cut_by_kernels(aggregation: Aggregation, own: Mapping[str, UserAggregate]) -> bool:
    """Whether kernels can rank the rows of a window: they can evaluate HAVING and compare the keys."""
    if aggregation.top is None or (aggregation.having is not None and aggregation.having.term is None):
        return False
    keys = [key.expression for key in aggregation.top.keys]
    refs = [ref for key in keys for ref in key.refs if ref.role == AGGREGATE_ROLE]
    read = [aggregation.aggregates[int(ref.column[1:])] for ref in refs]
    return all(key.term is not None for key in keys) and not any(_is_list(a, own) for a in read)


def _is_list(aggregate: Aggregate, own: Mapping[str, UserAggregate]) -> bool:
    if aggregate.function in own:
        return own[aggregate.function].type.startswith("array")
    several = aggregate.function == "approx_percentile" and len(aggregate.parameters) > 2
    return several or aggregate.function in _LISTS


def _natures(aggregates: Sequence[Aggregate], types: Mapping[Expression, str]) -> list[Nature]:
    return [nature(a, types[a.argument] if a.argument else "bigint") for a in aggregates]


def _plan(
    aggregations: Mapping[int, Aggregation],
    choices: Mapping[int, Choice],
    types: Mapping[Expression, str],
    buffered: bool,
    selections: Mapping[int, int],
    own: Mapping[str, UserAggregate],
) -> AggregatePlan:
    arguments: dict[Expression, int] = {}
    kept: dict[Piece, int] = {Piece("count", ROWS): 0}  # the number of rows: an empty group has no result
    queries = []
    for number, aggregation in aggregations.items():
        measures = []
        for aggregate in aggregation.aggregates:
            argument = ROWS if aggregate.argument is None else arguments.setdefault(aggregate.argument, len(arguments))
            measures.append(tuple(kept.setdefault(p, len(kept)) for p in pieces(aggregate, argument)))
        queries.append(
            Windowed(
                number, aggregation.window, aggregation.aggregates, tuple(measures), aggregation.having,
                selections.get(number, 0), aggregation.top, is_cut_by_kernels(aggregation, own),
            )
        )  # fmt: skip
    if any(isinstance(q.window, Session) for q in queries):
        kept.setdefault(Piece("span", ROWS), len(kept))
    width, base = None, 0
    if not buffered:
        found = pane_width([q.window for q in queries])
        assert found is not None
        width, base = found
    groups = {len(a.groups) for a in aggregations.values()}
    assert len(groups) == 1, "queries that share partials have the same groups"
    return AggregatePlan(
        groups.pop(), tuple(arguments), tuple(types[a] for a in arguments), tuple(kept), tuple(queries),
        tuple(choices[q.query] for q in queries), width, base, own,
        () if width is None else (PaneSet(tuple(aggregations), width, base),),
    )  # fmt: skip


def _piece_text(piece: Piece) -> str:
    what = "rows" if piece.argument == ROWS else f"argument {piece.argument}"
    return f"{piece.function or piece.kind} of {what}"
