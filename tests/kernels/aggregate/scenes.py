"""A stream and its aggregated queries, run through the kernels as a task would, and answered by the reference."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from penstock.columns.types import arrow_type
from penstock.kernels.aggregate.close import close, merge
from penstock.kernels.aggregate.entries import with_patterns
from penstock.kernels.aggregate.forms import are_rows, as_partials, expire_forms, keep_rows
from penstock.kernels.aggregate.keep import expire
from penstock.kernels.aggregate.ticks import LAST
from penstock.model import (
    Aggregate,
    Column,
    Compare,
    Expression,
    Item,
    Landmark,
    Literal,
    Query,
    Ref,
    Role,
    Session,
    Sliding,
    Stream,
)
from penstock.model.expression import AGGREGATE_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.reference.aggregate import answers
from penstock.reference.evaluate import holds
from penstock.reference.top import first_rows

TYPES = {
    "ts": "bigint",
    "k": "bigint",
    "p": "double",
    "x": "bigint",
    "i": "int",
    "d": "double",
    "m": "decimal(12,2)",
    "s": "string",
    "w": "decimal(38,4)",
}
STREAM = Stream("a", tuple(Column(n, t) for n, t in TYPES.items()), "ts", 0)


def column(name, role=0):
    return Expression((Ref(role, name),), Ref(role, name), total=True)


def condition(ref, op, value, kind="bigint"):
    term = Compare(op, ref, Literal(value, kind))
    return Expression((ref, f" {op} {value}"), term, total=True)


def at_least(aggregate, value):
    """HAVING aggregate >= value."""
    return condition(Ref(AGGREGATE_ROLE, f"a{aggregate}"), ">=", value)


class Product:
    """A user's aggregate: the product modulo a prime. Its state is a list that `merge` changes in place."""

    type = "bigint"

    def zero(self):
        return [1]

    def add(self, state, value):
        state[0] = state[0] * (value % 101 + 1) % 101
        return state

    def merge(self, left, right):
        left[0] = left[0] * right[0] % 101
        return left

    def finish(self, state):
        return state[0]


OWN = {"product": Product()}

BOUNDED = [
    Aggregate("count", None),
    *(Aggregate("count", column(c)) for c in "xds"),
    *(Aggregate("sum", column(c)) for c in "xidmw"),
    *(Aggregate("avg", column(c)) for c in "xidmw"),
    *(Aggregate(f, column(c)) for f in ("min", "max", "any_value") for c in "xidsw"),
    *(Aggregate(f, column(c)) for f in ("var_samp", "var_pop", "stddev_samp", "stddev_pop") for c in "xdim"),
]
OTHERS = [
    *(Aggregate(f, column(c), parameters=p) for f in ("first", "last") for c in "xs" for p in ((), (1,))),
    *(Aggregate("count", column(c), distinct=True) for c in "xdspm"),
    *(Aggregate("sum", column(c), distinct=True) for c in "xdw"),
    *(Aggregate("avg", column(c), distinct=True) for c in "mw"),
    Aggregate("var_pop", column("i"), distinct=True),
    *(Aggregate("heavy_hitters", column(c), parameters=(share,)) for c in "xspm" for share in (0.5, 0.3, 0.1)),
    Aggregate("product", column("i")),
    Aggregate("product", column("i"), distinct=True),
    *(Aggregate("approx_top_k", column(c), parameters=(2, 100)) for c in "xspm"),
    *(
        Aggregate("approx_percentile", column(c), parameters=(100, *shares))
        for c in "xidpw"
        for shares in ((0.5,), (0.1, 1.0))
    ),
    *(Aggregate("approx_count_distinct", column(c)) for c in "spw"),
]
LISTS = [*(Aggregate("collect_list", column(c), distinct=d) for c in "xspm" for d in (False, True))]

