"""A world whose selectivities are known: what any orders would be counted to do in it, and what they would cost."""

import random
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from penstock.planner.orders.cost import EngineCost, order_cost
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.search import best_order
from penstock.planner.orders.sizes import Sizes
from penstock.planner.orders.statistics import Statistics


@dataclass(frozen=True)
class World:
    """Predicates that hold independently: `matching` is the share of pairs that each edge lets through."""

    graph: JoinGraph
    rates: tuple[int, ...]
    held: tuple[int, ...]
    matching: dict[frozenset[int], float]

    def selectivity(self, positions):
        return prod(self.matching.get(frozenset(pair), 1.0) for pair in combinations(sorted(positions), 2))

    def sizes(self, start):
        def composites(positions):
            return self.selectivity(positions) * prod(self.held[p] for p in positions if p != start)

        return Sizes(start, self.held, composites)

    def cost(self, orders, model=None):
        model = model or EngineCost(self.graph)
        return sum(self.rates[s] * order_cost(model, self.sizes(s), order) for s, order in orders.items())

    def best(self, model=None):
        model = model or EngineCost(self.graph)
        return {s: best_order(self.graph, self.sizes(s), model) for s in range(self.graph.count)}

    def step(self, orders, chance, share=1.0):
        """The counts of one step of all rates times `share`, with the scatter of counts; flows of these orders only."""
        arrivals = tuple(scattered(rate * share, chance) for rate in self.rates)
        flows = {}
        for start, order in orders.items():
            for k in range(1, len(order) + 1):
                members = frozenset((start, *order[:k]))
                flows[start, members] = scattered(arrivals[start] * self.sizes(start).of(members), chance)
        whole = self.graph.all
        return Statistics.counted(arrivals, self.held, flows, sum(flows[s, whole] for s in orders))

    def everything(self, share=1.0):
        """Exact counts of every set by every start, as no engine has them."""
        sets = [frozenset(s) for k in range(2, self.graph.count + 1) for s in combinations(range(self.graph.count), k)]
        flows = {(s, m): self.rates[s] * share * self.sizes(s).of(m) for m in sets for s in m}
        return Statistics.counted(tuple(r * share for r in self.rates), self.held, flows)

    def swapped(self, some, others):
        """The same world with the selectivities of two edges exchanged."""
        a, b = frozenset(some), frozenset(others)
        return replace(self, matching={**self.matching, a: self.matching[b], b: self.matching[a]})


def scattered(expected, chance):
    """A count with this expectation, and the variance of a count."""
    return max(0.0, round(chance.gauss(expected, expected**0.5)))


def live(mode, phases, steps, seed=0):
    """Run a mode through worlds, `steps` steps in each; the work of each step, as the true selectivities have it."""
    chance, work = random.Random(seed), []
    for world in phases:
        for _ in range(steps):
            work.append(world.cost(mode.orders))
            mode.observe(world.step(mode.orders, chance))
            if mode.due:
                mode.check()
    return work
