"""Evaluate what only Spark can: residuals over several streams, and select items that may raise and have no term.

Between the probe and the write, rows pass through one JVM projection; a second Python stage of the same job clears the
bits of queries whose residual is not TRUE and writes the results (`step/finish.py`). An expression that may raise is
evaluated as a whole under TryEval, only on rows that serve its query, and counted where it raised.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.model import Expression, Ref
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.join import Join, Member, result_column
from penstock.planner.network import Network
from penstock.results.layout import computed_column
from penstock.spark.ingest import try_eval
from penstock.step.finish import residual_column, residual_of
from penstock.step.handover import finished_joins, prefixed


def finish_projection(handed: DataFrame, network: Network) -> DataFrame:
    """Add, for each query that needs it, the truth of its residuals and its computed items (with an error mark)."""
    added: list[Column] = []
    for join in finished_joins(network):
        for member in join.members:
            residual = residual_of(member) if member in join.leads else None
            if residual is not None:
                added.append(_evaluated(network, join, member, residual).alias(residual_column(join, member)))
            for item, expression in member.computed:
                name = prefixed(join, computed_column(member.id, item))
                added.append(_evaluated(network, join, member, expression).alias(name))
    return handed.select("*", *added)


def _evaluated(network: Network, join: Join, member: Member, expression: Expression) -> Column:
    """A struct with the value, NULL where evaluation raised; only for rows that serve the query."""

    def name(ref: Ref) -> str:
        if ref.role == PSEUDO_ROLE:
            first = network.streams[network.tables[join.tables[0]].stream]
            time = prefixed(join, "_time")
            return time if first.integer_time else f"timestamp_micros({time})"
        stream = network.streams[network.tables[join.tables[ref.role]].stream]
        return prefixed(join, result_column(ref.role, stream, ref.column))

    word = prefixed(join, f"_bits{member.bit // 64}")
    serves = f"shiftright({word}, {member.bit % 64}) & 1 = 1"
    value = F.expr(f"named_struct('v', CASE WHEN {serves} THEN {expression.sql(name)} END)")
    return value if expression.total else try_eval(value)
