"""What the reports of tasks add up to."""

from __future__ import annotations

from dataclasses import replace as replace_fields

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.results.layout import OWN
from penstock.sql import parse_query
from penstock.state.flushed import Flushed
from penstock.state.manifest import Entry, Manifest
from penstock.state.result_files import ResultFile
from penstock.state.side_files import SideFile
from penstock.state.suspension import Suspension
from penstock.step.accounts import bounded, counters_of, flushed_by, refused_by, results_of, suspended_by, with_dropped
from penstock.step.bound import Bound
from penstock.step.report import Report
from tests.effort import examples
from tests.state.runs import entry_of

STREAMS = {"a": Stream("a", (Column("at", "bigint"), Column("v", "bigint")), "at", 0)}
NAMES = ("q", "q", "r", "s")  # the first two are parts of one query
NETWORK = build_network(
    [StandingQuery(n, name, parse_query("SELECT v FROM a", STREAMS)) for n, name in enumerate(NAMES)], STREAMS
)
FILE = st.tuples(
    st.integers(1, 9), st.integers(1, 90), st.dictionaries(st.integers(0, 3), st.integers(1, 9), min_size=1)
)


def _decoded(report: Report) -> Report:
    return Report.decode(report.encode())


def _file(
    counts: list[tuple[int, int]], rows: int, size: int = 9, name: str = "results-1", kind: str = "join"
) -> ResultFile:
    return ResultFile(name, "j", 1, 1, rows, size, 0, 0, tuple(counts), kind)


def _kept(ends: list[int], rows: list[int]) -> Report:
    report = Report(0)
    report.add_file(_file([(7, sum(rows))], sum(rows)), apart={7})
    report.lead(7, 3, ends, rows)
    return report


def test_of_each_window_only_its_first_rows_are_results_whoever_has_kept_them() -> None:
    reports = [_kept([10, 20], [3, 1]), _kept([10, 30], [2, 3]), _kept([20], [1])]

    totals = counters_of([_decoded(report) for report in reports])

    assert totals.query(7).results == 3 + 2 + 3  # of [.., 10) five were kept, of [.., 20) two, of [.., 30) three


def test_results_of_a_query_that_could_not_be_answered_are_not_counted() -> None:
    given, refused = Report(0), Report(1)
    given.add_file(_file([(7, 5), (8, 2)], 7))
    refused.refused[7] = Suspension("too many")

    totals = counters_of([_decoded(given), _decoded(refused)])

    assert totals.query(7).results == 0
    assert totals.query(8).results == 2


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
            report.add_file(_file(list(queries.items()), count, length, f"{number}-{place}", kind))
            for query, results in queries.items():
                stored[query] += min(results, count)
                written[query] += length * min(results, count) // count
        report.refused.update(dict.fromkeys(refused, Suspension("why")))
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
    assert suspended_by(NETWORK, reports, ()).keys() == expected
    for file in results_of(reports):
        assert not {query for query, _ in file.counts} & expected
        assert file.without == tuple(sorted(expected))
        assert file.counts or file.kind != OWN
    assert not any(counters_of(reports).query(query).results for query in expected)


def test_only_queries_that_stop_at_errors_are_suspended_by_one_with_all_their_parts() -> None:
    standing = [StandingQuery(q.id, q.name, q.query, "stop" if q.id else "skip") for q in NETWORK.queries]
    network = build_network(standing, STREAMS)
    report = Report(0)
    report.query(1).errors = 2
    assert suspended_by(network, [report, Report(1)], ()).keys() == {0, 1}
    assert suspended_by(network, [report], {0}).keys() == {1}
    report.query(1).errors = 0
    report.query(0).errors = 3
    assert not suspended_by(network, [report], ())


def test_rows_are_dropped_that_were_in_old_files_and_are_in_no_merged_one() -> None:
    old, new = [entry_of("x", table="t", rows=9)], [entry_of("y", table="t", rows=4), entry_of("z", table="t", rows=5)]
    sides = [SideFile(f"s{n}", "a", "late", 0, rows, 1, 0.0) for n, rows in enumerate((7, 2, 3))]
    before = Manifest().apply(Entry(step=0, runs_added=tuple(old), sides=tuple(sides[:2])))
    merged = replace(new[0], level=1)
    entry = Entry(step=1, runs_added=(merged, new[1]), runs_removed=("x",), sides=(sides[2],), sides_removed=("s0",))
    counts = with_dropped(entry, before)
    assert (counts.table("t").dropped, counts.stream("a").expired) == (9 - 4, 7 - 3)
    assert not with_dropped(replace_fields(entry, sides_removed=()), before).stream("a").expired


def test_how_far_tasks_are_is_known_by_aggregate() -> None:
    first, second = Flushed(0, 9), Flushed(9, None)
    reports = [Report(0, flushed={"x": first}), Report(1, flushed={"x": second, "y": second})]
    assert flushed_by(reports) == {"x": (first, second), "y": (second,)}
