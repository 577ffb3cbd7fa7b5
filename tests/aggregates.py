"""Random aggregates over one small stream, and a second opinion on them by DuckDB.

A case says its window, groups, functions and predicate once, and gives them as Penstock's SQL and as DuckDB's. DuckDB
gets the definition of each window as a join with its ids, sessions and ranks as window functions; it shares no code
with the reference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from penstock.model import Column, Expression, Landmark, PerRow, Query, Ref, Session, Sliding, SlidingRows, Stream
from penstock.model.time import NEVER
from penstock.model.windows import AggregateWindow
from penstock.planner.aggregates import plan_aggregates
from penstock.reference import Row
from penstock.reference.join import serves
from penstock.reference.order import ranks
from penstock.sql import parse_query
from tests.oracle import connection

COLUMNS = (
    Column("t", "bigint"), Column("k", "string"), Column("g", "int"), Column("v", "bigint"), Column("x", "double"),
)  # fmt: skip
STREAM = Stream("s", COLUMNS, "t", delay=0)
STREAMS = {"s": STREAM}
_ORDER = ", ".join(f"{c.name} NULLS FIRST" for c in COLUMNS)
_TYPES = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64()}

# Penstock's call, and DuckDB's.
CALLS = {
    "count(*)": "count(*)",
    "count(v)": "count(v)",
    "sum(v)": "sum(v)",
    "avg(v)": "avg(v)",
    "min(v)": "min(v)",
    "max(v)": "max(v)",
    "max(k)": "max(k)",
    "sum(x)": "sum(x)",
    "max(x)": "max(x)",
    "stddev(v)": "stddev_samp(v)",
    "stddev_pop(x)": "stddev_pop(x)",
    "variance(x)": "var_samp(x)",
    "var_pop(v)": "var_pop(v)",
    "count(DISTINCT v)": "count(DISTINCT v)",
    "sum(DISTINCT v)": "sum(DISTINCT v)",
    "approx_count_distinct(k)": "count(DISTINCT k)",
    "first(v)": f"first(v ORDER BY {_ORDER})",
    "last(v)": f"last(v ORDER BY {_ORDER})",
    "first(v, true)": f"first(v ORDER BY {_ORDER}) FILTER (WHERE v IS NOT NULL)",
    "last(k) IGNORE NULLS": f"last(k ORDER BY {_ORDER}) FILTER (WHERE k IS NOT NULL)",
    "any_value(v)": "min(v)",
    "collect_list(v)": f"coalesce(list(v ORDER BY {_ORDER}) FILTER (WHERE v IS NOT NULL), [])",
}
PREDICATES = ("v > 1", "k = 'a' OR v IS NULL", "g <> 0")
GROUPS = ((), ("k",), ("g",), ("k", "g"), ("g", "k"))
HAVINGS = ("count(*) > 1", "max(v) >= 2 OR count(*) = 1")
# What is Spark's order of NULLs by itself is said, since DuckDB's is another.
TOPS = (
    "count(*) DESC NULLS LAST LIMIT 1",
    "max(v) ASC NULLS FIRST, count(*) DESC NULLS LAST LIMIT 2",
    "max(k) DESC NULLS FIRST LIMIT 1",
)
_IDS = "range(-130, 130) AS ids(n)"


@dataclass(frozen=True)
class Case:
    """One aggregated query over `STREAM`."""

    window: AggregateWindow
    groups: tuple[str, ...]
    calls: tuple[str, ...]
    predicate: str | None = None
    having: str | None = None
    top: str | None = None

    @property
    def sql(self) -> str:
        items = ["window_start", "window_end", *self.groups, *self.calls]
        groups = f" GROUP BY {', '.join(self.groups)}" if self.groups else ""
        top = f" ORDER BY {self.top}" if self.top else ""
        having = f" HAVING {self.having}" if self.having else ""
        where = f" WHERE {self.predicate}" if self.predicate else ""
        return f"SELECT {', '.join(items)} FROM s [{brackets(self.window)}]{where}{groups}{having}{top}"

    @property
    def query(self) -> Query:
        return parse_query(self.sql, STREAMS)


def brackets(window: AggregateWindow) -> str:
    match window:
        case Sliding(length, slide, origin):
            return f"RANGE {length} SLIDE {slide}" + (f" ORIGIN {origin}" if origin is not None else "")
        case Landmark(slide, origin):
            return f"RANGE ALL SLIDE {slide}" + (f" ORIGIN {origin}" if origin is not None else "")
        case SlidingRows(length, slide, partition):
            by = f" PARTITION BY {', '.join(partition)}" if partition else ""
            return f"RANGE {length} ROWS SLIDE {slide} ROWS{by}"
        case PerRow(length, rows, partition):
            by = f" PARTITION BY {', '.join(partition)}" if partition else ""
            return f"RANGE {length} SLIDE {rows} ROWS{by}"
        case Session(gap):
            return f"SESSION {gap}"


LENGTHS = st.integers(1, 12)
ORIGINS = st.none() | st.integers(-6, 12)
PARTITIONS = st.sampled_from(((), (), ("k",), ("k", "g")))
WINDOWS: dict[str, st.SearchStrategy[AggregateWindow]] = {
    "sliding": st.builds(Sliding, LENGTHS, LENGTHS, ORIGINS),
    "landmark": st.builds(Landmark, LENGTHS, ORIGINS),
    "rows": st.builds(SlidingRows, st.integers(1, 5), st.integers(1, 5), PARTITIONS),
    "per_row": st.builds(PerRow, LENGTHS, st.integers(1, 3), PARTITIONS),
    "session": st.builds(Session, st.integers(1, 6)),
}
_VALUES = {
    "k": st.sampled_from(("a", "b", None)),
    "g": st.sampled_from((0, 1, None)),
    "v": st.sampled_from((0, 1, 2, 3, None)),
    "x": st.sampled_from((0.0, 0.25, 1.5, -2.5, None)),
}
_TIMES = st.integers(-10, 30)
ROWS = st.lists(st.fixed_dictionaries({"t": _TIMES, **_VALUES}), max_size=9)
# As they may come to an engine: some without a time.
ARRIVALS = st.lists(
    st.fixed_dictionaries({"t": st.one_of(_TIMES, _TIMES, _TIMES, _TIMES, st.none()), **_VALUES}), max_size=9
)


def arriving(rows: st.SearchStrategy[list[Row]], least: int, most: int) -> st.SearchStrategy[list[list[Row]]]:
    """The rows of steps. Tests with few examples begin with the simplest one, which would be empty: it is left out."""
    return st.lists(rows, min_size=least, max_size=most).filter(lambda found: sum(map(len, found)) > 9)


@st.composite
def cases(draw: st.DrawFn, *kinds: str) -> Case:
    """Cases over windows of these kinds, or of any."""
    window = draw(st.one_of([WINDOWS[kind] for kind in kinds or WINDOWS]))
    return Case(
        window,
        draw(st.sampled_from(GROUPS)),
        tuple(draw(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3))),
        draw(st.none() | st.sampled_from(PREDICATES)),
        draw(st.none() | st.sampled_from(HAVINGS)),
        None if isinstance(window, Session) else draw(st.none() | st.sampled_from(TOPS)),
    )


def fits(case: Case, plan: str) -> bool:
    """Whether this plan can compute the query; others refuse what needs rows, or what cannot be subtracted."""
    aggregation = case.query.aggregation
    assert aggregation is not None
    types = {
        a.argument: STREAM.column(ref.column).type  # type: ignore[union-attr]
        for a in aggregation.aggregates
        if isinstance(a.argument, Expression) and isinstance(ref := a.argument.parts[0], Ref)
    }
    try:
        plan_aggregates({0: aggregation}, types, wanted=None if plan == "auto" else plan)
    except ValueError:
        return False
    return True


def needed(cases: Sequence[Case], rows: Sequence[Row], progress: int, *, as_rows: bool = False) -> int:
    """How many of these rows the windows open at this progress need, by definition, each counted by itself.

    Windows of time keep by time alone: all rows from the beginning of the first open one on, also in gaps between them,
    whichever of the queries a row serves. What landmarks have passed is one total for each group and set of queries,
    unless they are kept `as_rows` or want each single one; and of rows that were counted and went their number is left,
    one for each group.
    """
    if progress <= NEVER:
        return len(rows)
    served = [tuple(serves(case.query, STREAMS, 0, row) for case in cases) for row in rows]
    found: set[int] = set()
    totals: set[Hashable] = set()
    for number, case in enumerate(cases):
        timed = isinstance(case.window, Sliding | Landmark)
        own = [place for place, serving in enumerate(served) if (any(serving) if timed else serving[number])]
        match case.window:
            case Sliding(length, slide) as window:
                first = window.start + (window.closed(progress) + 1) * slide - length
                found |= {place for place in own if rows[place]["t"] >= first}  # type: ignore[operator]
            case Landmark() if as_rows or any(call.startswith("collect_list") for call in case.calls):
                found |= set(own)
            case Landmark(_, origin):
                found |= {p for p in own if rows[p]["t"] >= progress or (origin or NEVER) > rows[p]["t"]}  # type: ignore[operator]
                totals |= {(served[place], *(rows[place][c] for c in case.groups)) for place in own}
            case SlidingRows(length, slide, partition):
                for same in _parted(rows, partition):
                    final = sum(rows[place]["t"] < progress for place in same)  # type: ignore[operator]
                    # Rows that others may yet come before have no final rank.
                    found |= {*same[max(0, (final // slide + 1) * slide - length) :], *same[final:]}
                totals |= {(row["k"], row["g"]) for row in rows}
            case PerRow(length, _, partition):
                found |= {place for place, row in enumerate(rows) if row["t"] > progress - length}  # type: ignore[operator]
                totals |= {(row["k"], row["g"]) for row in rows}
            case Session() as window:
                groups: dict[Hashable, list[int]] = {}
                for place in own:
                    groups.setdefault(tuple(rows[place][c] for c in case.groups), []).append(place)
                for same in groups.values():
                    sessions = [s for s in window.windows(rows[p]["t"] for p in same) if not window.closed(s, progress)]  # type: ignore[misc]
                    found |= {place for place in same if window.wids(rows[place]["t"], sessions)}  # type: ignore[arg-type]
    return len(found) + len(totals)


def _parted(rows: Sequence[Row], partition: Sequence[str]) -> list[list[int]]:
    """The places of the rows of each partition, in the order of the stream."""
    found: dict[Hashable, list[int]] = {}
    for _, place in sorted(zip(ranks(STREAM, rows), range(len(rows)), strict=True)):
        found.setdefault(tuple(rows[place][c] for c in partition), []).append(place)
    return list(found.values())


def duckdb_answer(case: Case, rows: list[Row], progress: int | None = None) -> list[tuple[object, ...]]:
    """The bag of a case's answer over the rows; with progress only of what it has closed."""
    table = pa.table({c.name: pa.array([row[c.name] for row in rows], _TYPES[c.type]) for c in COLUMNS})
    connection().register("s", table)
    return connection().execute(duckdb_text(case, progress)).fetchall()


