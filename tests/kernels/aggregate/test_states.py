"""Stored states of sketches and of users' aggregates: data that round-trips and is never executed."""

import json
import pickle
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StateError
from penstock.kernels.aggregate.close import close, merge, partials
from penstock.kernels.aggregate.states import Frequent, Lost, Own, Quantiles, load_states, why_lost
from penstock.kernels.aggregate.stored import refused
from penstock.model import Aggregate, Aggregation, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from tests.kernels.aggregate.scenes import TYPES, column


class Counted:
    """How often the most frequent value came; its state is a Counter, which is no plain value."""

    type = "bigint"

    def zero(self):
        return Counter()

    def add(self, state, value):
        return state + Counter([value])

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return max(state.values())


class Kept(Counted):
    def encode(self, state):
        return json.dumps(list(state.items())).encode()

    def decode(self, data):
        return Counter(dict(json.loads(data)))


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


VALUES = pa.array([3, 4, None, 3])


def plan_of(**own):
    window = Sliding(4, 4)
    queries = {
        n: Aggregation(window, (), (Aggregate("count", None), *given), None)
        for n, given in enumerate([(), *[(Aggregate(name, column("x")),) for name in own]])
    }
    (plan,) = plan_aggregates(queries, {column(n): t for n, t in TYPES.items()}, own=own)
    return plan


def rows_of(plan):
    rows = {"_key": [1] * 4, "_ts": [0, 1, 4, 5], "a0": VALUES}
    return pa.table({name: rows[name] for name in ("_key", "_ts", *(f"a{n}" for n in range(len(plan.types))))})


def test_a_users_own_codec_keeps_states_that_are_no_plain_values():
    kept = Own("most", Kept())
    state = kept.of(VALUES)
    again = kept.load(kept.dump(state))
    assert again == state
    assert type(again) is Counter
    assert kept.finish(kept.merge(again, state)) == 4


def test_a_state_that_is_no_plain_value_is_lost_and_says_what_to_do():
    own = Own("most", Counted())
    lost = own.load(own.dump(own.of(VALUES)))
    assert lost == Lost(
        "aggregate 'most' has a state of type collections.Counter, which cannot be kept between steps: make "
        "it of None, bool, int, float, "
        "str, bytes, Decimal, date, datetime, timedelta, list, tuple, set, dict, or give the aggregate "
        "encode(state) -> bytes and "
        "decode(bytes) -> state"
    )
    assert own.merge(own.of(VALUES), lost) == own.load(own.dump(lost)) == lost
    assert own.finish(lost) is None


@pytest.mark.parametrize(
    ("encode", "decode", "why"),
    [
        (lambda state: 1 // 0, None, r"encode\(\) raised ZeroDivisionError"),
        (lambda state: "text", None, r"encode\(\) gave str and not bytes"),
        (lambda state: b"", lambda data: data[0], r"decode\(\) raised IndexError"),
    ],
)
def test_a_codec_that_fails_loses_the_state_of_its_own_queries(encode, decode, why):
    function = Kept()
    function.encode, function.decode = encode, decode or function.decode
    own = Own("most", function)
    lost = own.load(own.dump(own.of(VALUES)))
    assert isinstance(lost, Lost)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(lost.why)


def test_only_the_queries_of_a_state_that_cannot_be_kept_are_refused():
    plan = plan_of(most=Counted(), other=Kept())
    table = partials(plan, rows_of(plan))
    assert {query: why.partition(",")[0] for query, why in refused(plan, merge(plan, [table, table])).items()} == {
        1: "aggregate 'most' has a state of type collections.Counter"
    }
    plain, lost, kept = close(plan, [table], NEVER, FOREVER, newest=5)
    assert plain.table.column("a0").to_pylist() == [2, 2]
    assert (lost.table.column("a1").to_pylist(), lost.errors) == ([None, None], 2)
    assert (kept.table.column("a1").to_pylist(), kept.errors) == ([1, 1], 0)


def test_states_of_a_codec_are_not_read_without_it():
    data = Own("most", Kept()).dump(Counter([1]))
    with pytest.raises(StateError, match=r"aggregate 'most' were written by its encode\(\); declare it with"):
        Own("most", Counted()).load(data)
    assert Own("most", Kept()).load(Own("most", Counted()).dump(Lost("gone"))) == Lost("gone")


def test_a_pickled_state_of_an_older_version_is_refused_without_being_read(tmp_path):
    forged = pickle.dumps(Bomb(tmp_path / "made"), protocol=5)
    for function in (Counted(), Kept()):
        with pytest.raises(StateError, match="pickled by an older version"):
            load_states(pa.array([forged]), Own("most", function))
    assert why_lost(pa.array([forged])) is None
    assert list(tmp_path.iterdir()) == []


ITEMS = [
    pa.array([1, 2, 2, -(2**63)]),
    pa.array([0.5, -0.0, float("inf"), float("nan"), 0.5]),
    pa.array(["a", "", "ü", "a"]),
    pa.array([b"\x00", b"j", b"\x00"]),
    pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(12, 2)),
    pa.array([date(2026, 1, 1), date(1, 1, 1)]),
    pa.array([datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
    pa.array([datetime(2026, 1, 1, 1, 2, 3, 4)], pa.timestamp("us")),  # noqa: DTZ001
    pa.array([True, False, True]),
]


@pytest.mark.parametrize("values", ITEMS, ids=lambda values: str(values.type))
def test_items_of_sketches_come_back_as_they_were(values):
    from datasketches import frequent_items_error_type as kinds

    frequent = Frequent(8)
    sketch = frequent.of(values)
    again = frequent.load(frequent.dump(sketch))
    found, expected = (  # items of equal weight come in the order of their hashes, which for NaN differ
        sorted(map(repr, one.get_frequent_items(kinds.NO_FALSE_NEGATIVES, 0))) for one in (again, sketch)
    )
    assert found == expected
    assert again.total_weight == len(values)
    if not pa.types.is_floating(values.type):
        quantiles = Quantiles(100.0, exact=True)
        ranked = quantiles.of(values)
        found = quantiles.load(quantiles.dump(ranked))
        places = range(1, ranked.count + 1)
        assert (
            [found.at(place) for place in places]
            == [ranked.at(place) for place in places]
            == sorted(values.to_pylist())
        )


def test_pickled_items_of_a_sketch_are_refused_without_being_read(tmp_path):
    frequent = Frequent(8)
    plain = b"x" * 200
    data = frequent.dump(frequent.of(pa.array([plain])))
    item = len(data) - data.index(b'j{"b":')
    bomb = pickle.dumps(Bomb(str(tmp_path / "made")), protocol=5)
    forged = data[:-item] + bomb + b"\x00" * (item - len(bomb))
    with pytest.raises(StateError, match="pickled by an older version"):
        frequent.load(forged)
    assert list(tmp_path.iterdir()) == []
