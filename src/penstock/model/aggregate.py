"""What a window aggregate is: a window, its groups, the functions over each group, and what the query shows of them.

The select list and HAVING of an aggregated query refer to groups and aggregates by number: `Ref(GROUP_ROLE, "g0")` is
the first group, `Ref(AGGREGATE_ROLE, "a0")` the first aggregate. How they are computed is not defined here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, Expression, Ref
from penstock.model.item import Item
from penstock.model.windows import AggregateWindow


@dataclass(frozen=True)
class Aggregate:
    """A function over the rows of a group. No argument is `count(*)`; `distinct` takes each value once.

    `function` is one of `FUNCTIONS`, or the name of a user's own. `parameters` are its constants, by function:
    approx_count_distinct: the maximal relative standard deviation, if given; approx_percentile: the accuracy, then the
    requested shares; approx_top_k: k, then the number of tracked items; heavy_hitters: the share of all values that an
    item needs; first and last: 1 if NULLs are skipped; the others have none.
    """

    function: str
    argument: Expression | None
    distinct: bool = False
    parameters: tuple[int | float, ...] = ()


@dataclass(frozen=True)
class Emit:
    """`EMIT EARLY EVERY ..`: results of open windows too, updated every `every` microseconds of the clock."""

    every: int


@dataclass(frozen=True)
class SortKey:
    """A sort key over groups and aggregates, with NULL first or last."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """`ORDER BY .. LIMIT count`: the first rows of each window in this order.

    Ties are sorted by their groups, ascending with NULL first, so that the answer is unique.
    """

    keys: tuple[SortKey, ...]
    count: int


@dataclass(frozen=True)
class Aggregation:
    """GROUP BY and all that depends on it.

    `window` cuts time (or rows) for all roles; of several roles, whose window ends coincide, it is the longest. It is
    None if the groups contain the event time of every role, so that progress closes each group by itself; the roles are
    then joined by their own windows. Columns that partition a window are groups too, after those of GROUP BY. `top`
    applies after HAVING. Partitioned windows of rows are windows of one partition each.
    """

    window: AggregateWindow | None
    groups: tuple[Item, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    emit: Emit | None = None
    top: Top | None = None


class UserAggregate(Protocol):
    """A user's own aggregate. `merge` must not depend on order, and `zero` must be neutral in it.

    `type` is the Spark type of the result. `add` is not called for NULL. States are plain values; or the aggregate also
    has `encode(state) -> bytes` and `decode(bytes) -> state`, which store them between steps.
    """

    type: str

    def zero(self) -> Any: ...

    def add(self, state: Any, value: Any) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any: ...

    def finish(self, state: Any) -> Any: ...


# Canonical names of the functions: `stddev`, `std`, `variance`, `mean`, `percentile_approx` and other aliases map to
# them.
FUNCTIONS = (
    "count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "approx_count_distinct",
    "approx_percentile", "approx_top_k", "heavy_hitters", "first", "last", "any_value", "collect_list",
)  # fmt: skip


def exact_share(share: float) -> Fraction:
    """The share as written in decimal: 0.1 is exactly one tenth, not the nearest double."""
    return Fraction(str(share))


def group_ref(number: int) -> Ref:
    """The reference of the select list and HAVING to a group, numbered from 0."""
    return Ref(GROUP_ROLE, f"g{number}")


def aggregate_ref(number: int) -> Ref:
    """The reference of the select list and HAVING to an aggregate, numbered from 0."""
    return Ref(AGGREGATE_ROLE, f"a{number}")
