"""Which state tables may have cold runs: those that are only looked up by key, and only by joins that do not wait."""

from __future__ import annotations

from penstock.planner.network import Network


def tiered_tables(network: Network) -> frozenset[int]:
    """All others are read whole in every step. What became cold for other queries is read like hot runs there."""
    waiting = {table for join in network.joins if join.closes for _, table in join.places}
    return frozenset(
        table.index
        for table in network.tables
        if table.key and not (table.timed or table.counted or table.grouped or table.stateless or table.mapped)
        and table.index not in waiting
    )  # fmt: skip
