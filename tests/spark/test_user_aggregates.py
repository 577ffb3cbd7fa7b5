"""Users' own aggregates, from a declaration in Python through SQL to results, over restarts too."""

import pickle
import zlib
from collections import deque
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import RegistrationError, StateError
from penstock.model import Sliding
from penstock.reference import aggregate_results
from penstock.sql import parse_query
from penstock.storage.seal import seal, unseal
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

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


def kept_as(kind, **codec):
    """The last value, held in a state of this kind; with a codec if one is given."""
    methods = {
        "type": "bigint",
        "zero": lambda self: None,
        "add": lambda self, state, value: kind([value]),
        "merge": lambda self, left, right: left if right is None else right,
        "finish": lambda self, state: None if state is None else max(state),
    }
    return type("Last", (), {**methods, **codec})()


def test_a_state_that_cannot_be_kept_suspends_its_own_query_and_says_what_to_do(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    replay.add(a=[{"ts": n, "k": 0, "v": n} for n in range(4)])
    engine = replay.engine(spark, tmp_path / "state", plan="paned")
    engine.aggregate("known", kept_as(tuple))
    engine.aggregate("odd", kept_as(deque))
    codec = {
        "encode": lambda self, state: b"" if state is None else str(state[0]).encode(),
        "decode": lambda self, data: deque([int(data)]) if data else None,
    }
    engine.aggregate("coded", kept_as(deque, **codec))
    for name in ("known", "odd", "coded"):
        engine.query(f"SELECT k, {name}(v) AS v FROM a [RANGE 2 SLIDE 2] GROUP BY k", name=name)
    run = drain(engine, final=True)
    status = run.status()["queries"]
    assert status["odd"]["suspended"] == (
        "query 'odd': aggregate 'odd' has a state of type collections.deque, which cannot be kept between "
        "steps: make it of None, bool, "
        "int, float, str, bytes, Decimal, date, datetime, timedelta, list, tuple, set, dict, or give the "
        "aggregate encode(state) -> bytes "
        "and decode(bytes) -> state; then drop the query and create it again"
    )
    assert status["known"]["suspended"] is status["coded"]["suspended"] is None
    assert bag(rows_of(engine.results("known"))) == bag(rows_of(engine.results("coded"))) == bag([(0, 1), (0, 3)])


def test_an_aggregate_whose_first_state_cannot_be_kept_is_refused(spark, tmp_path):
    engine = Replay(tmp_path / "source", STREAM).engine(spark, tmp_path / "state")
    odd = made_here()
    odd.zero = deque
    with pytest.raises(
        RegistrationError, match=r"aggregate 'odd' has a state of type collections\.deque, .* encode\(state\)"
    ):
        engine.aggregate("odd", odd)
    odd.encode = lambda state: b""
    with pytest.raises(RegistrationError, match="lacks decode; it needs both"):
        engine.aggregate("odd", odd)
    odd.decode = lambda data: data[0]
    with pytest.raises(RegistrationError, match=r"decode\(\) raised IndexError"):
        engine.aggregate("odd", odd)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_what_somebody_has_put_into_a_state_directory_is_never_run(spark, tmp_path):
    """Every file that an engine reads is forged, with checksums that fit, so that a pickle in it would make a file."""
    replay = Replay(tmp_path / "source", STREAM)
    state = tmp_path / "state"

    def started(*, final=False):
        engine = replay.engine(spark, state, plan="paned")
        engine.aggregate("product", made_here())
        engine.query(SQL.format(4, 2), name="q")
        return drain(engine, final=final)

    for number in range(2):
        replay.add(a=[{"ts": 4 * number + n, "k": 0, "v": 3} for n in range(4)])
        started()
    forged = pickle.dumps(Bomb(tmp_path / "made"))
    lines = {}
    for path in list((state / "runs").iterdir()):
        with pa.ipc.open_file(path) as reader:
            batch = reader.get_batch(0)
        columns = [pa.array([forged] * len(batch)) if pa.types.is_binary(c.type) else c for c in batch.columns]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=batch.schema))
        forgery = path.with_name(f"forged-{path.name}")  # by its old name a worker may hold what it has written
        forgery.write_bytes(sink.getvalue())
        facts = {"bytes": sink.getvalue().size, "checksum": zlib.crc32(sink.getvalue())}
        lines[f"runs/{path.name}"] = {"name": f"runs/{forgery.name}", **facts}
    for path in (state / "manifest").iterdir():
        body = unseal(path.read_bytes(), str(path))
        entries = [entry for key in ("runs_added", "runs") for entry in body.get(key, ())]
        for entry in entries:
            entry.update(lines.get(entry["name"], {}))
        path.write_bytes(seal(body))
    assert lines
    replay.add(a=[{"ts": 20 + n, "k": 0, "v": 3} for n in range(4)])
    with pytest.raises(StateError, match="pickled by an older version of Penstock"):
        started(final=True)
    assert not (tmp_path / "made").exists()
