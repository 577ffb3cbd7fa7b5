"""Choosing a chain: the lives at which the state of one stream is cut into links (Wang 2008, ch. 7).

A chain is the tuple of its cuts, the ends of its links, ascending; the last is the longest life. More cuts let rows
expire earlier; fewer cuts save probes and route more results instead. Nodes of the search are ages: node 0 is age 0,
node k the k-th life. The memory of a chain is its stored rows; its cost is per microsecond. See
decision 0020.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, count, pairwise
from math import inf

from penstock.model.time import FOREVER

Chain = tuple[int, ...]

_EFFORT = 1 << 14  # links that the search under a budget may try: all chains of up to 14 lives
_ROUNDING = 1e-12  # relative difference of a sum that the order of its terms may cause
_HIGHEST = 1e300  # price of a stored row: finite, however few rows there are


@dataclass(frozen=True)
class Load:
    """The load of a chain: `rates[k]` rows per microsecond are stored whose own life is exactly `lives[k]`.

    `lives` are distinct and ascend; `probes` rows per microsecond of other streams visit every link; `selectivity` is
    results per probed pair. Rows that live for ever form a link of their own in every chain; their cost and memory are
    the same for all chains and left out.
    """

    lives: Chain
    rates: tuple[float, ...]
    probes: float
    selectivity: float

    def __post_init__(self) -> None:
        if len(self.rates) != len(self.lives) or any(a >= b for a, b in pairwise(self.lives)):
            raise ValueError(f"lives must ascend, with one rate for each: {self.lives} and {self.rates}")
        if not all(0 <= number < inf for number in (*self.rates, self.probes, self.selectivity)):
            raise ValueError(f"rates, probes and selectivity must be finite and not negative: {self}")

    @cached_property
    def finite(self) -> int:
        """The number of finite lives."""
        return bisect_left(self.lives, FOREVER)

    @cached_property
    def ages(self) -> tuple[int, ...]:
        """The age of each node up to the longest finite life; never negative."""
        return (0, *(max(life, 0) for life in self.lives[: self.finite]))

    @cached_property
    def entering(self) -> tuple[float, ...]:
        """For each node the rows per microsecond that reach its age: those with a longer but finite life."""
        return tuple(accumulate(reversed(self.rates[: self.finite])))[::-1]


@dataclass(frozen=True)
class UnitCosts:
    """Measured costs: of a probing row per `link`, of a candidate `pair`, of a stored `row` per microsecond, and to
    `route` a result past one inner cut of a merged link. All in one unit, for example seconds.
    """

    link: float
    pair: float
    row: float = 0.0
    route: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= number < inf for number in (self.link, self.pair, self.row, self.route)):
            raise ValueError(f"costs must be finite and not negative: {self}")


def mem_opt(lives: Iterable[int]) -> Chain:
    """The chain that stores the fewest rows: a cut at every distinct life."""
    return tuple(sorted(set(lives)))


def link_of(chain: Sequence[int], life: int) -> int:
    """The end of the link in which rows of this life expire: the first cut at or after it."""
    position = bisect_left(chain, life)
    if position == len(chain):
        raise ValueError(f"no link of the chain {tuple(chain)} reaches a life of {life}")
    return chain[position]


def chain_memory(load: Load, chain: Sequence[int]) -> float:
    """Expected stored rows of the chain: each stays until the first cut at or after its own life."""
    cuts = [link_of(chain, life) for life in load.lives[: load.finite]]
    stays = [inf if cut >= FOREVER else max(cut, 0) for cut in cuts]
    return sum(rate * stay for rate, stay in zip(load.rates, stays, strict=False) if rate)


def chain_cost(load: Load, costs: UnitCosts, chain: Sequence[int]) -> float:
    """Cost per microsecond of all links of a chain whose cuts are lives of the load."""
    nodes = [0, *(bisect_right(load.lives, cut) for cut in chain)]
    edge = edge_costs(load, costs)
    return sum(edge(i, j) for i, j in pairwise(nodes))


def cpu_opt(load: Load, costs: UnitCosts) -> Chain:
    """The cheapest chain: the shortest path over links from age 0 to the longest life; ties go to the shorter link."""
    return _walk(load, _cheapest(load, costs)[1])


def budget_chain(load: Load, costs: UnitCosts, surplus: float) -> Chain:
    """The cheapest chain that stores at most (1 + `surplus`) times the rows of `mem_opt`.

    Stored rows get a price that rises until the cheapest chain fits. A search then looks for a better chain that no
    price selects; it covers all chains of up to 14 lives. With more it may stop early and return the best chain so far.
    """
    if not surplus >= 0:
        raise ValueError(f"the surplus of memory must not be negative: {surplus}")
    fits, fits_cost, fits_rows = load.lives, chain_cost(load, costs, load.lives), chain_memory(load, load.lives)
    limit = inf if surplus == inf else (1 + surplus) * fits_rows
    chain = cpu_opt(load, costs)
    large_cost, large_rows = chain_cost(load, costs, chain), chain_memory(load, chain)
    if large_rows <= limit:
        return chain
    while True:
        price = min(max(0.0, (fits_cost - large_cost) / (large_rows - fits_rows)), _HIGHEST)
        togo, steps = _cheapest(load, replace(costs, row=costs.row + price))
        chain = _walk(load, steps)
        cost, rows = chain_cost(load, costs, chain), chain_memory(load, chain)
        if cost + price * rows >= (large_cost + price * large_rows) * (1 - _ROUNDING):
            return _search(load, costs, price, togo, limit, fits)
        if rows <= limit:
            fits, fits_cost, fits_rows = chain, cost, rows
        else:
            large_cost, large_rows = cost, rows


def edge_costs(load: Load, costs: UnitCosts) -> Callable[[int, int], float]:
    """Cost per microsecond of one link from node `i` to node `j`, independent of all other links.

    Every row that reaches the link stays until its end, even if its own life ends inside; every result found there is
    compared with each of the inner cuts.
    """
    ages, entering, finite = load.ages, load.entering, load.finite
    link = load.probes * costs.link
    row = load.probes * costs.pair + costs.row
    cut = load.probes * load.selectivity * costs.route

    def cost(i: int, j: int) -> float:
        if j > finite:
            return link if i == finite else inf
        return link + entering[i] * (ages[j] - ages[i]) * (row + cut * (j - i - 1))

    return cost


def _walk(load: Load, steps: Sequence[int] | Mapping[int, int]) -> Chain:
    cuts, node = [], 0
    while node < load.finite:
        node = steps[node]
        cuts.append(load.lives[node - 1])
    return (*cuts, *load.lives[load.finite :])


def _cheapest(load: Load, costs: UnitCosts) -> tuple[list[float], list[int]]:
    """For each node the cost from there to the longest finite life, and the next cut on the cheapest way.

    The fewer rows reach a link, the less it costs to make it longer. So once a nearer cut is no worse than a farther
    one, it stays so for all earlier nodes: the cuts take over from each other in order, and bisection finds the nodes
    where they do, with N log N links evaluated instead of N^2.
    """
    togo, steps = [0.0] * (load.finite + 1), [load.finite] * (load.finite + 1)
    leaders: deque[tuple[int, int]] = deque()  # (cut, the last node for which it is the best), farthest cut first
    edge = edge_costs(load, costs)

    def worse(node: int, near: int, far: int) -> bool:
        return edge(node, near) + togo[near] > edge(node, far) + togo[far]

    def takeover(near: int, far: int) -> int:
        return bisect_left(range(near), True, key=lambda node: worse(node, near, far)) - 1

    for node in reversed(range(load.finite)):
        near, since = node + 1, node
        while len(leaders) > 1 and leaders[1][1] >= node:
            leaders.popleft()
        while leaders and not worse(min(leaders[-1][1], node), near, leaders[-1][0]):
            leaders.pop()
        if leaders:
            since = takeover(near, leaders[-1][0])
        if since >= 0:
            leaders.append((near, since))
        steps[node] = leaders[0][0]
        togo[node] = edge(node, steps[node]) + togo[steps[node]]
    return togo, steps


def _search(load: Load, costs: UnitCosts, price: float, togo: Sequence[float], limit: float, known: Chain) -> Chain:
    """The cheapest chain with at most `limit` rows, or the best found with bounded effort; `known` is one of them.

    Chains grow from age 0 in the order of their lower bounds: `togo` is the cost of the rest if a stored row costs
    `price` more, and no chain pays that price for more rows than the limit.
    """
    edge, ages, end = edge_costs(load, costs), load.ages, load.finite
    best, ticket, effort = chain_cost(load, costs, known), count(), 0
    needed = [n * (b - a) for n, (a, b) in zip(load.entering, pairwise(ages), strict=True)]
    rest = [*accumulate(reversed(needed), initial=0.0)][::-1]  # rows that every chain stores beyond a node
    spare = limit * (1 + _ROUNDING) - rest[0]
    apart = edge(end, end + 1) if end < len(load.lives) else 0.0
    growing: list[tuple[float, int, float, float, tuple[int, ...]]] = [(-inf, next(ticket), apart, 0.0, (0,))]
    while growing and effort < _EFFORT:
        bound, _, cost, over, nodes = heappop(growing)
        if bound >= best:
            break
        i, rate = nodes[-1], 0.0
        for j in range(i + 1, end + 1):
            over += rate * (ages[j] - ages[j - 1])
            rate += load.rates[j - 1]
            if over > spare:
                break
            effort += 1
            grown = cost + edge(i, j)
            at_best = grown + togo[j] + price * (over - rest[j] - spare)
            if j < end and at_best < best:
                heappush(growing, (at_best, next(ticket), grown, over, (*nodes, j)))
            elif j == end and grown < best:
                chain = _walk(load, dict(pairwise((*nodes, j))))
                if chain_memory(load, chain) <= limit:
                    best, known = grown, chain
    return known
