"""What the links of a chain are counted to do, against all rows and ages one by one."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.links import Links, count_probes, count_results
from penstock.kernels.probe import to_words
from penstock.model import Column, Stream
from tests.driven import driven
from tests.effort import examples
from tests.workloads import Workload

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
windows = st.integers(1, 30)


@st.composite
def loads(draw, count):
    """Queries as (windows, least value of the first stream), and rows of `count` streams in some steps."""
    names = "abc"[:count]
    queries = draw(st.lists(st.tuples(st.tuples(*[windows] * count), st.integers(0, 3)), min_size=2, max_size=5))
    row = st.fixed_dictionaries({"at": st.integers(0, 60), "k": st.integers(0, 1), "v": st.integers(0, 3)})
    batch = st.fixed_dictionaries({name: st.lists(row, max_size=5) for name in names})
    batches = draw(st.lists(batch, min_size=1, max_size=4))
    streams = {name: Stream(name, COLUMNS, "at", delay=1000) for name in names}
    texts = []
    for lengths, least in queries:
        roles = ", ".join(f"{n} [RANGE {w}]" for n, w in zip(names, lengths, strict=True))
        equal = " AND ".join(f"{x}.k = {y}.k" for x, y in pairwise(names))
        texts.append(f"SELECT a.at FROM {roles} WHERE {equal} AND a.v >= {least}")
    return names, queries, Workload(streams, tuple(texts), tuple(batches))


def arrived(load, name):
    return [row for batch in load.batches for row in batch[name]]


def counted(found, kind):
    """What was counted of each table's links in all steps, by stream and ends of the link; and the chains."""
    total, chains = Counter(), {}
    for table in found.network.tables:
        chains[table.stream] = list(pairwise((0, *table.chain))) if len(table.chain) > 1 else []
        for step in found.steps:
            for begin, ends in getattr(step.table(table.name), kind).items():
                total.update({(table.stream, begin, end): count for end, count in ends.items()})
    return +total, chains


ways = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 3),
        "merge_every": st.integers(0, 2),
        "cuts": st.one_of(st.just(()), st.tuples(st.integers(0, 31))),
    }
)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(2, 3).flatmap(loads), ways)
def test_a_result_counts_in_the_link_of_the_age_that_its_row_had(case, way):
    names, queries, load = case
    found, chains = counted(driven(load, **way), "results")
    expected = Counter()
    for rows in product(*(arrived(load, name) for name in names)):
        newest = max(row["at"] for row in rows)
        ages = [newest - row["at"] for row in rows]
        wanted = any(
            rows[0]["v"] >= least and all(age < w for age, w in zip(ages, lengths, strict=True))
            for lengths, least in queries
        )
        if wanted and len({row["k"] for row in rows}) == 1:
            expected.update(
                (name, begin, end)
                for name, age in zip(names, ages, strict=True)
                for begin, end in chains[name]
                if begin <= age < end
            )
    assert found == expected


@settings(max_examples=examples(60), deadline=None)
@given(loads(2), ways)
def test_a_row_probes_the_links_with_ages_that_one_of_its_queries_wants(case, way):
    _, queries, load = case
    found, chains = counted(driven(load, **way), "probes")
    expected = Counter()
    for start, probed in ((0, 1), (1, 0)):
        for row in arrived(load, "ab"[start]):
            own = [lengths[probed] for lengths, least in queries if start == 1 or row["v"] >= least]
            for begin, end in chains["ab"[probed]]:
                expected["ab"[probed], begin, end] += any(age < w for w in own for age in range(begin, end))
    assert found == +expected


def test_a_table_with_one_link_counts_nothing():
    streams = {name: Stream(name, COLUMNS, "at", delay=0) for name in "ab"}
    text = "SELECT a.at FROM a [RANGE 9], b [RANGE 9] WHERE a.k = b.k"
    rows = [{"at": 1, "k": 1, "v": 1}]
    found = driven(Workload(streams, (text,), ({"a": rows, "b": rows},)))
    assert found.answer(0) == [(1,)]
    tables = found.steps[0].record.counters.tables.values()
    assert tables
    assert not any(counts.probes or counts.results for counts in tables)


@given(st.data(), st.integers(1, 130), st.integers(2, 9))
def test_any_number_of_queries_and_links(data, queries, links):
    lives = data.draw(st.lists(st.integers(1, links), min_size=queries, max_size=queries))
    served = data.draw(st.lists(st.integers(1, 2**queries - 1), max_size=8))
    words = (queries + 63) // 64
    masks = [sum(1 << q for q, life in enumerate(lives) if k == 0 or life > k) for k in range(links)]
    names = tuple(f"link {k}" for k in range(links))
    array = [
        np.array([to_words(m, words) for m in some], dtype=np.uint64).reshape(-1, words) for some in (masks, served)
    ]
    own = Links(3, 0, np.arange(1, links + 1), array[0], names)
    counts = Counter()
    count_probes(own, array[1], counts)
    reached = Counter((3, names[k]) for mask in served for k in range(links) if mask & masks[k])
    assert counts == reached


@pytest.mark.parametrize(("age", "link"), [(0, "first"), (9, "first"), (10, "second"), (99, "second")])
def test_a_link_ends_before_its_cut(age, link):
    links = Links(0, 0, np.array([10, 100]), np.ones((2, 1), dtype=np.uint64), ("first", "second"))
    counts = Counter()
    count_results(links, np.array([age]), counts)
    assert counts == {(0, link): 1}