TIMES = st.integers(-20, 40)
EDGES = ("0.0001", "1.5000", "9" * 34 + ".9999", "-" + "9" * 34 + ".9999", "-" + "9" * 30 + ".0000")
VALUES = {
    "k": st.one_of(st.none(), st.integers(0, 3)),
    "p": st.one_of(st.none(), st.sampled_from((0.0, -0.0, 1.5, math.nan))),
    "x": st.one_of(st.none(), st.integers(-3, 3), st.sampled_from((2**63 - 1, -(2**63), 2**62))),
    "i": st.one_of(st.none(), st.integers(-5, 5), st.sampled_from((2**31 - 1, -(2**31)))),
    "d": st.one_of(st.none(), st.sampled_from((0.5, -0.0, 1e9, 0.1, -7.25, math.nan, math.inf, -math.inf))),
    "m": st.one_of(st.none(), st.decimals(-1000, 1000, places=2), st.just(Decimal("9999999999.99"))),
    "s": st.one_of(st.none(), st.sampled_from(("", "a", "b", "ä"))),
    "w": st.one_of(st.none(), st.sampled_from(tuple(map(Decimal, EDGES)))),
}
ROWS = st.fixed_dictionaries({"ts": TIMES, **VALUES})
LENGTHS = st.integers(1, 12)
ORIGINS = st.one_of(st.none(), st.integers(-25, 45))  # also behind some rows, and behind all
SLIDING = st.builds(Sliding, LENGTHS, LENGTHS, ORIGINS)
LANDMARKS = st.builds(Landmark, LENGTHS, ORIGINS)
SESSIONS = st.builds(Session, LENGTHS)


def query_of(aggregation, predicates=()):
    role = Role("a", "a", aggregation.window)
    return Query("", (role,), (), (), tuple(predicates), (), (), aggregation=aggregation)


def expected(aggregation, parts, predicates=()):
    """The reference's answers as a bag: over all rows, and for landmarks also those closed after the last row."""
    rows = [row for part, _ in parts for row in part]
    query = query_of(aggregation, predicates)
    found = answers(query, {"a": STREAM}, {"a": rows}, None, OWN)
    if isinstance(aggregation.window, Landmark) and parts:
        last = max((a.window for a in found), default=NEVER)
        early = answers(query, {"a": STREAM}, {"a": rows}, {"a": parts[-1][1]}, OWN) if parts[-1][1] > NEVER else []
        found += [a for a in early if a.window > last]
    kept = []
    for answer in found:

        def lookup(ref, answer=answer):
            return column_of(answer, ref)

        if aggregation.having is None or holds(aggregation.having, lookup):
            kept.append(answer)
    if aggregation.top is not None:
        windows = {}
        for answer in kept:
            windows.setdefault(answer.window, []).append(answer)
        kept = [a for same in windows.values() for a in first_rows(aggregation.top, same, column_of, lambda a: a.group)]
    return [(answer.group, answer.start, answer.end, answer.values) for answer in kept]


def column_of(answer, ref):
    return (answer.values if ref.role == AGGREGATE_ROLE else answer.group)[int(ref.column[1:])]


def table_of(groups, plan, rows, predicates, hashes=2):
    """Rows as a worker gets them; few hashes, so that groups collide. `predicates` are by selection."""

    def values(expression):
        name = expression.refs[0].column
        return pa.array([r[name] for r in rows], type=arrow_type(TYPES[name]))

    made = {f"g{n}": values(e) for n, e in enumerate(groups)}
    number = [
        hash(tuple(repr(shown(column[i].as_py())) for column in made.values())) % hashes for i in range(len(rows))
    ]
    columns = {"_key": pa.array(number if groups else [0] * len(rows), type=pa.int64()), **made}
    columns["_ts"] = pa.array([r["ts"] for r in rows], type=pa.int64())
    columns |= {f"a{n}": values(e) for n, e in enumerate(plan.arguments)}
    if rows and "last" in rows[0]:  # they count at several ticks
        columns[LAST] = pa.array([r["last"] for r in rows], type=pa.int64())
    if plan.ordered:
        columns |= {f"o{n}": values(column(name)) for n, name in enumerate(STREAM.order[1:])}
    if len(predicates) == 1 and not predicates[0]:
        return pa.table(columns)
    served = [
        tuple(n for n, p in enumerate(predicates) if all(holds(e, lambda ref, r=r: r[ref.column]) for e in p))
        for r in rows
    ]
    patterns = sorted(set(served)) or [()]
    columns["_bits"] = pa.array([patterns.index(p) for p in served], type=pa.int32())
    return with_patterns(pa.table(columns), patterns)


def shown(value):
    return value + 0.0 if isinstance(value, float) else value


