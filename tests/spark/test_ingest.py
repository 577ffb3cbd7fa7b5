"""Each table gets its rows of any source through Spark, at the task of their key; rejected rows have a reason.

The rule for each row is written out here, over plain Python values; equal keys are those that Spark's `=` makes equal.
"""

import datetime as dt
import json
import math
import reprlib
from collections import Counter
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st

from penstock.columns.parcels import STORED, unite
from penstock.model import Column, Stream
from penstock.model.time import LATEST, NEVER
from penstock.planner.build import build_network
from penstock.planner.counters import StreamCounters
from penstock.planner.network import StandingQuery
from penstock.planner.routes import Routes
from penstock.spark.ingest import unify
from penstock.spark.job import make_job
from penstock.spark.punctuation import marked
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.step.layout import lay_out
from penstock.step.receive import Receiver
from penstock.step.task import Report, Task
from penstock.storage.local import LocalStore
from tests.effort import ALL

pytestmark = pytest.mark.spark

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
D, T, NAN = dt.date, dt.datetime, float("nan")
# The first values are common, so that keys meet.
VALUES = {
    "tinyint": (0, 1, None, -128, 127),
    "smallint": (0, 1, None, -(2**15), 2**15 - 1),
    "int": (0, 1, None, -(2**31), 2**31 - 1),
    "bigint": (0, 1, None, -(2**63), 2**63 - 1),
    "float": (0.0, -0.0, None, NAN, 1.5, math.inf),
    "double": (0.0, -0.0, None, NAN, 1.5, -math.inf, 2.0**53),
    "decimal(10,2)": (Decimal("0.00"), Decimal("1.00"), None, Decimal("-99999999.99")),
    "decimal(38,18)": (Decimal(0), Decimal("1.000000000000000000"), None, Decimal("-" + "9" * 20 + "." + "9" * 18)),
    "string": ("", "a", None, "A", "é", "\U0001f600", "a\x00b"),
    "binary": (b"", b"a", None, b"\x00\xff"),
    "boolean": (True, False, None),
    "date": (D(1970, 1, 1), D(2024, 2, 29), None, D(1, 1, 1), D(9999, 12, 31)),
    "timestamp": (T(1970, 1, 1, tzinfo=dt.UTC), None, T(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)),
    "timestamp_ntz": (T(1970, 1, 1), None, T(1583, 1, 1, 0, 0, 0, 1)),
    "array<int>": ([], [1, None], None, [1] * 50),
    "struct<x:int,y:string>": ({"x": 1, "y": "a"}, None, {"x": None, "y": None}),
    "map<string,int>": ([], [("a", 1), ("b", None)], None),
}  # fmt: skip
ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "decimal(10,2)": pa.decimal128(10, 2), "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"), "array<int>": pa.list_(pa.int32()),
    "struct<x:int,y:string>": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
}  # fmt: skip
KEY_TYPES = [t for t in VALUES if "<" not in t]
LATE_BEFORE = 4


class Case(NamedTuple):
    """Streams `a` and `b` with the same columns: each with rows of its own, or both over the rows of `a`."""

    types: tuple[str, ...]  # of the columns c0, c1, ..; c0 is the key
    keys: int  # how many columns are the key
    policy: str
    kind: str  # '', 'punctuated' or 'sequenced'
    rows: dict[str, list[tuple[object, ...]]]  # (at, mark or place, *values)
    partitions: int
    tasks: int
    few: bool

    def __repr__(self):
        return reprlib.repr(tuple(self))

    @property
    def columns(self):
        return (
            Column("at", "bigint"), Column("no", "bigint"), Column("m", "bigint"),
            *(Column(f"c{n}", t) for n, t in enumerate(self.types)),
        )  # fmt: skip

    @property
    def streams(self):
        options = {
            "punctuated": {"punctuation": "m", "delay": None},
            "sequenced": {"sequence": "m", "delay_rows": 2, "delay": None},
        }
        given = {"delay": 0, **options.get(self.kind, {})}
        return {n: Stream(n, self.columns, "at", late=self.policy, bad=self.policy, **given) for n in "ab"}

    @property
    def queries(self):
        key = [f"c{n}" for n in range(self.keys)]
        every = ", ".join(f"x.c{n} AS c{n}" for n in range(len(self.types)))
        pairs = " AND ".join(f"x.{c} = y.{c}" for c in key)
        return (
            f"SELECT x.no, {every} FROM a [RANGE 5] x, b [RANGE 5] y WHERE {pairs} AND y.no >= 0",
            f"SELECT no, {key[-1]} FROM b WHERE no <> 1",
            (
                f"SELECT {', '.join(key)}, count(*) AS n, min(no) AS least FROM a [RANGE 4 SLIDE 2] "
                f"GROUP BY {', '.join(key)}"
            ),
        )


