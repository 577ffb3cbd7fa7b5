"""Reports of mappers and of earlier stages become part of a task's report, and nothing of them is lost."""

from msgspec.structs import replace

from penstock.planner.counters import Counters, EngineCounters
from penstock.state.bucket_counters import BucketCounters
from penstock.state.flushed import Flushed
from penstock.state.progress import Seen
from penstock.state.result_files import ResultFile
from penstock.state.side_files import SideFile
from penstock.state.suspension import Suspension
from penstock.step.report import Report, summed
from tests.state.runs import entry_of

FLUSHED = Flushed(0, None, 5, 1)
REPORT = Report(
    1, Counters(EngineCounters(steps=1)), [entry_of("r", rows=1)],
    [ResultFile("f", "j", 0, 0, 2, 9, 0, 0, ((1, 2),))], [SideFile("s", "a", "late", 0, 1, 1)], {"a": [Seen()]},
    {"agg": FLUSHED}, errors={"a": "row"}, refused={1: Suspension("why")}, unreadable={"b": "why"},
    phases={"probe": 1.0}, mapping={"read": 2.0}, buckets=[BucketCounters()], cpu=[3.0],
)  # fmt: skip
REPORT.lead(1, 3, [10], [2])


def test_a_report_takes_in_all_of_another_one():
    whole = Report(1)
    whole.absorb(REPORT)
    assert whole == REPORT
    assert Report.decode(whole.encode()) == REPORT
    assert {len(Report(10**n).encode()) % 8 for n in range(9)} == {0}  # what follows it starts at whole words
    assert all(getattr(whole, name) for name in whole.__struct_fields__)


def test_what_both_have_is_added_up_and_the_first_example_of_an_error_stays():
    whole = Report.decode(REPORT.encode())
    whole.absorb(replace(REPORT, errors={"a": "another row"}))
    assert (whole.runs, whole.sides, whole.results) == (2 * REPORT.runs, 2 * REPORT.sides, 2 * REPORT.results)
    assert whole.saw == {"a": [Seen(), Seen()]}
    assert (whole.phases, whole.mapping) == ({"probe": 2.0}, {"read": 4.0})
    assert whole.errors == {"a": "row"}
    assert whole.counters == summed([REPORT, REPORT])


def test_results_and_what_is_sent_are_counted_as_they_are_added():
    report = Report()
    report.count_sent(rows=3, size=8)
    report.count_sent(rows=4)
    assert (report.counters.engine.sent_rows, report.counters.engine.sent_bytes) == (7, 8)
    file = replace(REPORT.results[0], counts=((1, 2), (2, 5)))
    report.add_file(file)
    report.add_file(file, apart={2})
    assert {query: own.results for query, own in report.counters.queries.items()} == {1: 4, 2: 5}
    assert report.results == [file, file]