def run(aggregations, batches, *, predicates=((),), settled=(), wanted=None, runs=False, merged=(), slide=None):
    """All results of the queries by number: batches are (rows, progress after them).

    After the batches whose numbers are in `settled` the state is reduced to what open windows need.
    """
    if wanted == "wid":  # each query has panes of its own, so that rows must know it by a number of its own
        predicates = tuple(predicates[n % len(predicates)] for n in aggregations)
        selections = {n: place for place, n in enumerate(aggregations)}
    else:
        selections = {n: n % len(predicates) for n in aggregations}
    plans = plan_aggregates(
        aggregations, {column(n): t for n, t in TYPES.items()}, selections=selections, wanted=wanted, own=OWN
    )
    groups = [item.expression for item in next(iter(aggregations.values())).groups]
    found = {number: [] for number in aggregations}
    left = []
    times = [r["ts"] for rows, _ in batches for r in rows]
    for plan in plans:
        state, progress = [], NEVER
        for number, (rows, reached) in enumerate([*batches, ([], FOREVER)]):
            if rows:
                state += keep_rows(plan, table_of(groups, plan, rows, predicates), slide=slide).tables
            newest = max(times, default=None)
            for closed in close(plan, whole(plan, state), progress, reached, newest=newest, runs=runs):
                found[closed.query] += listed(closed.table, plan, closed.query)
            progress = reached
            if number in merged and state and not any(are_rows(t) for t in state if plan.width):
                state = [merge(plan, state)]
            if number in settled:
                state = expire_forms(plan, state, progress)
        kept = expire(plan, whole(plan, state), FOREVER)
        left.append((plan, kept))
    return found, left


def whole(plan, state):
    """Tables as windows are put together from them."""
    return [as_partials(plan, table) for table in state]


def listed(table, plan, query):
    """Rows of a result as the reference has them; runs written out."""
    names = table.column_names
    window = next(q.window for q in plan.queries if q.query == query)
    found = []
    for row in table.to_pylist():
        group = tuple(row[n] for n in names if n[0] == "g")
        values = tuple(row[n] for n in names if n[0] == "a")
        for k in range(row.get("_windows", 1)):
            slide = getattr(window, "slide", 0)
            start = row["window_start"]
            if start is not None and not isinstance(window, Landmark):
                origin = getattr(window, "origin", None)
                start = (
                    start + k * slide
                    if k == 0 or origin is None
                    else max(row["window_end"] + k * slide - window.range, origin)
                )
            found.append((group, start, row["window_end"] + k * slide, values))
    return found


def plain(value):
    """A value in a form that two bags can be compared by: doubles at about 1e-9, structs as pairs."""
    if isinstance(value, dict):
        return tuple(plain(v) for v in value.values())
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value if math.isinf(value) else float(f"{value:.8e}") + 0.0
    if isinstance(value, Decimal):
        return value.normalize() + 0
    return value


def close_to(one, other):
    """Equal, doubles at 1e-9 relative."""
    if isinstance(one, float) and isinstance(other, float):
        return (
            (math.isnan(one) and math.isnan(other))
            or one == other
            or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)
        )
    if isinstance(one, dict):
        one = tuple(one.values())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(close_to(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def assert_same(found, wanted):
    """Two bags of results are the same."""

    def place(result):
        group, start, end, _ = result
        return plain(group), start, end

    assert Counter(map(place, found)) == Counter(map(place, wanted))
    by_place = {}
    for result in wanted:
        by_place.setdefault(place(result), []).append(result[3])
    for result in found:
        options = by_place[place(result)]
        match = next((n for n, values in enumerate(options) if close_to(result[3], values)), None)
        assert match is not None, (place(result), result[3], options)
        options.pop(match)


@st.composite
def batches(draw, rows=ROWS, most=25):
    """Rows in batches in any order, with progress that none of the later rows is behind."""
    drawn = draw(st.lists(rows, max_size=most))
    cuts = sorted(draw(st.lists(st.integers(0, len(drawn)), max_size=4)))
    parts = [drawn[a:b] for a, b in zip([0, *cuts], [*cuts, len(drawn)], strict=True)]
    found, reached = [], NEVER
    for number, part in enumerate(parts):
        later = [r["ts"] for rest in parts[number + 1 :] for r in rest]
        most_progress = min(later, default=60)
        if draw(st.booleans()):
            reached = max(reached, draw(st.integers(-30, 60)))
        reached = min(reached, most_progress) if reached > NEVER else reached
        found.append((part, reached))
    return _monotone(found)


def _monotone(found):
    # Progress is at most the least time to come, so the least of what follows is sound and never falls.
    reached = [r for _, r in found]
    for n in range(len(reached) - 2, -1, -1):
        reached[n] = min(reached[n], reached[n + 1])
    return [(rows, r) for (rows, _), r in zip(found, reached, strict=True)]


def items(*names):
    return tuple(Item(None, column(n)) for n in names)


def hypotheses(*kinds):
    return st.lists(st.one_of(*kinds), min_size=1, max_size=3)
