"""Users' own aggregates, from a declaration in Python through SQL to results, over restarts too."""

import pytest

from penstock.errors import RegistrationError
from penstock.model import Sliding
from penstock.reference import aggregate_results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.runtime.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint, v bigint", delay=2)


def made_here():
    """A class that no worker can import: it travels whole."""

    class Product:
        type = "bigint"

        def zero(self):
            return 1

        def add(self, state, value):
            return state * value % 1009

        def merge(self, left, right):
            return left * right % 1009

        def finish(self, state):
            return state

    return Product()


SQL = "SELECT k, product(v) AS p, count(*) AS n, window_end FROM a [RANGE {} SLIDE {}] GROUP BY k"


def test_an_aggregate_of_the_users_own_gives_the_references_answer(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    queries = {
        "paned": SQL.format(6, 2),
        "rows": SQL.format(5, 2),
        "having": SQL.format(4, 4) + " HAVING product(v) > 30",
        "counted": "SELECT product(v + 1) AS p, result_time FROM a [RANGE 3 ROWS SLIDE 2 ROWS]",
    }
    rows, own = [], {"product": made_here()}
    for number in range(3):
        batch = [{"ts": 4 * number + n, "k": n % 2, "v": 3 + n + number if n != 2 else None} for n in range(5)]
        rows += batch
        replay.add(a=batch)
        engine = replay.engine(spark, tmp_path / "state")
        engine.aggregate("Product", own["product"])
        for name, sql in queries.items():
            engine.query(sql, name=name)
        drain(engine, final=number == 2)
    for name, sql in queries.items():
        query = parse_query(sql, {"a": STREAM}, own=own)
        found = aggregate_results(query, {"a": STREAM}, {"a": rows}, own=own)
        assert found
        assert bag(rows_of(engine.results(name))) == bag(found), name
    assert isinstance(parse_query(queries["paned"], {"a": STREAM}, own=own).aggregation.window, Sliding)
    again = replay.engine(spark, tmp_path / "state")
    with pytest.raises(RegistrationError, match="query 'paned' uses the aggregate 'product', which is not declared"):
        again.results("paned")


def test_what_is_no_aggregate_is_refused(spark, tmp_path):
    engine = Replay(tmp_path / "source", STREAM).engine(spark, tmp_path / "state")
    engine.aggregate("product", made_here())
    with pytest.raises(RegistrationError, match="declared twice"):
        engine.aggregate("PRODUCT", made_here())
    with pytest.raises(RegistrationError, match="'sum' is there already"):
        engine.aggregate("sum", made_here())
    with pytest.raises(RegistrationError, match="letters, digits and underscores"):
        engine.aggregate("a b", made_here())
    with pytest.raises(RegistrationError, match="lacks zero, add, merge, finish"):
        engine.aggregate("other", object())
    wrong = made_here()
    wrong.type = "whole number"
    with pytest.raises(RegistrationError, match="the type 'whole number' is not supported"):
        engine.aggregate("other", wrong)
