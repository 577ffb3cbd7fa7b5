"""What the reports of tasks add up to."""

from __future__ import annotations

import json

from penstock.runtime.steps.accounts import counters_of
from penstock.runtime.tasks.task import Report


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
