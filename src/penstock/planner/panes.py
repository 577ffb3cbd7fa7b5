"""How the window aggregates of one stream are computed together: which queries share panes, how wide these are, and why.

All queries over a stream with the same groups share one set of *panes*, pieces of time so narrow that every window is made of
whole ones (Li 2008, 6.2, over all queries instead of one). Functions and windows that need single rows are *buffered* instead. The
choice follows the costs of Li 2008, Eqs. 6.1 - 6.4, with the number of panes in a slide put in where it was taken to be one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from penstock.model.aggregate import Aggregate, Aggregation, UserAggregate
from penstock.model.expression import Expression
from penstock.model.time import format_duration
from penstock.model.windows import AggregateWindow, Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.taxonomy import ROWS, Nature, Piece, nature, pieces

PANED, WID, DIFFERENTIAL, BUFFERED = "paned", "wid", "differential", "buffered"
PLANS = (PANED, WID, DIFFERENTIAL, BUFFERED)

SINGLE_ROWS = frozenset({"list"})  # pieces that lose their meaning when rows are put together

INSTANT = Sliding(1, 1)  # the window of a query whose groups hold the event time: closed when progress has passed it


@dataclass(frozen=True)
class Top:
    """Only the `count` groups of each window with the greatest (or least) value of an aggregate."""

    aggregate: int
    count: int
    least: bool = False


@dataclass(frozen=True)
class Windowed:
    """One aggregated query, made ready: `measures` are its aggregates, each with the numbers of the pieces it reads.

    `selection` is the number of its predicates: queries that began together and ask the same of rows share one.
    """

    query: int
    window: AggregateWindow | None
    aggregates: tuple[Aggregate, ...]
    measures: tuple[tuple[int, ...], ...]
    having: Expression | None = None
    selection: int = 0
    top: Top | None = None


@dataclass(frozen=True)
class Rates:
    """What is known of a stream: rows in a unit of time, and groups that are active in so short a time as a pane."""

    rows: float
    groups: float


@dataclass(frozen=True)
class Costs:
    """Per row put into a pane, per pane row put out, per pane row added to a window, per row added to a window (Eqs. 6.1 - 6.4)."""

    row: float = 1.0
    out: float = 1.0
    pane: float = 1.0
    direct: float = 1.0


@dataclass(frozen=True)
class Choice:
    """A plan with its reason, as EXPLAIN shows them, and the estimated cost of each plan for one result of a window."""

    plan: str
    reason: str
    costs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AggregatePlan:
    """Queries of one stream that share partials (or, if `width` is None, rows).

    `pieces` are what partials hold. Panes are [base + n * width, base + (n + 1) * width); `arguments` are the expressions that
    pieces are about, `types` Spark's names of their types, `groups` the number of group columns. `choices` say for each query
    how and why.
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

    @property
    def buffered(self) -> bool:
        return self.width is None

    @property
    def ordered(self) -> bool:
        """Whether rows of one time must be told apart, so that the columns that order them are needed."""
        kinds = {piece.kind for piece in self.pieces}
        picked = kinds & {"first", "last", "valid_first", "valid_last", "list"}
        return bool(picked) or any(isinstance(q.window, SlidingRows | PerRow) for q in self.queries)

    @property
    def ranked(self) -> bool:
        """Whether rows are counted, so that those that go must be remembered by their number."""
        return any(
            isinstance(q.window, SlidingRows) or (isinstance(q.window, PerRow) and q.window.rows > 1)
            for q in self.queries
        )

    def explain(self) -> list[str]:
        """One line about the panes, and one for each query."""
        held = "rows" if self.width is None else f"panes of {format_duration(self.width)}"
        lines = [f"{held}: {', '.join(_piece_text(p) for p in self.pieces)}"]
        for query, choice in zip(self.queries, self.choices, strict=True):
            lines.append(f"query {query.query}: {choice.plan} ({window_class(query.window)}; {choice.reason})")
        return lines


