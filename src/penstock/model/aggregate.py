"""What a window aggregate is: a window, the groups in it, the functions over each group, and what becomes of their values.

The select list and HAVING of an aggregated query speak of groups and aggregates by number: `Ref(GROUP_ROLE, "g0")` is the
first group, `Ref(AGGREGATE_ROLE, "a0")` the first aggregate. How they are computed is no matter here.
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
    approx_count_distinct: the greatest relative standard deviation, if given; approx_percentile: the accuracy, then the
    shares asked for; approx_top_k: k, then the number of items tracked; heavy_hitters: the share of all values that an item
    needs; first and last: 1 if NULLs are passed over; the others have none.
    """

    function: str
    argument: Expression | None
    distinct: bool = False
    parameters: tuple[int | float, ...] = ()


@dataclass(frozen=True)
class Emit:
    """`EMIT EARLY EVERY ..`: the state of open windows too, again after each `every` microseconds of the clock."""

    every: int


@dataclass(frozen=True)
class SortKey:
    """What rows are sorted by, over groups and aggregates; NULL comes before or after all values."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """`ORDER BY .. LIMIT count`: of each window the first rows in this order.

    Rows that are equal by all keys are sorted by their groups, ascending with NULL first, so that the answer is one.
    """

    keys: tuple[SortKey, ...]
    count: int


@dataclass(frozen=True)
class Aggregation:
    """GROUP BY and all that depends on it.

    `window` cuts time (or rows) for all roles: of several roles, whose windows have ends in common, it is the longest. It is
    None where the groups hold the event time of every role, so that progress closes each group by itself; the roles are then
    joined by their own windows. Columns by which a window is partitioned are among the groups, behind those of GROUP BY.
    `top` is taken of what HAVING lets pass. Windows of rows that are partitioned are windows of one partition each.
    """

    window: AggregateWindow | None
    groups: tuple[Item, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    emit: Emit | None = None
    top: Top | None = None


class UserAggregate(Protocol):
    """A user's own aggregate. `merge` must not care for order, and `zero` must change nothing in it.

    `type` is Spark's simple name of the result's type. `add` is not called for NULL. States are plain values, or it also has
    `encode(state) -> bytes` and `decode(bytes) -> state`, by which they are kept between steps.
    """

    type: str

    def zero(self) -> Any: ...

    def add(self, state: Any, value: Any) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any: ...

    def finish(self, state: Any) -> Any: ...


# Canonical names of the functions. `stddev`, `std`, `variance`, `mean`, `percentile_approx` and their like are written so.
FUNCTIONS = (
    "count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "approx_count_distinct",
    "approx_percentile", "approx_top_k", "heavy_hitters", "first", "last", "any_value", "collect_list",
)  # fmt: skip


def exact_share(share: float) -> Fraction:
    """A share as it was written: 0.1 is one tenth, and not the double that is a little more."""
    return Fraction(str(share))


def group_ref(number: int) -> Ref:
    """How the select list and HAVING name the group of that number, from 0."""
    return Ref(GROUP_ROLE, f"g{number}")


def aggregate_ref(number: int) -> Ref:
    """How the select list and HAVING name the aggregate of that number, from 0."""
    return Ref(AGGREGATE_ROLE, f"a{number}")
