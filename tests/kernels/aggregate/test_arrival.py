"""Windows that end with every n-th row to arrive: kernels and reference agree with DuckDB for any disorder and cuts."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.types import arrow_type
from penstock.kernels.aggregate.close import close, merge, partials
from penstock.kernels.aggregate.keep import expire
from penstock.model import Aggregate, Aggregation, Column, PerRow, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.reference.aggregate import answers
from tests.effort import examples
from tests.kernels.aggregate.scenes import column, items, query_of
from tests.oracle import bag, connection

TYPES = {"ts": "bigint", "seq": "bigint", "k": "bigint", "x": "bigint"}
STREAM = Stream("a", tuple(Column(n, t) for n, t in TYPES.items()), "ts", 0, sequence="seq")
CALLS = (Aggregate("count", None), Aggregate("sum", column("x")), Aggregate("last", column("x")))
VALUES = st.fixed_dictionaries(
    {"ts": st.integers(0, 20), "k": st.sampled_from((0, 1, None)), "x": st.integers(0, 3), "gap": st.integers(1, 3)}
)


@st.composite
def arrivals(draw):
    """Steps of rows as they have arrived, and the progress after each: no later row is behind it."""
    rows, sequence = draw(st.lists(VALUES, max_size=25)), 0
    for row in rows:
        sequence += row.pop("gap")
        row["seq"] = sequence
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    bounds = list(zip([0, *cuts], [*cuts, len(rows)], strict=True))
    steps, reached = [], NEVER
    for low, high in bounds:
        ahead = min((row["ts"] for row in rows[high:]), default=30)
        reached = max(reached, ahead - draw(st.integers(0, 3)))
        # Rows of one step come in any order.
        steps.append((draw(st.permutations(rows[low:high])), reached))
    return steps


def table_of(plan, rows, groups):
    def values(name):
        return pa.array([row[name] for row in rows], type=arrow_type(TYPES[name]))

    columns = {"_key": pa.array([0] * len(rows), pa.int64())} | {f"g{n}": values(g) for n, g in enumerate(groups)}
    columns["_ts"] = values("ts")
    columns |= {f"a{n}": values(e.refs[0].column) for n, e in enumerate(plan.arguments)}
    return pa.table(columns | {f"o{n}": values(name) for n, name in enumerate(STREAM.order[1:])})


def by_kernels(aggregation, steps, groups, settled):
    (plan,) = plan_aggregates({0: aggregation}, {column(n): t for n, t in TYPES.items()})
    state, progress, found = [], NEVER, []
    for number, (rows, reached) in enumerate([*steps, ([], FOREVER)]):
        if rows:
            state.append(partials(plan, table_of(plan, rows, groups)))
        for closed in close(plan, state, progress, reached):
            found += [tuple(row.values()) for row in closed.table.to_pylist()]
        progress = reached
        if number in settled and state:
            kept = expire(plan, [merge(plan, state)], progress)
            state = [] if kept is None else [kept]
    held = [] if not state else expire(plan, state, FOREVER)
    return found, held


def by_duckdb(window, rows):
    types = {name: arrow_type(kind) for name, kind in TYPES.items()}
    connection().register("a", pa.Table.from_pylist(rows, pa.schema(types)))
    by = ", ".join(window.partition) or "1"
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY seq) AS r FROM a"
    same = "".join(f" AND a.{c} IS NOT DISTINCT FROM e.{c}" for c in window.partition)
    return connection().execute(
        f"SELECT a.k, e.ts - {window.range}, e.ts, count(*), sum(a.x), last(a.x ORDER BY a.ts, a.seq) "
        f"FROM ({numbered}) e JOIN a ON e.ts - {window.range} < a.ts AND a.ts <= e.ts{same} "
        f"WHERE r % {window.rows} = 0 GROUP BY a.k, e.ts, e.r, e.k"
    ).fetchall()  # fmt: skip


WINDOWS = st.builds(PerRow, st.integers(1, 12), st.integers(2, 4), st.sampled_from(((), ("k",))), st.just(True))


@settings(max_examples=examples(150), deadline=None)
@given(WINDOWS, arrivals(), st.sets(st.integers(0, 5)))
def test_every_nth_row_to_arrive_ends_a_window(window, steps, settled):
    aggregation = Aggregation(window, items("k"), CALLS, None)
    rows = [row for own, _ in steps for row in own]
    expected = bag(by_duckdb(window, rows))
    found, held = by_kernels(aggregation, steps, ("k",), settled)
    assert bag(found) == expected
    defined = answers(query_of(aggregation), {"a": STREAM}, {"a": rows})
    assert bag((*a.group, a.start, a.end, *a.values) for a in defined) == expected
    assert not held or held.column("_ts").to_pylist() == [NEVER] * len(held)  # only how many they were


def test_counting_by_arrival_and_by_time_differ_where_rows_come_out_of_order():
    rows = [{"ts": ts, "seq": n, "k": 0, "x": n} for n, ts in enumerate((9, 3, 5, 4))]
    for arrival, ends in ((True, [3, 4]), (False, [4, 9])):
        aggregation = Aggregation(PerRow(2, 2, (), arrival), items("k"), CALLS[:1], None)
        defined = answers(query_of(aggregation), {"a": STREAM}, {"a": rows})
        assert sorted(a.end for a in defined) == ends
