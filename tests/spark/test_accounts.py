"""What the reports of tasks add up to."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.results.layout import OWN
from penstock.sql import parse_query
from penstock.step.accounts import bounded, counters_of, refused_by, results_of, suspended_by
from penstock.step.bound import Bound
from penstock.step.task import Report
from tests.effort import examples

STREAMS = {"a": Stream("a", (Column("at", "bigint"), Column("v", "bigint")), "at", 0)}
NAMES = ("q", "q", "r", "s")  # the first two are parts of one query
NETWORK = build_network(
    [StandingQuery(n, name, parse_query("SELECT v FROM a", STREAMS)) for n, name in enumerate(NAMES)], STREAMS
)
FILE = st.tuples(
    st.integers(1, 9), st.integers(1, 90), st.dictionaries(st.integers(0, 3), st.integers(1, 9), min_size=1)
)


def _decoded(report: Report) -> dict[str, object]:
    found: dict[str, object] = json.loads(report.encode())
    return found


def _kept(ends: list[int], rows: list[int]) -> Report:
    report = Report(0)
    report.add_results([(7, sum(rows))], names={7: ""}, name="results-1", rows=sum(rows))
    report.lead(7, 3, ends, rows)
    return report


def test_of_each_window_only_its_first_rows_are_results_whoever_has_kept_them() -> None:
    reports = [_kept([10, 20], [3, 1]), _kept([10, 30], [2, 3]), _kept([20], [1])]

    totals = counters_of([_decoded(report) for report in reports])

    assert totals["query:7"]["results"] == 3 + 2 + 3  # of [.., 10) five were kept, of [.., 20) two, of [.., 30) three


def test_results_of_a_query_that_could_not_be_answered_are_not_counted() -> None:
    given, refused = Report(0), Report(1)
    given.add_results([(7, 5), (8, 2)], name="results-1", rows=7)
    refused.refused["7"] = "too many"

    totals = counters_of([_decoded(given), _decoded(refused)])

    assert "results" not in totals["query:7"]
    assert totals["query:8"]["results"] == 2


@settings(max_examples=examples(200))
@given(
    tasks=st.lists(st.tuples(st.lists(FILE, max_size=3), st.sets(st.integers(0, 3))), min_size=1, max_size=3),
    rows=st.integers(1, 30), size=st.integers(1, 200),
)  # fmt: skip
def test_what_all_tasks_and_parts_found_together_is_bounded_and_given_up_together(tasks, rows, size) -> None:
    stored, written, told = [0] * 4, [0] * 4, set()
    reports = []
    for number, (files, refused) in enumerate(tasks):
        report = Report(number)
        for place, (count, length, queries) in enumerate(files):
            kind = OWN if len(queries) == 1 else "join"
            facts = {"join": "j", "step": 1, "version": 1, "min_time": 0, "max_time": 0, "kind": kind}
            report.add_results(list(queries.items()), name=f"{number}-{place}", rows=count, bytes=length, **facts)
            for query, results in queries.items():
                stored[query] += min(results, count)
                written[query] += length * min(results, count) // count
        report.refused |= dict.fromkeys(map(str, refused), "why")
        told |= refused
        reports.append(_decoded(report))
    bounded(NETWORK, reports, Bound(rows, size))
    expected = {
        query
        for query in range(4)
        for parts in [[p for p in range(4) if NAMES[p] == NAMES[query]]]
        if told & set(parts) or sum(stored[p] for p in parts) > rows or sum(written[p] for p in parts) > size
    }
    assert refused_by(reports).keys() == expected
    assert {int(query) for query in suspended_by(NETWORK, reports, {})} == expected
    for file in results_of(reports):
        assert not {query for query, _ in file.counts} & expected
        assert file.without == tuple(sorted(expected))
        assert file.counts or file.kind != OWN
    assert not any("results" in counters_of(reports).get(f"query:{query}", {}) for query in expected)
