"""The installed view: whatever signed rows come, readers see their sum; a crash leaves the version before."""

from __future__ import annotations

import math
import threading
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError, StepError
from penstock.model import Expression, Ref
from penstock.model.view import View, ViewAggregate
from penstock.storage.local import LocalStore
from penstock.views.refresh.aggregate import grouping_of
from penstock.views.rows import slices
from penstock.views.rows.bag import COUNT
from penstock.views.store import ViewStore, repeated

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.float64())])
ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.sampled_from(["a", "", None]),
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
)


def canonical(row):
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v for v in row
    )


def table(rows: Counter, schema: pa.Schema) -> pa.Table:
    names = schema.names
    columns = {n: pa.array([r[i] for r in rows], schema.field(n).type) for i, n in enumerate(names)}
    return pa.table({**columns, COUNT: pa.array(list(rows.values()), pa.int64())})


def bag(rows: pa.Table) -> Counter:
    return Counter(canonical(r.values()) for r in repeated(rows).to_pylist())


@st.composite
def histories(draw, row=ROW):
    """Deltas that never delete what is not there."""
    held: Counter = Counter()
    deltas = []
    for _ in range(draw(st.integers(1, 6))):
        delta: Counter = Counter()
        for made in draw(st.lists(row, max_size=8)):
            delta[made] += draw(st.integers(1, 3))
        for known in [r for r in sorted(held, key=repr) if held[r] > 0]:
            if draw(st.booleans()):
                delta[known] -= draw(st.integers(1, held[known]))
        held = Counter({r: n for r in {*held, *delta} if (n := held[r] + delta[r])})
        deltas.append(delta)
    return deltas


@given(deltas=histories(), most=st.sampled_from([2, 16]), reopened=st.booleans())
def test_readers_see_the_sum_of_all_that_was_installed(tmp_path_factory, deltas, most, reopened):
    root = LocalStore(str(tmp_path_factory.mktemp("view")), durable=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "FEW", most)
        view = ViewStore(root, "views/v", SCHEMA)
        expected: Counter = Counter()
        for number, delta in enumerate(deltas, 1):
            for row, times in delta.items():
                expected[canonical(row)] += times
            view.install(table(delta, SCHEMA), {"s": str(number)}, {"seconds": 0.1})
            if reopened:
                view = ViewStore(root, "views/v", SCHEMA)
            rows, version = view.read()
            assert (bag(rows), version, view.newest.marks) == (+expected, number, {"s": str(number)})
        view.compact()
        assert bag(view.read()[0]) == +expected
        assert len(view.newest.bags["rows"]) <= 1


GROUPED = pa.schema([
    ("g0", pa.string()), ("g1", pa.float64()), ("a0", pa.int32()), ("a1", pa.decimal128(10, 2)), ("a2", pa.float64()),
])  # fmt: skip
GROUPED_ROW = st.tuples(
    st.sampled_from(["x", None]),
    st.sampled_from([0.0, -0.0, float("nan"), None]),
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.sampled_from([Decimal("0.01"), Decimal("-99999999.99"), Decimal("1.00"), None]),
    st.sampled_from([0.1, 1e18, -1e18, float("nan"), float("inf"), -0.0, None]),
)
FUNCTIONS = [
    ("count", False),
    ("count", True),
    ("sum", False),
    ("sum", True),
    ("avg", False),
    ("min", False),
    ("max", False),
]


def aggregated(groups: int, functions) -> View:
    def ref(name: str) -> Expression:
        return Expression((Ref(0, name),), Ref(0, name), total=True)

    found = tuple(ViewAggregate(f, None if n is None else ref(n), d) for f, n, d in functions)
    return View("v", "", (), (), (), (), tuple(ref(f"x{k}") for k in range(groups)), found)


