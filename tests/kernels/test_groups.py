"""State that single keys no longer need: exactly what the reference lets go."""

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns.hash import hash_bigint
from penstock.kernels.groups import alive_by_key, closed_keys
from penstock.model import Column, Punctuation, Ref, Stream
from penstock.model.punctuation import punctuation_of
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.reference import reachable
from penstock.sql import parse_query
from penstock.state.manifest import Progress
from penstock.state.run import Rows

COLUMNS = (
    Column("ts", "bigint"),
    Column("k", "bigint"),
    Column("v", "bigint"),
    Column("i", "int"),
    Column("s", "string"),
)
PATTERNS = (*COLUMNS, Column("s_from", "string"), Column("s_to", "string"))
STREAMS = {name: Stream(name, COLUMNS, "ts", 0, patterns=PATTERNS) for name in "abc"}
ONE_KEY = (
    "SELECT a.v, b.v AS w FROM a [RANGE 4], b [RANGE 7] WHERE a.k = b.k",
    "SELECT a.v, b.v AS w, c.v AS x FROM a [RANGE 9], b [RANGE 3], c [RANGE 5] WHERE a.k = b.k AND b.k = c.k",
)
# Keys of other types, of several columns, and of a column and a piece of time; all values of a row follow from its k.
OTHER_KEYS = (
    "SELECT a.v, b.v AS w FROM a [RANGE 4], b [RANGE 7] WHERE a.s = b.s",
    "SELECT a.v, b.v AS w FROM a [RANGE 4], b [RANGE 7] WHERE a.i = b.i",
    "SELECT a.v, b.v AS w FROM a [RANGE 4], b [RANGE 7] WHERE a.i = b.k",
    (
        "SELECT a.v, b.v AS w, c.v AS x FROM a [RANGE 9], b [RANGE 3], c [RANGE 5] "
        "WHERE a.i = b.k AND b.k = c.k AND a.s = b.s AND b.s = c.s"
    ),
    "SELECT a.v, b.v AS w FROM a [TUMBLING 6], b [TUMBLING 6] WHERE a.s = b.s",
)
TWO_KEYS = "SELECT a.v, b.v AS w, c.v AS x FROM a [RANGE 9], b [RANGE 3], c [RANGE 5] WHERE a.k = b.k AND b.v = c.v"


def network_of(*texts):
    queries = [parse_query(text, STREAMS) for text in texts]
    return queries, build_network([StandingQuery(n + 1, f"q{n}", q) for n, q in enumerate(queries)], STREAMS)


def progress_of(values, closed):
    return {
        n: Progress(v, v, closed=tuple((f'{{"k":{k}}}', u) for k, u in closed.get(n, {}).items()))
        for n, v in values.items()
    }


def stored(table, rows):
    """All rows with all roles, sorted as a run is."""
    keys = hash_bigint(np.array([r["k"] for r in rows], dtype=np.int64))
    times = np.array([r["ts"] for r in rows], dtype=np.int64)
    order = np.lexsort((times, keys))
    everybody = (tuple(entry.id for entry in table.entries),)
    values = {}
    for part, name in zip(table.key, table.verify, strict=False):
        column = next(ref.column for ref in part if isinstance(ref, Ref))
        own = [rows[i].get(column) for i in order]  # of a piece of time any value will do: none refers to it
        values[name] = pa.array(own, pa.string() if column == "s" else pa.int64())
    return order, Rows(keys[order], times[order], np.zeros(len(rows), dtype=np.int32), everybody, values)


@given(
    st.lists(st.sampled_from(ONE_KEY), min_size=1, max_size=2, unique=True),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=12),
    st.fixed_dictionaries({name: st.integers(0, 25) for name in "abc"}),
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 3), st.integers(0, 30), max_size=3)),
)
def test_rows_of_a_closed_key_stay_as_long_as_in_the_reference(texts, pairs, values, closed):
    queries, network = network_of(*texts)
    rows = [{"ts": ts, "k": k, "v": 0} for ts, k in pairs]
    # As the engine does, remember only what is ahead of the whole stream.
    ahead = {n: {k: u for k, u in own.items() if u > values[n]} for n, own in closed.items()}
    said = {n: [Punctuation(u, (("k", k),)) for k, u in own.items()] for n, own in ahead.items()}
    keys = closed_keys(network, progress_of(values, ahead))
    for table in network.tables:
        if table.stateless:
            continue
        wanted = reachable(queries, STREAMS, {table.stream: rows}, values, said)[table.stream]
        order, held = stored(table, rows)
        keep = alive_by_key(table, held, values, keys.get(table.index, ()))
        assert {id(rows[i]) for i in order[keep]} == {id(row) for row in wanted}


@st.composite
def said_of_keys(draw):
    """A punctuation by any columns."""
    k = draw(st.integers(0, 3))
    fields = draw(st.sampled_from((("s",), ("i",), ("k",), ("i", "s"), ("k", "s"), ("v", "s"))))
    own = {"k": k, "i": k, "s": f"x{k}", "v": 0}
    said = {name: own[name] for name in fields}
    if draw(st.integers(0, 4)) == 0:
        said = {"s_from": f"x{k}", "s_to": f"x{k + draw(st.integers(1, 2))}"}
    return json.dumps(said), draw(st.integers(0, 30))


@given(
    st.sampled_from(OTHER_KEYS),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=12),
    st.fixed_dictionaries({name: st.integers(0, 25) for name in "abc"}),
    st.dictionaries(st.sampled_from("abc"), st.lists(said_of_keys(), max_size=3, unique_by=lambda one: one[0])),
)
def test_keys_of_any_type_and_of_several_columns_close(text, pairs, values, closed):
    (query,), network = network_of(text)
    rows = [{"ts": ts, "k": k, "v": 0, "i": k, "s": f"x{k}"} for ts, k in pairs]
    progress = {
        n: Progress(v, v, closed=tuple((pattern, u) for pattern, u in closed.get(n, ()) if u > v))
        for n, v in values.items()
    }
    said = {
        n: [punctuation_of(STREAMS[n], until, json.loads(pattern)) for pattern, until in own.closed]
        for n, own in progress.items()
    }
    keys = closed_keys(network, progress)
    for table in network.tables:
        if table.stateless:
            continue
        wanted = reachable([query], STREAMS, {table.stream: rows}, values, said)[table.stream]
        order, held = stored(table, rows)
        keep = alive_by_key(table, held, values, keys.get(table.index, ()))
        assert {id(rows[i]) for i in order[keep]} == {id(row) for row in wanted}


def test_a_key_of_one_class_says_nothing_about_a_join_with_two():
    _, network = network_of(TWO_KEYS)
    assert closed_keys(network, progress_of({"a": 0, "b": 0, "c": 0}, {"a": {1: 9}, "b": {1: 9}, "c": {1: 9}})) == {}


def test_a_pattern_that_fixes_more_than_the_key_purges_nothing():
    _, network = network_of(ONE_KEY[0])
    values = {"a": 0, "b": 0}
    progress = {n: Progress(v, v, closed=(('{"k":1,"v":2}', 9),)) for n, v in values.items()}
    assert closed_keys(network, progress) == {}
    progress = {n: Progress(v, v, closed=(('{"k":1}', 9),)) for n, v in values.items()}
    assert len(closed_keys(network, progress)) == 2


def test_a_range_over_the_key_purges_nothing():
    _, network = network_of(ONE_KEY[0])
    assert closed_keys(network, {"a": Progress(0, 0, closed=(('{"k_from":1}', 9),))}) == {}
