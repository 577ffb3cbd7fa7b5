"""Routes drawn at random, for tests that change them at every step."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.routes import Order, Routes, build_routes


def any_routes(seed: int) -> Callable[[Network, int], Routes]:
    """Other orders at every step, products not excluded, and for each table another choice of who gets its new rows."""

    def choose(network: Network, step: int) -> Routes:
        draw = random.Random(seed * 1000 + step)

        def order(join: Join, start: int) -> Order:
            others = [p for p in range(len(join.tables)) if p != start]
            return tuple(draw.sample(others, len(others)))

        orders = {j.index: {s: order(j, s) for s in range(len(j.tables))} for j in network.joins}
        sent = {table.index: draw.random() < 0.5 for table in network.tables}
        return build_routes(network, orders, sent.__getitem__)

    return choose
