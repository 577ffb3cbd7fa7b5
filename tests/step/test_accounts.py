"""What reports add up to; here: queries that have more results than a step may have."""

import pytest

from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from penstock.state.result_files import ResultFile
from penstock.state.suspension import Suspension
from penstock.step.accounts import bounded, refused_by
from penstock.step.bound import Bound
from penstock.step.report import Report
from tests.step.scene import STREAMS
from tests.step.test_plan import JOIN

NAMES = ("wide", "other", "wide")  # the third is a part of the first
NETWORK = build_network(
    [StandingQuery(n, name, parse_query(JOIN, STREAMS)) for n, name in enumerate(NAMES, 1)], STREAMS
)


def report(partition, *files):
    """A task's files: (rows, bytes, results by query)."""
    found = Report(partition)
    for rows, size, counts in files:
        found.results.append(ResultFile("f", "j", 0, 0, rows, size, 0, 0, tuple(counts.items())))
    return found


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ([(10, 100, {1: 10, 2: 10})], set()),
        ([(11, 100, {1: 10, 2: 11})], {2}),
        ([(10, 100, {1: 6, 3: 5})], {1, 3}),  # its parts together
        ([(5, 100, {1: 6000})], set()),  # a row may stand for many results
        ([(10, 1001, {2: 10})], {2}),
        ([(10, 2002, {1: 5, 2: 4})], {1, 3}),  # by its share of the bytes: 1,001 and 800
        ([(10, 1000, {1: 5}), (10, 1020, {1: 1, 3: 4})], {1, 3}),
        ([(10, 0, {2: 6}), (10, 0, {2: 5})], {2}),
    ],
)
def test_queries_with_more_rows_or_bytes_than_the_bound_over_all_tasks_are_refused(files, refused):
    reports = [report(number, file) for number, file in enumerate(files)]
    bounded(NETWORK, reports, Bound(rows=10, bytes=1000))
    assert refused_by(reports).keys() == refused


def test_a_part_that_a_task_refused_takes_the_others_with_it():
    reports = [report(0), report(1)]
    reports[1].refused[3] = Suspension("too large")
    bounded(NETWORK, reports, Bound())
    assert refused_by(reports) == dict.fromkeys((1, 3), Suspension("too large"))
