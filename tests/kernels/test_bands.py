"""Bands and inequalities on any column: few composites, the reference's results, errors independent of lookup order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import walk
from penstock.kernels.scan import pairs_by_time
from penstock.model import Column, Query, Stream
from penstock.reference import Raised, Row, evaluate, results
from penstock.reference.join import combinations, one_stream_a_role
from tests.driven import driven
from tests.effort import examples
from tests.oracle import bag
from tests.routes import any_routes
from tests.workloads import Workload

COLUMNS = {"at": "bigint", "v": "bigint", "w": "bigint", "x": "double", "s": "string"}
VALUES: dict[str, tuple[object, ...]] = {
    "v": (0, 1, 2, 3, None, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 2**61),
    "w": (0, 1, -1, 2**63 - 1),
    "x": (0.0, 0.1, 0.5, 1.0, 1.5, None, float("nan"), float("inf"), float("-inf"), 1e308),
    "s": ("", "a", "B", "é", None),
}
STREAMS = {
    name: Stream(name, tuple(Column(c, t) for c, t in COLUMNS.items()), "at", delay=1000) for name in ("a", "b", "c")
}
PAIRS = (
    "{0}.v BETWEEN {1}.v - {n} AND {1}.v + {n}",
    "{0}.v - {1}.v BETWEEN -{n} AND {n}",
    "{0}.v + {n} >= {1}.v",
    "{n} - {0}.v < {1}.v + 1",
    "{0}.v + {0}.w <= {1}.v",
    "{0}.v <= {1}.w",
    "{0}.v - {1}.w = {1}.v",
    "{0}.x BETWEEN {1}.x - 0.4 AND {1}.x + 0.4",
    "{0}.x - {1}.x >= -0.4",
    "NOT {0}.v + {n} < {1}.v",
    "{0}.s <= {1}.s",
    "({0}.v + 1 > {1}.v OR {0}.w < {1}.w)",
)
TRIPLES = ("{0}.v BETWEEN {1}.v - {n} AND {2}.v + {n}", "{0}.v + {1}.v < {2}.v", "{0}.x + {1}.x <= {2}.x")


@st.composite
def banded(draw: st.DrawFn) -> Workload:
    """Two queries with bands, inequalities and sums over three streams, often near the ends of 64 bits."""

    def where() -> str:
        parts = [
            draw(st.sampled_from(PAIRS)).format(*draw(st.permutations(pair)), n=draw(st.integers(0, 2)))
            for pair in ("ab", "bc", *draw(st.sampled_from(((), ("ab",), ("ac",)))))
        ]
        parts += [t.format(*draw(st.permutations("abc")), n=1) for t in TRIPLES if draw(st.integers(0, 3)) == 0]
        return " AND ".join(draw(st.permutations(parts)))

    texts = [
        f"SELECT a.at, b.at, c.at FROM a [RANGE {length}], b [RANGE {length}], c [RANGE {length}] WHERE {where()}"
        for length in (10, 7)[: draw(st.integers(1, 2))]
    ]
    row = st.fixed_dictionaries(
        {"at": st.integers(0, 12), **{name: st.sampled_from(values) for name, values in VALUES.items()}}
    )
    batches = [{name: draw(st.lists(row, max_size=4)) for name in STREAMS} for _ in range(2)]
    return Workload(STREAMS, tuple(texts), tuple(batches))


def errors(query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]) -> int:
    """Combinations of which some condition raises and all others are TRUE."""
    found = 0
    for members in combinations(*one_stream_a_role(replace(query, residuals=()), streams, rows)):
        outcome = Counter(_outcome(residual, members) for residual in query.residuals)
        found += outcome["raised"] > 0 and outcome["raised"] + outcome["true"] == len(query.residuals)
    return found


def _outcome(residual, members) -> str:
    try:
        return "true" if evaluate(residual.term, lambda ref: members[ref.role][ref.column]) is True else "false"
    except Raised:
        return "raised"


@contextmanager
def searching(always: bool) -> Iterator[None]:
    """With `always`, rows are looked for by value even where fewer are in reach by time."""
    if always:
        walk.pairs_by_time = lambda times, rows, reach: 1 << 60
    try:
        yield
    finally:
        walk.pairs_by_time = pairs_by_time


@settings(max_examples=examples(200), deadline=None)
@given(banded(), st.integers(0, 10**6), st.integers(1, 2), st.booleans())
def test_results_and_errors_are_those_of_the_reference_by_any_route(
    work: Workload, seed: int, tasks: int, always: bool
) -> None:
    with searching(always):
        done = driven(work, tasks=tasks, routes=any_routes(seed), merge_every=seed % 2)
    for number, query in enumerate(work.parsed):
        assert bag(done.answer(number)) == bag(results(query, work.streams, work.accepted)), query.sql
        assert done.counted(number).errors == errors(query, work.streams, work.accepted), query.sql


def composites(where: str, kind: str, values: Mapping[str, Sequence[int]]) -> tuple[int, list[tuple[object, ...]]]:
    """Composites that a 3-way join makes of these values, all within one window, and its results."""
    streams = {n: Stream(n, (Column("at", "bigint"), Column("v", kind)), "at", delay=1000) for n in "abc"}
    number = float if kind == "double" else int
    batch = {n: [{"at": i, "v": number(v)} for i, v in enumerate(values[n])] for n in "abc"}
    text = f"SELECT a.at, b.at, c.at FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000] WHERE {where}"
    done = driven(Workload(streams, (text,), (batch,)))
    made = sum(n for step in done.steps for (_, _, bits), n in step.flows.items() if bits.bit_count() > 1)
    made += sum(step.compared for step in done.steps)
    whole = sum(n for step in done.steps for (_, _, bits), n in step.flows.items() if bits == 0b111)
    assert whole >= len(done.answer(0))
    return made, done.answer(0)


BANDS = {
    "between": "a.v BETWEEN b.v - 1 AND b.v + 1 AND b.v BETWEEN c.v - 1 AND c.v + 1",
    "difference": "a.v - b.v BETWEEN -1 AND 1 AND c.v - b.v BETWEEN -1 AND 1",
    "moved": "a.v + 1 >= b.v AND a.v - 1 <= b.v AND 1 + b.v >= c.v AND b.v <= c.v + 1",
}


@pytest.mark.parametrize("kind", ["bigint", "double"])
@pytest.mark.parametrize("bands", BANDS)
def test_a_chain_of_bands_makes_few_composites(kind, bands):
    """By time alone each of 180 rows meets 180, and each pair 180 more: 5.8 million."""
    values = {name: [1000 * i + 10 * shift for i in range(180)] for shift, name in enumerate("abc")}
    for name in "bc":
        values[name][::5] = values["a"][::5]
    made, found = composites(BANDS[bands], kind, values)
    assert made < 2000
    assert len(found) == 36
    assert bag(found) == bag((5 * i, 5 * i, 5 * i) for i in range(36))


def test_a_value_that_overflows_meets_all_rows_and_the_others_only_their_own():
    """The band of the one row at the end of 64 bits raises on all partners: each of these pairs is an error."""
    values = {name: [1000 * i for i in range(50)] for name in "abc"}
    values["b"][7] = -(2**63)
    streams = {n: Stream(n, (Column("at", "bigint"), Column("v", "bigint")), "at", delay=1000) for n in "abc"}
    batch = {n: [{"at": i, "v": v} for i, v in enumerate(values[n])] for n in "abc"}
    text = "SELECT a.at FROM a [RANGE 1000], b [RANGE 1000] WHERE a.v BETWEEN b.v - 1 AND b.v + 1"
    done = driven(Workload(streams, (text,), (batch,)))
    assert len(done.answer(0)) == 49
    assert done.counted(0).errors == 50
    assert done.steps[0].compared == 49 + 50


def test_a_band_of_time_is_searched_from_the_position_it_is_tied_to():
    """c is near b and d near c, while a is anywhere in a long window: from a too, c is looked up near its b only."""
    streams = {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=1000) for n in "abcd"}
    batch = {n: [{"at": 10 * i, "k": i % 50} for i in range(100)] for n in "abcd"}
    text = (
        "SELECT a.at, b.at, c.at, d.at FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000], d [RANGE 1000] "
        "WHERE a.k = b.k AND c.at BETWEEN b.at - 1 AND b.at + 1 AND d.at BETWEEN c.at - 1 AND c.at + 1"
    )
    work = Workload(streams, (text,), ({"b": batch["b"], "c": batch["c"], "d": batch["d"]}, {"a": batch["a"]}))
    done = driven(work)
    assert bag(done.answer(0)) == bag(
        (10 * i, 10 * j, 10 * j, 10 * j) for i in range(100) for j in (i % 50, i % 50 + 50)
    )
    # Each of 100 rows meets 2, each of these pairs one c, and each of these one d.
    assert done.steps[1].table("a(k)").candidates == 3 * 200