def window_class(window: AggregateWindow | None) -> str:
    """CF: a row's windows follow from its time; FCF: from rows before it; FCA: from rows after it too (Li 2008, 6.1.2)."""
    match window:
        case Sliding() | Landmark() | None:
            return "CF"
        case SlidingRows():
            return "FCF"
        case PerRow() | Session():
            return "FCA"


def pane_width(windows: Sequence[AggregateWindow | None]) -> tuple[int, int] | None:
    """(width, base) of the widest panes that all these windows are made of; None if one needs single rows.

    A session needs panes no wider than its gap: rows of one pane are then always in one session.
    """
    edges: list[int] = []
    origins: list[int] = []
    gaps: list[int] = []
    for window in windows:
        match window:
            case Sliding(length, slide, origin):
                edges += [length, slide]
                origins.append(origin or 0)
            case Landmark(slide, origin):
                edges.append(slide)
                origins.append(origin or 0)
            case Session(gap):
                gaps.append(gap)
            case None:
                edges.append(1)
                origins.append(0)
            case PerRow() | SlidingRows():
                return None
    base = origins[0] if origins else 0
    width = gcd(*edges, *(origin - base for origin in origins)) or min(gaps)
    if gaps and width > min(gaps):
        parts = -(-width // min(gaps))
        while width % parts:
            parts += 1
        width //= parts
    return width, base % width


def window_costs(window: Sliding, width: int, rates: Rates, costs: Costs) -> dict[str, float]:
    """Work for one result of a window under each plan, with panes of this width."""
    rows = rates.rows * window.range
    panes, per_slide = window.range / width, window.slide / width
    inside = rates.rows * width
    held = min(rates.groups, inside)  # pane rows of one pane: never more than its rows
    into = per_slide * (costs.row * inside + costs.out * held)
    return {
        PANED: into + costs.pane * panes * held,
        DIFFERENTIAL: into + 2 * costs.pane * held * per_slide,
        WID: costs.direct * rows,
        BUFFERED: 2 * costs.direct * rates.rows * window.slide,
    }


def choose(
    window: AggregateWindow | None,
    natures: Sequence[Nature],
    kept: Sequence[Piece],
    width: int | None,
    rates: Rates | None = None,
    costs: Costs | None = None,
    wanted: str | None = None,
) -> Choice:
    """How one query is computed. Without rates: panes wherever they are possible."""
    if isinstance(window, PerRow | SlidingRows):
        return _only_buffered("windows that end with rows or count them need single rows", wanted)
    if any(piece.kind in SINGLE_ROWS for piece in kept):
        return _only_buffered("a list of all values is no smaller than the rows", wanted)
    assert width is not None
    exact = all(n.by_differences for n in natures)
    together = PANED if not exact else DIFFERENTIAL
    how = "sums of panes by difference" if exact else "panes merged with two stacks"
    if wanted is not None:
        if wanted == DIFFERENTIAL and not exact:
            msg = "the differential plan cannot compute functions that are not differential; leave the plan open or ask for 'paned'"
            raise ValueError(msg)
        return Choice(wanted, "asked for")
    if not isinstance(window, Sliding) or rates is None:
        return Choice(together, how)
    estimated = window_costs(window, width, rates, costs or Costs())
    direct = BUFFERED if exact else WID
    if window.range == width:
        return Choice(WID, "a window is one pane", estimated)
    if estimated[together] < estimated[direct]:
        return Choice(together, how, estimated)
    if min(rates.groups, rates.rows * width) * 2 > rates.rows * width:
        return Choice(BUFFERED, "a pane holds about as many groups as rows", estimated)
    return Choice(BUFFERED, "rows are fewer than what panes would cost", estimated)


def _only_buffered(reason: str, wanted: str | None) -> Choice:
    if wanted not in {None, BUFFERED}:
        msg = f"the {wanted} plan is not possible here: {reason}; leave the plan open or ask for 'buffered'"
        raise ValueError(msg)
    return Choice(BUFFERED, reason)


def plan_aggregates(
    aggregations: Mapping[int, Aggregation],
    types: Mapping[Expression, str],
    *,
    selections: Mapping[int, int] | None = None,
    tops: Mapping[int, Top] | None = None,
    rates: Rates | None = None,
    costs: Costs | None = None,
    wanted: str | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> list[AggregatePlan]:
    """The plans for queries (by number) over one stream with the same groups: on panes, and one on rows for those that need them.

    `types` are Spark's names of the arguments' types; `wanted` is a plan by name, to compare plans by hand.
    """
    users = dict(own or {})
    subtractive = {name for name, function in users.items() if hasattr(function, "subtract")}
    windows = {n: a.window for n, a in aggregations.items() if not isinstance(a.window, PerRow | SlidingRows)}
    sets = [(n,) for n in windows] if wanted == WID else pane_sets(windows, rates, costs)
    widths = {n: found for members in sets for n in members if (found := pane_width([windows[m] for m in members]))}
    choices: dict[int, Choice] = {}
    for number, aggregation in aggregations.items():
        natures = _natures(aggregation, types, subtractive)
        kept = [piece for aggregate in aggregation.aggregates for piece in pieces(aggregate, 0)]
        width = widths[number][0] if number in widths else None
        choices[number] = choose(aggregation.window, natures, kept, width, rates, costs, wanted)
    paned = [tuple(n for n in members if choices[n].plan != BUFFERED) for members in sets]
    buffered = tuple(n for n in aggregations if choices[n].plan == BUFFERED)
    return [
        _plan(
            {n: aggregations[n] for n in members},
            choices,
            types,
            members is buffered,
            selections or {},
            tops or {},
            users,
        )
        for members in (*paned, buffered)
        if members
    ]


def pane_sets(
    windows: Mapping[int, AggregateWindow | None], rates: Rates | None = None, costs: Costs | None = None
) -> list[tuple[int, ...]]:
    """Which queries share panes: all of them, unless panes that fit all would be so narrow that several sets cost less.

    A set costs every row once, and its pane rows once for the set and once for each query.
    """
    if rates is None or len(windows) < 2:
        return [tuple(windows)] if windows else []
    known, price = rates, costs or Costs()

    def cost(members: Sequence[int]) -> float:
        found = pane_width([windows[n] for n in members])
        assert found is not None
        held = min(known.groups / found[0], known.rows)
        return price.row * known.rows + held * (price.out + price.pane * len(members))

    sets = [(n,) for n in windows]
    while len(sets) > 1:
        pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
        one, other = min(pairs, key=lambda pair: cost(pair[0] + pair[1]) - cost(pair[0]) - cost(pair[1]))
        if cost(one + other) > cost(one) + cost(other):
            break
        sets = [s for s in sets if s not in (one, other)] + [one + other]
    return [tuple(sorted(members)) for members in sets]


def _natures(aggregation: Aggregation, types: Mapping[Expression, str], subtractive: Collection[str]) -> list[Nature]:
    return [nature(a, types[a.argument] if a.argument else "bigint", subtractive) for a in aggregation.aggregates]


def _plan(
    aggregations: Mapping[int, Aggregation],
    choices: Mapping[int, Choice],
    types: Mapping[Expression, str],
    buffered: bool,
    selections: Mapping[int, int],
    tops: Mapping[int, Top],
    own: Mapping[str, UserAggregate],
) -> AggregatePlan:
    arguments: dict[Expression, int] = {}
    kept: dict[Piece, int] = {Piece("count", ROWS): 0}  # how many rows: a group without any has no result
    queries = []
    for number, aggregation in aggregations.items():
        measures = []
        for aggregate in aggregation.aggregates:
            argument = ROWS if aggregate.argument is None else arguments.setdefault(aggregate.argument, len(arguments))
            measures.append(tuple(kept.setdefault(p, len(kept)) for p in pieces(aggregate, argument)))
        queries.append(
            Windowed(
                number, aggregation.window, aggregation.aggregates, tuple(measures), aggregation.having,
                selections.get(number, 0), tops.get(number),
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
    )  # fmt: skip


def _piece_text(piece: Piece) -> str:
    what = "rows" if piece.argument == ROWS else f"argument {piece.argument}"
    return f"{piece.function or piece.kind} of {what}"
