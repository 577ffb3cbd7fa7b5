"""Parcels contain for each table what a row-by-row rule says, and each row once per task, for any rows and tables."""

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.parcels import PROBING, SEEN, STORED, pack, unite, unpack
from penstock.model import Column, Stream
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.counters import QueryCounters, StreamCounters
from penstock.planner.network import StandingQuery
from penstock.reference.evaluate import holds
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.step import mapper as module
from penstock.step.keys import keys_of
from penstock.step.mapper import Asked, Mapper, brought, truth_words
from penstock.storage.local import LocalStore
from tests.effort import examples

COLUMNS = {"at": "bigint", "k": "bigint", "n": "int", "s": "string", "d": "double", "v": "bigint", "wide": "string"}
ARROW = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64()}
STREAMS = {
    name: Stream(name, tuple(Column(c, t) for c, t in COLUMNS.items()), "at", 0, late="drop", bad="drop")
    for name in "ab"
}
QUERIES = (
    "SELECT x.v, y.wide FROM a [RANGE 9] x, b [RANGE 9] y WHERE x.k = y.k AND x.v > 1",
    "SELECT x.wide FROM a [RANGE 3] x, b [RANGE 9] y WHERE x.n = y.k AND x.s = y.s AND x.v IN (0, 2)",
    "SELECT x.v FROM a [RANGE 3] x, b [RANGE 9] y WHERE x.d = y.n AND y.v IS NULL",
    "SELECT x.v FROM a [RANGE 3] x, b [RANGE 3] y WHERE x.v < y.v AND x.n >= 1",
    "SELECT v, wide FROM a WHERE n = 1 AND s = 'p'",
    "SELECT s, count(*) AS c FROM a [RANGE 4 SLIDE 2] WHERE v < 2 GROUP BY s",
    "SELECT k, s, sum(v) AS c FROM a [RANGE 4 SLIDE 2] GROUP BY k, s",
    "SELECT sum(v) AS c FROM b [RANGE 4 SLIDE 2]",
    "SELECT x.v FROM a [ROWS 2] x, b [RANGE 3] y WHERE x.k = y.k AND x.v = 1",
)
WHOLE = st.none() | st.integers(0, 3) | st.sampled_from((-(2**31), 2**31 - 1))
ROW = st.fixed_dictionaries({
    "at": st.none() | st.integers(0, 9), "k": WHOLE, "n": WHOLE, "s": st.sampled_from((None, "", "p", "q")),
    "d": st.sampled_from((None, 0.0, -0.0, 1.0, float("nan"))), "v": WHOLE, "wide": st.sampled_from((None, "w" * 9)),
})  # fmt: skip


@st.composite
def networks(draw):
    texts = draw(st.lists(st.sampled_from(QUERIES), min_size=1, max_size=6))
    standing = [StandingQuery(n + 1, f"q{n}", parse_query(text, STREAMS)) for n, text in enumerate(texts)]
    network = build_network(standing, STREAMS)
    replicated = draw(st.sets(st.sampled_from([t.index for t in network.tables if not t.grouped] or [0])))
    return network, frozenset(replicated)


def batch(rows, tags):
    """Rows as Spark brings them: the columns of all streams share slots, which are called otherwise."""
    found = {"_stream": pa.array(tags, pa.int32()), "_ts": pa.array([r["at"] for r in rows], pa.int64())}
    found |= {f"c{n}": pa.array([r[c] for r in rows], ARROW[t]) for n, (c, t) in enumerate(COLUMNS.items())}
    found["_number"] = pa.array(range(len(rows)))
    return pa.RecordBatch.from_pydict(found)


SLOTS = {c: f"c{n}" for n, c in enumerate(COLUMNS)} | {"number": "_number"}
NAMES = dict.fromkeys(STREAMS, SLOTS)


def mapper_of(network, asked, only=None):
    return Mapper(network, NAMES, {}, asked, only)


def expected(network, rows, tags, progress, tasks, replicated):
    """(task, table, mark) -> the numbers of the rows, by looking at each row alone."""
    found = {}
    queries = {q.id: q.query for q in network.queries}
    for number, (row, tag) in enumerate(zip(rows, tags, strict=True)):
        stream = STREAMS["ab"[tag]]
        if row["at"] is None or row["at"] < progress.get(stream.name, NEVER):
            continue
        single = {c: pa.array([row[c]], ARROW[t]) for c, t in COLUMNS.items()}
        for table in network.tables_of(stream.name):
            (key,), (has_key,) = keys_of(table, single, single["at"])
            wanted = any(
                entry.counting or (
                    (has_key or table.timed or table.stateless)
                    and all(
                        holds(p, lambda ref, row=row: row[ref.column])
                        for p in queries[entry.query].predicates
                        if p.roles == (entry.role,)
                    )
                )
                for entry in table.entries
            )  # fmt: skip
            if not wanted:
                continue
            owner = next(
                n
                for n, (low, high) in enumerate(BucketMap.even(tasks).ranges)
                if low <= key and (high is None or key < high)
            )
            for mark in (STORED, PROBING):
                found.setdefault((owner, table.name, mark), set()).add(number)
            for task in range(tasks) if table.index in replicated else ():
                found.setdefault((task, table.name, SEEN), set()).add(number)
    return found


