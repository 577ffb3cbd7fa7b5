"""Panes: which window aggregates of a stream share them, how wide they are, and where they pay.

All queries over a stream with the same groups share one set of *panes*, pieces of time so narrow that every window is made of
whole ones (Li 2008, 6.2, over all queries instead of one). Functions and windows that need single rows are *buffered* instead. The
choice follows the costs of Li 2008, Eqs. 6.1 - 6.4, with the number of panes in a slide put in where it was taken to be one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from penstock.model.windows import AggregateWindow, Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.taxonomy import Nature, Piece

PANED, WID, DIFFERENTIAL, BUFFERED = "paned", "wid", "differential", "buffered"
PLANS = (PANED, WID, DIFFERENTIAL, BUFFERED)

SINGLE_ROWS = frozenset({"list"})  # pieces that lose their meaning when rows are put together


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

    # Queries with panes of their own that are alike share them at no price.
    alike: dict[tuple[int, int] | None, tuple[int, ...]] = {}
    for number, window in windows.items():
        own = pane_width([window])
        alike[own] = (*alike.get(own, ()), number)
    sets = list(alike.values())
    more: dict[tuple[int, ...], float] = {}  # what two sets together cost more than apart
    while len(sets) > 1:
        for i, one in enumerate(sets):
            for other in sets[i + 1 :]:
                if one + other not in more:
                    more[one + other] = cost(one + other) - cost(one) - cost(other)
        pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
        one, other = min(pairs, key=lambda pair: more[pair[0] + pair[1]])
        if more[one + other] > 0:
            break
        sets = [s for s in sets if s not in (one, other)] + [one + other]
    return sorted(tuple(sorted(members)) for members in sets)