@st.composite
def cases(draw):
    keys = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2))
    types = (*keys, *draw(st.lists(st.sampled_from(list(VALUES)), max_size=4)))
    kind = draw(st.sampled_from(("", "", "punctuated", "sequenced")))
    times = st.sampled_from((5, 6, 7, 9, 3, None, LATEST + 1))
    marks = st.sampled_from((None, None, 8)) if kind == "punctuated" else st.sampled_from((1, 2, 3, None))
    row = st.tuples(times, marks, *(st.sampled_from(VALUES[t]) for t in types))
    rows = {
        n: draw(st.lists(row, max_size=draw(st.sampled_from((0, 3, 20))))) for n in draw(st.sampled_from(("a", "ab")))
    }
    return Case(
        types, len(keys), draw(st.sampled_from(("side", "drop"))), kind, rows,
        draw(st.sampled_from((1, 3, 200))), draw(st.integers(1, 5)), draw(st.booleans()),
    )  # fmt: skip


HUGE = Case(
    ("string", "string"),
    1,
    "side",
    "",
    {"ab"[n]: [(t, None, "k", "x" * (5 << 20)) for t in (5, 3)] for n in (0, 1)},
    1,
    3,
    False,
)
WIDE = Case(
    ("bigint", *(list(VALUES) * 118)[:2000]), 1, "side", "",
    {"a": [(t, None, n, *[VALUES[k][n] for k in (list(VALUES) * 118)[:2000]]) for n, t in enumerate((5, 3))]}, 1, 2,
    False,
)  # fmt: skip


def table_of(case, rows):
    """The rows as Arrow, numbered as they stand."""
    columns = list(zip(*((at, n, mark, *values) for n, (at, mark, *values) in enumerate(rows)), strict=True))
    return pa.table(
        [pa.array(columns[n] if rows else [], ARROW[c.type]) for n, c in enumerate(case.columns)],
        [c.name for c in case.columns],
    )


def frames(spark, case, folder):
    """By stream the DataFrame that brings its rows; it is one for both if `b` has none of its own."""
    schema = ", ".join(f"{c.name} {c.type}" for c in case.columns)
    found = {}
    for name, rows in case.rows.items():
        path = Path(folder) / f"{name}.parquet"
        pq.write_table(table_of(case, rows), path)
        frame = spark.read.schema(schema).parquet(str(path))
        found[name] = marked(case.streams[name], frame.repartition(case.partitions) if case.partitions > 1 else frame)
    return {"b": found["a"], **found}


def dump(batches):
    """Each batch that reaches a task, as bytes, with the number of the task."""
    from pyspark import TaskContext

    for batch in batches:
        with (sink := pa.BufferOutputStream()), pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays(
            [pa.array([TaskContext.get().partitionId()], pa.int32()), body], ["task", "body"]
        )


def received(spark, case, folder):
    """The network, the rows of each stream at each task, and what all tasks together report."""
    parsed = [StandingQuery(n, f"q{n}", parse_query(q, case.streams)) for n, q in enumerate(case.queries, 1)]
    network = build_network(parsed, case.streams)
    job = make_job(spark, network, lay_out(list(case.streams.values())))
    store = LocalStore(str(folder), durable=False)
    task = Task(1, BucketMap.even(case.tasks), store, dict.fromkeys("ab", LATE_BEFORE), {}, Routes(()))
    rows = unify(frames(spark, case, folder), case.streams, job.layout)
    sent, task = job.sent(spark, rows, (), task, 0 if case.few else None)
    batches = {n: [] for n in range(case.tasks)}
    for number, body in sent.mapInArrow(dump, "task int, body binary").collect():
        batches[number] += pa.ipc.open_stream(bytes(body)).read_all().to_batches()
    found, reports = {}, {}
    for number, own in batches.items():
        reports[number] = Report(number)
        for stream, rows in unite(Receiver(job.plan.value, task, reports[number]).rows(iter(own))).items():
            found[number, stream] = rows
    return network, found, list(reports.values())


