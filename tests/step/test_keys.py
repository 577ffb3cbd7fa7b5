"""Keys that kernels hash lie where Spark would have put them, whatever their types, and all others Spark hashes."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.columns.verdict import event_time
from penstock.model import Column, Ref, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.state_table import key_column
from penstock.spark.ingest import _key
from penstock.sql import parse_query
from penstock.step.keys import key_columns, keys_of
from penstock.step.layout import lay_out
from tests.columns.test_hash import KINDS

COLUMNS = {"at": "bigint"} | {f"c{n}": kind for n, kind in enumerate(KINDS)}
STREAMS = {name: Stream(name, tuple(Column(c, t) for c, t in COLUMNS.items()), "at", 0) for name in "ab"}
C = {kind: column for column, kind in COLUMNS.items() if column != "at"}
JOINED = [
    *([(kind, kind)] for kind in KINDS),
    [("bigint", "tinyint")], [("int", "double")], [("float", "double")], [("bigint", "float")],
    [("string", "string"), ("date", "date")], [("boolean", "boolean"), ("smallint", "int"), ("float", "float")],
    [("timestamp", "timestamp"), ("decimal(38,10)", "decimal(38,10)"), ("binary", "binary")],
]  # fmt: skip
GROUPED = [*([kind] for kind in KINDS), ["string", "int"], ["date", "boolean", "double"], ["decimal(7,2)", "bigint"]]
ROWS = 400


def queries():
    for pairs in JOINED:
        yield "SELECT x.at FROM a [RANGE 5] x, b [RANGE 5] y WHERE " + " AND ".join(
            f"x.{C[m]} = y.{C[n]}" for m, n in pairs
        )
    for kinds in GROUPED:
        names = ", ".join(C[kind] for kind in kinds)
        yield f"SELECT {names}, count(*) AS c FROM a [RANGE 4 SLIDE 2] GROUP BY {names}"


def network_of(texts):
    return build_network([StandingQuery(n + 1, f"q{n}", parse_query(t, STREAMS)) for n, t in enumerate(texts)], STREAMS)


@pytest.mark.spark
def test_keys_of_columns_are_those_that_spark_computes(spark):
    r = random.Random(11)
    drawn = {"at": pa.array([r.randrange(100) for _ in range(ROWS)])}
    for column, (arrow, draw) in zip(list(COLUMNS)[1:], KINDS.values(), strict=True):
        drawn[column] = pa.array([None if r.random() < 0.1 else draw(r) for _ in range(ROWS)], arrow)
    network, layout = network_of(queries()), lay_out(list(STREAMS.values()))
    keyed = [t for t in network.tables if t.key]
    hashed = [t for t in keyed if key_columns(t) != (key_column(t.name),)]
    assert len(keyed) - len(hashed) <= 2  # decimals of other widths, if any
    frame = spark.createDataFrame(pa.table(drawn), ", ".join(f"{c} {t}" for c, t in COLUMNS.items()))
    slots = [f"{column} AS {slot}" for column, slot in layout.slots["a"].items()]
    texts = [f"{_key(t, layout)} AS k{n}" for n, t in enumerate(hashed)]
    computed = frame.selectExpr("monotonically_increasing_id() AS place", *slots).selectExpr("place", *texts)
    expected = computed.toArrow().sort_by("place")
    for n, table in enumerate(hashed):
        keys, has_key = keys_of(table, drawn, drawn["at"])
        wanted = expected.column(f"k{n}").to_pylist()
        assert keys.tolist() == [0 if key is None else key for key in wanted], table.name
        assert has_key.tolist() == [table.grouped or key is not None for key in wanted], table.name


K, S, D = (Ref(0, C[kind]) for kind in ("bigint", "string", "decimal(7,2)"))
PLAIN = network_of(["SELECT x.at FROM a [RANGE 5] x, b [RANGE 5] y WHERE x.c0 = y.c0"]).tables[0]


@pytest.mark.parametrize(
    ("key", "types"),
    [
        (((K, " + 1"),), ("bigint",)),
        (((K,), ("upper(", S, ")")), ("bigint", "string")),
        ((("CAST(", D, " AS DECIMAL(12,2))"),), ("decimal(12,2)",)),
        ((("CAST(", S, " AS BIGINT)"),), ("bigint",)),
        ((("((", Ref(0, "_ts"), " - 0L) - pmod(", Ref(0, "_ts"), " - 0L, 5L)) DIV 5L"),), ("bigint",)),
        (((S,),), ("string collate UTF8_LCASE",)),
    ],
)
def test_what_no_kernel_computes_comes_as_a_hash(key, types):
    table = replace(PLAIN, key=key, key_types=types, hashed=None)
    assert key_columns(table) == (key_column(table.name),)
    columns = {key_column(table.name): pa.array([5, None, -7], pa.int64())}
    keys, has_key = keys_of(table, columns, pa.array([1, 2, 3], pa.int64()))
    assert (keys.tolist(), has_key.tolist()) == ([5, 0, -7], [True, False, True])


def test_event_times_are_hashed_where_there_is_no_key():
    table = build_network([StandingQuery(1, "q", parse_query("SELECT at FROM a", STREAMS))], STREAMS).tables[0]
    times = event_time(pa.array([1, 2, None], pa.int64()))
    keys, has_key = keys_of(table, {}, times)
    assert has_key.all()
    assert len(set(keys.tolist())) == 3