def sent(network, mapper, batches):
    """What the parcels bring to each task, after a journey as bytes; no row comes twice."""
    by_task = {}
    for one in batches:
        for task, rows in mapper.take(one):
            by_task.setdefault(task, []).extend(unpack(body) for body in pack(rows))
    found = {}
    for task, pieces in by_task.items():
        for stream, rows in unite(pieces).items():
            numbers = rows.columns["number"].to_pylist()
            assert len(numbers) == len(set(numbers))
            for number, table in enumerate(network.tables_of(stream)):
                for mark in (STORED, PROBING, SEEN):
                    own = rows.marked(number, mark)
                    if len(own):
                        found[task, table.name, mark] = {numbers[i] for i in own}
    return found


@pytest.fixture(autouse=True)
def numbered(monkeypatch):
    """Rows keep their number on the way, as a column that every table needs."""
    sent_columns = module._sent

    def with_number(tables, columns, keys, places):
        columns_sent, users = sent_columns(tables, columns, keys, places)
        return {**columns_sent, "number": columns["number"]}, users

    monkeypatch.setattr(module, "_sent", with_number)


@settings(max_examples=examples(60))
@given(
    networks(),
    st.lists(st.tuples(ROW, st.integers(0, 1)), max_size=24),
    st.integers(1, 5),
    st.integers(0, 4),
    st.data(),
)
def test_parcels_bring_each_table_its_rows_and_no_row_twice_to_a_task(planned, drawn, tasks, progress, data):
    network, replicated = planned
    rows, tags = [row for row, _ in drawn], [tag for _, tag in drawn]
    asked = Asked(3, BucketMap.even(tasks), LocalStore("/nowhere"), {"a": progress}, replicated)
    whole = batch(rows, tags)
    cut = data.draw(st.integers(0, len(rows)))
    batches = [whole.slice(0, cut), whole.slice(cut)]
    mapper = mapper_of(network, asked)
    wanted = expected(network, rows, tags, {"a": progress}, tasks, replicated)
    assert sent(network, mapper, batches) == wanted
    # One for each task together brings the same.
    alone = {}
    for task in range(tasks):
        alone |= sent(network, mapper_of(network, asked, task), batches)
    assert alone == wanted
    account = mapper.told()
    for tag, name in enumerate("ab"):
        times = [row["at"] for row, own in drawn if own == tag]
        bound = progress if name == "a" else NEVER
        judged = {
            "rows": len(times), "bad": times.count(None), "late": sum(t is not None and t < bound for t in times),
            "accepted": sum(t is not None and t >= bound for t in times),
        }  # fmt: skip
        assert account.counters.stream(name) == StreamCounters(**judged)
        newest = max((t for t in times if t is not None), default=NEVER)
        assert max((part.newest for part in account.saw.get(name, ())), default=NEVER) == newest
        for table in network.tables_of(name) if judged["accepted"] else ():
            kept = sum(len(own) for (_, other, mark), own in wanted.items() if (other, mark) == (table.name, STORED))
            assert account.counters.table(table.name).unwanted == judged["accepted"] - kept


def shipped(texts, rows):
    """(rows, bytes) that go to two tasks for these queries."""
    queries = [StandingQuery(n + 1, f"q{n}", parse_query(t, STREAMS)) for n, t in enumerate(texts)]
    network = build_network(queries, STREAMS)
    asked = Asked(0, BucketMap.even(2), LocalStore("/nowhere"), MappingProxyType({}))
    counts = Counter()
    for _, own in mapper_of(network, asked).take(batch(rows, [0] * len(rows))):
        counts["rows"] += len(own.masks)
        counts["bytes"] += sum(body.size for body in pack(own))
    return counts