def verdict(case, at, mark):
    """What becomes of a row, and why."""
    if case.kind == "punctuated" and mark is not None:
        return "punctuations", ""
    if at is None or at > LATEST:
        return "bad", "event time is NULL or unreadable" if at is None else "event time out of range"
    if case.kind == "sequenced" and mark is None:
        return "bad", "sequence is NULL"
    return ("late", "late") if at < LATE_BEFORE else ("accepted", "")


def same(value):
    """The same for values that Spark's `=` makes equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@settings(max_examples=500 if ALL else 30, phases=PHASES)
@given(cases())
@example(HUGE)
@example(WIDE)
def test_each_table_gets_its_own_rows_whole_at_the_task_of_their_key(spark, case):
    with TemporaryDirectory() as folder:
        network, found, reports = received(spark, case, folder)
        tasks_of = {}
        for name in "ab":
            rows = case.rows.get(name, case.rows["a"])
            verdicts = [verdict(case, at, mark) for at, mark, *_ in rows]
            accepted = {n for n, (what, _) in enumerate(verdicts) if what == "accepted"}
            event("some accepted" if accepted else "none accepted")
            assert_counts(case, name, reports, rows, verdicts)
            put_aside = [(n, why) for n, (what, why) in enumerate(verdicts) if what in ("late", "bad")]
            assert Counter(sides(folder, name, reports)) == Counter(put_aside if case.policy == "side" else [])
            arrived = {task: own for (task, stream), own in found.items() if stream == name}
            for own in arrived.values():
                numbers = own.columns["no"].to_pylist()
                assert len(numbers) == len(set(numbers)), "a row came twice to a task"
            whole = table_of(case, rows)
            for number, table in enumerate(network.tables_of(name)):
                keys = {n: tuple(same(v) for v in rows[n][2 : 2 + case.keys]) for n in accepted}
                wanted = accepted - {1} if table.stateless else accepted
                if not table.stateless and not table.grouped:
                    wanted = {n for n in accepted if None not in keys[n]}
                stored = set()
                for task, own in arrived.items():
                    index = own.marked(number, STORED)
                    numbers = own.columns["no"].take(pa.array(index)).to_pylist()
                    assert stored.isdisjoint(numbers)
                    stored |= set(numbers)
                    for column in set(table.needed) & set(whole.column_names) if numbers else ():
                        expected = whole.column(column).take(pa.array(numbers, pa.int64()))
                        assert repr(own.columns[column].take(pa.array(index)).to_pylist()) == repr(expected.to_pylist())
                    for n in () if table.stateless else numbers:
                        assert tasks_of.setdefault((table.grouped, keys[n]), task) == task, "equal keys at two tasks"
                assert stored == wanted


def assert_counts(case, name, reports, rows, verdicts):
    kinds = Counter(what for what, _ in verdicts)
    counted = StreamCounters()
    for report in reports:
        counted.add(report.counters.stream(name))
    if rows:
        wanted = {k: kinds[k] for k in ("accepted", "late", "bad", "punctuations")}
        assert counted == StreamCounters(rows=len(rows), **wanted)
    seen = [part for report in reports for part in report.saw.get(name, ())]
    timed = [row[0] for row, (what, _) in zip(rows, verdicts, strict=True) if what in ("accepted", "late")]
    assert max((part.newest for part in seen if part.newest > NEVER), default=None) == max(timed, default=None)
    said = {tuple(pair) for part in seen for pair in part.said}
    assert {bound for _, bound in said} == ({8} if kinds["punctuations"] else set())


def sides(folder, name, reports):
    """The numbers of the rows that were put aside, and why."""
    for report in reports:
        for side in report.sides:
            if side.stream == name:
                table = pq.read_table(Path(folder) / side.name)
                for row, why in zip(table["_row"].to_pylist(), table["_reason"].to_pylist(), strict=True):
                    yield json.loads(row)["no"], why