def duckdb_text(case: Case, progress: int | None) -> str:
    reached = 10**6 if progress is None else progress
    predicate = case.predicate or "TRUE"
    groups = ", ".join(case.groups) or "1"
    match case.window:
        case Sliding(length, slide, origin):
            end = f"{origin or 0} + (n + 1) * {slide}"
            begin = f"{end} - {length}" if origin is None else f"greatest({end} - {length}, {origin})"
            content = (
                f"SELECT s.*, n AS w, {begin} AS a, {end} AS b FROM s, {_IDS} "
                f"WHERE {begin} <= t AND t < {end} AND {end} <= {reached}"
            )
        case Landmark(slide, origin):
            end = f"{origin or 0} + (n + 1) * {slide}"
            last = f"{end} - {slide} <= (SELECT max(t) FROM s)" if progress is None else f"{end} <= {progress}"
            content = (
                f"SELECT s.*, n AS w, {'NULL' if origin is None else origin} AS a, {end} AS b FROM s, {_IDS}"
                f" WHERE t < {end} AND {last}" + ("" if origin is None else f" AND t >= {origin} AND n >= 0")
            )
        case SlidingRows(length, slide, partition):
            by = ", ".join(partition) or "1"
            over = f"OVER (PARTITION BY {by} ORDER BY {_ORDER})"
            everything = f"OVER (PARTITION BY {by}, n)"
            ranked = (
                f"SELECT *, row_number() {over} - 1 AS r, sum((t < {reached})::INT) OVER (PARTITION BY {by}) AS "
                "f FROM s"
            )
            over_now = f"n * {slide} < f" if progress is None else f"(n + 1) * {slide} <= f"
            content = (
                f"SELECT *, ({_row(partition)}, n) AS w, min(t) {everything} AS a, max(t) {everything} AS b "
                f"FROM ({ranked}), {_IDS}"
                f" WHERE (n + 1) * {slide} - {length} <= r AND r < (n + 1) * {slide} AND {over_now}"
            )
        case PerRow(length, every, partition):
            by = ", ".join(partition) or "1"
            numbered = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {_ORDER}) AS r FROM s"
            same = "".join(f" AND s.{c} IS NOT DISTINCT FROM e.{c}" for c in partition)
            content = (
                f"SELECT s.*, ({_row(partition, 'e.')}, r) AS w, e.t - {length} AS a, e.t AS b "
                f"FROM ({numbered}) e JOIN s"
                f" ON e.t - {length} < s.t AND s.t <= e.t{same} WHERE r % {every} = 0 AND e.t < {reached}"
            )
        case Session(gap):
            before = f"lag(t) OVER (PARTITION BY {groups} ORDER BY t)"
            marked = f"SELECT *, coalesce(t - {before} >= {gap}, TRUE)::INT AS starts FROM s WHERE {predicate}"
            numbered = f"SELECT *, sum(starts) OVER (PARTITION BY {groups} ORDER BY t) AS w FROM ({marked})"
            mine = f"OVER (PARTITION BY {groups}, w)"
            timed = f"SELECT *, min(t) {mine} AS a, max(t) {mine} + {gap} AS b FROM ({numbered})"
            content = f"SELECT * FROM ({timed}) WHERE b <= {reached}"
    items = ", ".join(["a", "b", *case.groups, *(CALLS[call] for call in case.calls)])
    having = f" HAVING {case.having}" if case.having else ""
    partition = [c for c in getattr(case.window, "partition", ()) if c not in case.groups]
    keys = ", ".join(["w", "a", "b", *case.groups, *partition])
    first = ""
    if case.top is not None:
        order, limit = case.top.split(" LIMIT ")
        ties = "".join(f", {column} NULLS FIRST" for column in (*case.groups, *partition))
        first = f" QUALIFY row_number() OVER (PARTITION BY w ORDER BY {order}{ties}) <= {limit}"
    return f"SELECT {items} FROM ({content}) WHERE {predicate} GROUP BY {keys}{having}{first}"


def _row(columns: tuple[str, ...], table: str = "") -> str:
    return f"row({', '.join(table + c for c in columns)})" if columns else "0"


def same_bag(left: list[tuple[object, ...]], right: list[tuple[object, ...]]) -> bool:
    """Whether two answers are equal as bags, doubles up to a relative 1e-9."""
    rest = list(right)
    for row in left:
        found = next((i for i, other in enumerate(rest) if _alike(row, other)), None)
        if found is None:
            return False
        del rest[found]
    return not rest


def _alike(left: object, right: object) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_alike, left, right))
    if isinstance(left, float) or isinstance(right, float):
        if left is None or right is None:
            return left is right
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(left) and math.isnan(right))
    return left == right
