"""Panes: which window aggregates of a stream share them, their width, the form of stored rows, and where panes pay.

All queries over a stream with the same groups may share one set of *panes*, intervals of time so narrow that every
window consists of whole ones (Li 2008, 6.2, over all queries instead of one). Functions and windows that need single
rows are *buffered* instead (decision 0017). The costs of Li 2008, Eqs. 6.1 - 6.4, use the actual number of panes in a
slide where it was taken to be one; the engine reads all that a window needs when it closes, which corresponds to their
form for rows put into windows one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, gcd, log

from penstock.model.windows import AggregateWindow, Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.taxonomy import Nature, Piece

PANED, WID, DIFFERENTIAL, BUFFERED, ADAPT = "paned", "wid", "differential", "buffered", "adapt"
PLANS = (PANED, WID, DIFFERENTIAL, BUFFERED, ADAPT)

# How long groups that contain their event time are open: progress closes them once it has passed it.
INSTANT = Sliding(1, 1)

# The form of new rows in state: partials of their panes, the rows, or per bucket whichever is smaller.
PARTIALS, ROWS_KEPT, EITHER = "partials", "rows", "either"

_TRIES = 10_000

SINGLE_ROWS = frozenset({"list"})  # pieces that cannot be merged


@dataclass(frozen=True)
class Rates:
    """Rates of a stream: rows per unit of time, and groups that are active in a time of `width` (None: in any pane).

    A step covers `step` units of event time, in which `active` groups occur.
    """

    rows: float
    groups: float
    width: float | None = None
    step: float = 0.0
    active: float = 0.0

    def held(self, width: float) -> float:
        """How many partials a pane of this width has: at most its rows, as many as counted, interpolated in between."""
        inside = self.rows * width
        if self.width is None:
            return min(self.groups, inside)
        narrow, wide = (self.width, self.groups), (self.step, max(self.groups, self.active))
        if width <= self.width or self.step <= self.width or not self.active:
            return self._like(width, narrow)
        if width >= self.step:
            return self._like(width, wide)
        share = log(width / self.width) / log(self.step / self.width)
        return min(inside, float(self.groups * (wide[1] / self.groups) ** share))

    def _like(self, width: float, counted: tuple[float, float]) -> float:
        """How many groups occur in another time, if as many as counted occur in one and rows hit groups at random."""
        seen, inside, active = self.rows * counted[0], self.rows * width, counted[1]
        if active >= 0.999 * seen:
            return inside
        low, high = active, 1e6 * active
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if middle * (1 - exp(-seen / middle)) < active else (low, middle)
        return min(inside, high * (1 - exp(-inside / high)))


@dataclass(frozen=True)
class Costs:
    """Per row put into a pane, per pane row emitted, per pane row added to a window, per row added to a window.

    Eqs. 6.1 - 6.4; `kept` is that of a row which is stored unchanged.
    """

    row: float = 1.0
    out: float = 1.0
    pane: float = 1.0
    direct: float = 1.0
    kept: float = 0.3


# As measured with the kernels; the unit is 0.1 us, to put a sorted row into a pane. A partial is larger than a row.
MEASURED = Costs(row=1.0, out=0.6, pane=1.0, direct=0.8, kept=0.3)


@dataclass(frozen=True)
class PaneSet:
    """Queries that share panes [base + n * width, base + (n + 1) * width), and the form (`kept`) of their new rows."""

    queries: tuple[int, ...]
    width: int
    base: int = 0
    kept: str = PARTIALS


@dataclass(frozen=True)
class Choice:
    """A plan with its reason for EXPLAIN, and each plan's estimated work for one result of a window."""

    plan: str
    reason: str
    costs: Mapping[str, float] = field(default_factory=dict, compare=False)


def window_class(window: AggregateWindow | None) -> str:
    """CF: a row's windows depend on its time; FCF: on rows before it; FCA: on rows after it too (Li 2008, 6.1.2)."""
    match window:
        case Sliding() | Landmark() | None:
            return "CF"
        case SlidingRows():
            return "FCF"
        case PerRow() | Session():
            return "FCA"


