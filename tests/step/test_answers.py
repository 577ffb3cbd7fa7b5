"""Mappers' own answers are each row's answer to each query alone, for any batches and numbers of mappers."""

from collections import Counter
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.reference.evaluate import holds
from penstock.results.layout import OWN
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.step.bound import Bound
from penstock.step.mapper import Asked, Mapper
from penstock.storage.local import LocalStore
from tests.effort import examples

COLUMNS = {"at": "bigint", "k": "bigint", "n": "int", "s": "string", "v": "bigint"}
ARROW = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "boolean": pa.bool_()}
STREAM = Stream("a", tuple(Column(c, t) for c, t in COLUMNS.items()), "at", 0, late="drop", bad="drop")
MOST = 2**63 - 1


def plus_one(row):
    return None if row["v"] is None or row["v"] == MOST else row["v"] + 1


# text -> (its types, what a row is to it)
QUERIES = {
    "SELECT s, v, at FROM a": (("string", "bigint", "bigint"), lambda r: (r["s"], r["v"], r["at"])),
    "SELECT n, result_time AS t FROM a WHERE v > 1": (("int", "bigint"), lambda r: (r["n"], r["at"])),
    "SELECT v + 1 AS w FROM a WHERE n >= 1": (("bigint",), lambda r: (plus_one(r),)),
    "SELECT v IS NULL AS none, k FROM a WHERE k IN (0, 2)": (("boolean", "bigint"), lambda r: (r["v"] is None, r["k"])),
}
RAISING = 2  # the query that raises where v is the largest number
WHOLE = st.none() | st.integers(0, 3)
ROW = st.fixed_dictionaries({
    "at": st.none() | st.integers(0, 9), "k": WHOLE, "n": WHOLE, "s": st.sampled_from((None, "", "p", "q")),
    "v": WHOLE | st.just(MOST),
})  # fmt: skip


def standing(number, text):
    query = parse_query(text, {"a": STREAM})
    names = [item.name or f"i{n}" for n, item in enumerate(query.items)]
    return StandingQuery(number + 1, f"q{number}", query, listed=tuple(zip(names, QUERIES[text][0], strict=True)))


def schemas(queries):
    return {q.id: pa.schema([(name, ARROW[kind]) for name, kind in q.listed]) for q in queries}


def batch(rows):
    found = {"_stream": pa.array([0] * len(rows), pa.int32()), "_ts": pa.array([r["at"] for r in rows], pa.int64())}
    return pa.RecordBatch.from_pydict(found | {c: pa.array([r[c] for r in rows], ARROW[t]) for c, t in COLUMNS.items()})


def mapped(store, queries, batches, only=None, **asked):
    """The account of a mapper that has taken some batches; nothing goes to a task."""
    network = build_network(queries, {"a": STREAM})
    step = Asked(3, BucketMap.even(2), store, **{"progress": MappingProxyType({}), **asked})
    mapper = Mapper(network, {"a": {c: c for c in COLUMNS}}, {}, step, only, schemas(queries))
    for one in batches:
        assert list(mapper.take(one)) == []
    return mapper.told()


def found_in(store, accounts):
    """By query all rows in the files that accounts name; the counts are those of the rows."""
    found = {}
    for account in accounts:
        for file in account.results:
            ((query, count),) = file.counts
            assert file.kind == OWN
            assert file.bytes == store.size(file.name)
            table = pq.read_table(store.path(file.name))
            assert len(table) == count == file.rows
            found.setdefault(query, Counter()).update(tuple(row.values()) for row in table.to_pylist())
    return found


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(ROW, max_size=40), cut=st.integers(0, 40), progress=st.integers(0, 5), data=st.data())
def test_each_row_is_to_each_query_what_it_is_alone(tmp_path_factory, rows, cut, progress, data):
    store = LocalStore(str(tmp_path_factory.mktemp("store")), durable=False)
    texts = data.draw(st.lists(st.sampled_from(list(QUERIES)), min_size=1, max_size=6))
    asleep = data.draw(st.sets(st.integers(1, len(texts))))
    queries = [standing(n, text) for n, text in enumerate(texts)]
    accepted = [r for r in rows if r["at"] is not None and r["at"] >= progress]
    wanted, errors = {}, {}
    for query, text in zip(queries, texts, strict=True):
        own = [r for r in accepted if all(holds(p, lambda ref, r=r: r[ref.column]) for p in query.query.predicates)]
        if own and query.id not in asleep:
            wanted[query.id] = Counter(QUERIES[text][1](row) for row in own)
            if text == list(QUERIES)[RAISING] and (raised := sum(r["v"] == MOST for r in own)):
                errors[query.id] = raised
    batches = [b for b in (batch(rows[:cut]), batch(rows[cut:])) if len(b)]
    asked = {"progress": {"a": progress}, "suspended": frozenset(asleep)}
    together = mapped(store, queries, batches, **asked)
    assert found_in(store, [together]) == wanted
    assert {n: own.errors for n, own in together.counters.queries.items() if own.errors} == errors
    # Mappers that all see all rows share the results out by the rows, in whatever order these come.
    each = [mapped(store, queries, batches[:: 1 - 2 * task], task, **asked) for task in range(2)]
    assert found_in(store, each) == wanted
    counts = [account.counters.query(query).errors for query in errors for account in each]
    assert sum(counts) == sum(errors.values())


def test_types_and_names_are_those_of_the_select_list(tmp_path):
    store, (text, (kinds, _)) = LocalStore(str(tmp_path)), list(QUERIES.items())[1]
    queries = [standing(0, text)]
    account = mapped(store, queries, [batch([{"at": 1, "k": 1, "n": 2, "s": "p", "v": 2}])])
    (file,) = account.results
    schema = pq.read_schema(store.path(file.name))
    assert schema.names == ["n", "t"]
    assert [f.type for f in schema] == [ARROW[kind] for kind in kinds]
    assert all(field.nullable for field in schema)
    assert (file.min_time, file.max_time) == (1, 1)


@pytest.mark.parametrize("bound", [Bound(rows=2), Bound(bytes=1)])
def test_a_query_that_finds_more_than_it_may_is_let_go_and_leaves_nothing(tmp_path, bound, monkeypatch):
    monkeypatch.setattr("penstock.step.rows.ROW_GROUP", 1)
    store = LocalStore(str(tmp_path))
    queries = [standing(n, text) for n, text in enumerate(list(QUERIES)[:2])]
    rows = [{"at": n, "k": 1, "n": n, "s": "p", "v": 2 * (n == 0)} for n in range(3)]
    account = mapped(store, queries, [batch([row]) for row in rows], bound=bound)
    assert account.refused.keys() == {1}
    assert "results of one step are more than" in account.refused[1].reason
    assert found_in(store, [account]) == {2: Counter([(0, 0)])}
    assert store.names("results") == [file.name.removeprefix("results/") for file in account.results]