def expected_value(function: str, values: list, *, distinct: bool, star: bool):
    """An aggregate of a list, value by value; None is NULL."""
    if star:
        return len(values)
    there = [v for v in values if v is not None]
    if distinct:
        there = list({canonical((v,)): v for v in there}.values())
    if function == "count":
        return len(there)
    if not there:
        return None
    if function in ("min", "max"):
        choose = min if function == "min" else max
        return choose(there, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
    if isinstance(there[0], float):
        finite = all(map(math.isfinite, there))
        whole = math.fsum(there) if finite else sum(there)
        return whole if function == "sum" else whole / len(there)
    whole = sum(there)
    if function == "sum":
        return whole
    if isinstance(whole, int):
        return whole / len(there)
    return (whole / len(there)).quantize(Decimal("0.000001"), "ROUND_HALF_UP")


def same(found, wanted, values) -> bool:
    """Equal; sums of doubles to nine digits of what was added up."""
    if isinstance(wanted, float) and isinstance(found, float):
        size = math.fsum(abs(v) for v in values if v is not None and math.isfinite(v))
        both_nan = math.isnan(wanted) and math.isnan(found)
        return both_nan or found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9 * float(size))
    return found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize("groups", [0, 1, 2])
@given(
    deltas=histories(GROUPED_ROW),
    chosen=st.lists(st.sampled_from(FUNCTIONS), min_size=3, max_size=3),
    star=st.booleans(),
)
def test_aggregates_are_those_of_all_rows(tmp_path_factory, groups, deltas, chosen, star):
    functions = [(f, f"a{k}", d) for k, (f, d) in enumerate(chosen)]
    functions += [("count", None, False)] if star else []
    kept = [0, 1][:groups]
    schema = pa.schema([GROUPED.field(i) for i in (*kept, 2, 3, 4)])
    view = aggregated(groups, functions)
    folder = LocalStore(str(tmp_path_factory.mktemp("view")), durable=False)
    installed = ViewStore(folder, "v", schema, grouping_of(view, schema))
    held: Counter = Counter()
    for delta in deltas:
        for row, times in delta.items():
            held[row] += times
        projected: Counter = Counter()
        for row, times in delta.items():
            projected[tuple(row[i] for i in (*kept, 2, 3, 4))] += times
        installed.install(table(projected, schema), {}, {})
        members: dict = {} if groups else {(): []}
        for row, times in held.items():
            if times:
                members.setdefault(canonical(row[i] for i in kept), []).extend([row] * times)
        found = {
            canonical(list(r.values())[:groups]): list(r.values())[groups:]
            for r in repeated(installed.read()[0]).to_pylist()
        }
        assert found.keys() == members.keys()
        for key, rows in members.items():
            for k, (function, name, distinct) in enumerate(functions):
                values = [None if name is None else r[k + 2] for r in rows]
                wanted = expected_value(function, values, distinct=distinct, star=name is None)
                assert same(found[key][k], wanted, values), (function, distinct, values, found[key][k], wanted)


def test_only_aggregates_that_need_them_keep_the_joined_rows(tmp_path):
    schema = pa.schema([("g0", pa.string()), ("a0", pa.int64())])
    for function, kept in (("sum", False), ("avg", False), ("count", False), ("min", True)):
        view = aggregated(1, [(function, "a0", False)])
        installed = ViewStore(LocalStore(str(tmp_path / function)), "v", schema, grouping_of(view, schema))
        installed.install(table(Counter({("x", 1): 1}), schema), {}, {})
        assert ("rows" in installed.newest.bags) is kept


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("groups", [0, 1])
def test_sums_of_the_widest_decimals_are_exact_or_do_not_fit(tmp_path, groups, distinct):
    schema = pa.schema([("g0", pa.string()), ("a0", pa.decimal128(38, 0))][1 - groups :])
    grouping = grouping_of(aggregated(groups, [("sum", "a0", distinct)]), schema)
    view = ViewStore(LocalStore(str(tmp_path), durable=False), "v", schema, grouping)

    def install(*changes: tuple[int, int]) -> None:
        view.install(table(Counter({("x", Decimal(v))[1 - groups :]: n for v, n in changes}), schema), {}, {})

    most = 10**38 - 1
    install((most, 1), (1 - most, 2), (most - 1, 1))
    assert view.read()[0].column("a0").to_pylist() == [Decimal(most if distinct else 1)]
    too_much = [[(most, 1), (most - 1, 1), (most - 2, 1), (most - 3, 1)], [(most - n, 1) for n in range(7)]]
    for changes in too_much:
        with pytest.raises(StepError, match=r"the sum a0 of a group does not fit decimal128\(38, 0\)"):
            install(*changes)
    if not distinct:
        with pytest.raises(StepError, match="does not fit"):
            install((most, 2))
    assert view.newest.number == 1