def pane_width(windows: Sequence[AggregateWindow | None]) -> tuple[int, int] | None:
    """(width, base) of the widest panes that all these windows consist of; None if one needs single rows.

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
        width = _divisor(width, min(gaps))
    return width, base % width


def _divisor(width: int, most: int) -> int:
    """The greatest divisor up to `most`, searched from both ends; if that takes too long, a common one."""
    parts = -(-width // most)
    for tried in range(min(_TRIES, most)):
        if width % (parts + tried) == 0:
            return width // (parts + tried)
        if width % (most - tried) == 0:
            return most - tried
    return gcd(width, most)


def window_costs(window: Sliding, width: int, rates: Rates, costs: Costs) -> dict[str, float]:
    """Work for one result of a window under each plan, with panes of this width."""
    rows = rates.rows * window.range
    panes, per_slide = window.range / width, window.slide / width
    inside, held = rates.rows * width, rates.held(width)
    into = per_slide * (costs.row * inside + costs.out * held)
    return {
        PANED: into + costs.pane * panes * held,
        DIFFERENTIAL: into + 2 * costs.pane * held * per_slide,
        WID: costs.direct * rows,
        BUFFERED: 2 * costs.direct * rates.rows * window.slide,
    }


def only_rows(window: AggregateWindow | None, kept: Sequence[Piece]) -> str | None:
    """Why a query needs single rows; None if panes suffice."""
    if isinstance(window, PerRow | SlidingRows):
        return "windows that end with rows or count them need single rows"
    if any(piece.kind in SINGLE_ROWS for piece in kept):
        return "a list of all values is no smaller than the rows"
    return None


def choose(
    window: AggregateWindow | None, natures: Sequence[Nature], own: PaneSet, wanted: str | None = None
) -> Choice:
    """The plan of a query whose rows are stored as its pane set says."""
    exact = all(n.by_differences for n in natures)
    if wanted == DIFFERENTIAL and not exact:
        msg = (
            "the differential plan cannot compute functions that are not differential; leave the plan open or "
            "ask for 'paned'"
        )
        raise ValueError(msg)
    if wanted is not None:
        return Choice(wanted, "asked for")
    if own.kept == ROWS_KEPT:
        return Choice(BUFFERED, "rows are fewer than what panes would cost")
    if own.kept == EITHER:
        return Choice(ADAPT, "in each bucket rows or panes, whichever take less room")
    if window is None or (isinstance(window, Sliding) and window.range == own.width):
        return Choice(WID, "a window is one pane")
    if exact:
        return Choice(DIFFERENTIAL, "sums of panes by difference")
    return Choice(PANED, "panes merged with two stacks")


def possible(wanted: str | None, reason: str) -> Choice:
    """The choice for a query that needs single rows."""
    if wanted not in {None, BUFFERED}:
        msg = f"the {wanted} plan is not possible here: {reason}; leave the plan open or ask for 'buffered'"
        raise ValueError(msg)
    return Choice(BUFFERED, reason)


def set_costs(windows: Sequence[AggregateWindow | None], rates: Rates, costs: Costs = MEASURED) -> dict[str, float]:
    """The cost of one set of panes for these windows per unit of time, by the form of stored rows.

    The state of the longest window is read whenever one closes, once for all windows and once more for each. Landmarks
    and sessions need a total over all time, so that rows are not possible.
    """
    found = pane_width(windows)
    assert found is not None
    width = found[0]
    sliding = [w or INSTANT for w in windows if w is None or isinstance(w, Sliding)]
    every = max(min((w.slide for w in sliding), default=width), rates.step, 1)
    lengths = [w.range if isinstance(w, Sliding) else 1 if w is None else width for w in windows]
    reads = (max(lengths) + every + sum(lengths)) / every
    held = rates.held(width) / width
    estimated = {PARTIALS: costs.row * rates.rows + held * (costs.out + costs.pane * reads)}
    if len(sliding) == len(windows):
        estimated[ROWS_KEPT] = rates.rows * (costs.kept + costs.direct * reads)
    return estimated


def cost_of(
    sets: Iterable[PaneSet], windows: Mapping[int, AggregateWindow | None], rates: Rates, costs: Costs = MEASURED
) -> float:
    """The cost of these sets together; either form per bucket costs no more than the better one for all."""
    total = 0.0
    for own in sets:
        estimated = set_costs([windows[n] for n in own.queries], rates, costs)
        total += estimated.get(own.kept, min(estimated.values()))
    return total


def pane_sets(
    windows: Mapping[int, AggregateWindow | None],
    rates: Rates | None = None,
    costs: Costs = MEASURED,
    *,
    wanted: str | None = None,
) -> list[PaneSet]:
    """Which queries share panes, and the stored form: all, and partials, unless another plan is cheaper or `wanted`.

    Panes that fit all queries may be so narrow that several sets cost less, although each stores every row; rows are
    stored where a pane has about as many groups as rows.
    """
    if not windows:
        return []
    form = {BUFFERED: ROWS_KEPT, ADAPT: EITHER}.get(wanted or "", PARTIALS)
    if wanted == WID:
        return [_set((number,), windows, form) for number in windows]
    together = [_set(tuple(windows), windows, form)]
    if wanted is not None or rates is None:
        return together
    known = rates

    def cost(members: Sequence[int]) -> float:
        return min(set_costs([windows[n] for n in members], known, costs).values())

    # Queries whose own panes are equal share them for free.
    alike: dict[tuple[int, int] | None, tuple[int, ...]] = {}
    for number, window in windows.items():
        own = pane_width([window])
        alike[own] = (*alike.get(own, ()), number)
    sets = list(alike.values())
    more: dict[tuple[int, ...], float] = {}  # extra cost of two sets merged
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
    if cost(tuple(windows)) <= sum(map(cost, sets)):
        sets = [tuple(windows)]
    found = []
    for members in sorted(tuple(sorted(members)) for members in sets):
        estimated = set_costs([windows[n] for n in members], rates, costs)
        found.append(_set(members, windows, min(estimated, key=lambda name: estimated[name])))
    return found


def _set(members: tuple[int, ...], windows: Mapping[int, AggregateWindow | None], kept: str) -> PaneSet:
    found = pane_width([windows[n] for n in members])
    assert found is not None
    return PaneSet(members, *found, kept)