def test_rows_and_bytes_shipped_do_not_grow_with_the_number_of_queries():
    rows = [{"at": n, "k": n % 7, "n": n, "s": "s", "d": 0.0, "v": n % 5, "wide": "w" * 40} for n in range(400)]
    one = "SELECT x.v FROM a [RANGE {}] x, b [RANGE 9] y WHERE x.k = y.k AND x.v > {}"
    few = shipped([one.format(9, -1)], rows)
    many = shipped([one.format(n, n % 5 - 1) for n in range(1, 100)], rows)
    assert many == few
    assert few["rows"] == len(rows)
    # A row that serves no query goes nowhere, and a text goes only with rows of tables that need it.
    assert shipped([one.format(9, 3)], rows)["rows"] == len(rows) / 5
    wide = shipped([one.format(9, -1), "SELECT wide FROM a WHERE v = 4"], rows)
    assert wide["bytes"] - few["bytes"] < 40 * len(rows) / 2


def test_a_stream_without_queries_is_counted_and_sent_to_nobody():
    streams = {**STREAMS, "c": replace(STREAMS["a"], name="c")}
    network = build_network([StandingQuery(1, "q", parse_query(QUERIES[4], STREAMS))], streams)
    mapper = Mapper(network, {**NAMES, "c": SLOTS}, {}, Asked(0, BucketMap.even(2), LocalStore("/nowhere"), {}))
    row = {"at": 1, "k": 1, "n": 1, "s": "p", "d": 0.0, "v": 1, "wide": ""}
    assert list(mapper.take(batch([row], [2]))) == []
    assert mapper.told().counters.streams == {"c": StreamCounters(rows=1, accepted=1)}


def computed_by(*texts, keys=()):
    """The network of queries, of which the last has keys of these types, and a mapper."""
    types = [()] * (len(texts) - 1) + [keys]
    queries = [
        StandingQuery(n + 1, f"q{n}", parse_query(text, STREAMS), key_types=kinds)
        for n, (text, kinds) in enumerate(zip(texts, types, strict=True))
    ]
    network = build_network(queries, STREAMS)
    return network, Mapper(
        network, NAMES, truth_words(network), Asked(0, BucketMap.even(3), LocalStore("/nowhere"), {})
    )


@given(st.lists(ROW, max_size=24))
def test_predicates_that_may_raise_are_computed_here_and_counted_where_they_did(rows):
    network, mapper = computed_by("SELECT v FROM a WHERE 10 / v > 4 AND s LIKE 'p%' AND k IS NOT NULL")
    guarded = [r for r in rows if r["at"] is not None and (r["s"] or "").startswith("p") and r["k"] is not None]
    kept = {n for n, r in enumerate(rows) if r in guarded and r["v"] and 10 / r["v"] > 4}
    found = sent(network, mapper, [batch(rows, [0] * len(rows))])
    assert set().union(*found.values()) == kept
    # Only what is FALSE guards: NULL AND an error is an error.
    unguarded = [r for r in rows if r["at"] is not None and r["k"] is not None and (r["s"] is None or r in guarded)]
    errors = sum(r["v"] == 0 for r in unguarded)
    assert mapper.told().counters.queries == ({1: QueryCounters(errors=errors)} if errors else {})


@given(st.lists(st.tuples(ROW, st.integers(0, 1)), max_size=24))
def test_keys_that_are_computed_bring_equal_rows_together_and_rows_without_one_nowhere(drawn):
    network, mapper = computed_by(
        "SELECT x.v FROM a [RANGE 9] x, b [RANGE 9] y WHERE x.k + 1 = y.k AND upper(x.s) = y.s",
        keys=(("bigint", "bigint"), ("string", "string")),
    )
    rows, tags = [row for row, _ in drawn], [tag for _, tag in drawn]
    tasks = {}
    for (task, _, _), numbers in sent(network, mapper, [batch(rows, tags)]).items():
        tasks |= dict.fromkeys(numbers, task)
    keys = {}
    for n, (row, tag) in enumerate(drawn):
        key = (
            None
            if None in (row["k"], row["s"])
            else (row["k"] + 1, row["s"].upper())
            if tag == 0
            else (row["k"], row["s"])
        )
        assert (n in tasks) == (row["at"] is not None and key is not None)
        if n in tasks:
            assert keys.setdefault(key, tasks[n]) == tasks[n]


def test_rows_bring_what_terms_are_computed_of_and_spark_computes_the_rest():
    network, _ = computed_by(
        "SELECT v FROM a WHERE length(s) > 1",
        "SELECT v FROM a WHERE levenshtein(wide, 'w') > 1",
        "SELECT x.v FROM a [RANGE 9] x, b [RANGE 9] y WHERE x.n + 1 = y.k",
        keys=(("int", "bigint"),),
    )
    apart = {d.name for d in network.derived if d.term is None}
    assert [d.parts[0] for d in network.derived if d.term is None] == ["LEVENSHTEIN("]
    assert brought(network, STREAMS["a"]) == {"v", "s", "n"} | (apart & brought(network, STREAMS["a"]))
    assert all(t.hashed is not None for t in network.tables)