def test_deleting_a_row_that_is_not_there_is_reported_and_changes_nothing(tmp_path):
    view = ViewStore(LocalStore(str(tmp_path)), "v", SCHEMA)
    view.install(table(Counter({(1, "a", 0.0): 1}), SCHEMA), {"s": "1"}, {})
    for absent in (Counter({(1, "a", 0.0): -2}), Counter({(2, "a", 0.0): -1})):
        with pytest.raises(StepError, match="a row was deleted that is not there"):
            view.install(table(absent, SCHEMA), {"s": "2"}, {})
    assert (view.newest.number, view.newest.marks) == (1, {"s": "1"})
    schema = pa.schema([("g0", pa.string()), ("a0", pa.int64())])
    grouped = ViewStore(
        LocalStore(str(tmp_path)), "w", schema, grouping_of(aggregated(1, [("sum", "a0", False)]), schema)
    )
    with pytest.raises(StepError, match="would have -1 rows"):
        grouped.install(table(Counter({("x", 1): -1}), schema), {}, {})


class _DeathError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("when", range(4))
def test_a_crash_at_any_write_leaves_the_old_view_and_the_refresh_can_be_repeated(tmp_path, when):
    folder = LocalStore(str(tmp_path))
    schema = pa.schema([("g0", pa.string()), ("a0", pa.int64())])

    def opened(store) -> ViewStore:
        return ViewStore(store, "v", schema, grouping_of(aggregated(1, [("max", "a0", False)]), schema))

    opened(folder).install(table(Counter({("x", 1): 1, ("x", 2): 1}), schema), {"s": "1"}, {})
    delta = table(Counter({("x", 2): -1, ("y", 5): 1}), schema)
    writes = 0

    class Failing(LocalStore):
        def write(self, name, data):
            nonlocal writes
            writes += 1
            if writes > when:
                raise _DeathError
            super().write(name, data)

    failing = opened(Failing(str(tmp_path)))
    try:
        failing.install(delta, {"s": "2"}, {})
        died = False
    except _DeathError:
        died = True
    assert died == (when < 3)
    again = opened(folder)
    if died:
        assert (bag(again.read()[0]), again.newest.marks) == ({("x", 2): 1}, {"s": "1"})
        again.install(delta, {"s": "2"}, {})
        assert len(list((tmp_path / "v/slices").glob("*.arrow*"))) == 4  # what the dead process left is gone
    assert (bag(again.read()[0]), again.newest.marks) == ({("x", 1): 1, ("y", 5): 1}, {"s": "2"})


def test_of_two_that_install_at_once_one_wins_and_the_other_is_told(tmp_path):
    folder = LocalStore(str(tmp_path))
    one, other = ViewStore(folder, "v", SCHEMA), ViewStore(folder, "v", SCHEMA)
    one.install(table(Counter({(1, "a", None): 1}), SCHEMA), {}, {})
    with pytest.raises(StateError, match="refresh again"):
        other.install(table(Counter({(2, "b", None): 1}), SCHEMA), {}, {})
    assert bag(other.read()[0]) == {(1, "a", None): 1}


def test_readers_see_one_version_or_the_next_while_others_are_installed(tmp_path):
    """Every version holds pairs (k, in) and (k, out): a reader that saw a mixture would see half a pair."""
    folder = LocalStore(str(tmp_path), durable=False)
    schema = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    writer = ViewStore(folder, "v", schema)
    writer.install(table(Counter({(0, "in"): 1, (0, "out"): 1}), schema), {}, {})
    done = threading.Event()

    def write() -> None:
        for k in range(1, 120):
            delta = Counter({(k - 1, "in"): -1, (k - 1, "out"): -1, (k, "in"): 1, (k, "out"): 1})
            writer.install(table(delta, schema), {}, {})
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    while not done.is_set():
        rows = repeated(ViewStore(folder, "v", schema).read()[0]).to_pylist()
        assert sorted(r["c1"] for r in rows) == ["in", "out"]
        assert len({r["c0"] for r in rows}) == 1
        seen.add(rows[0]["c0"])
    thread.join()
    assert seen
