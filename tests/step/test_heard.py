"""What is heard of streams: those of which no task had a row are silent."""

from penstock.step.heard import _silent
from penstock.step.report import Report


def test_a_stream_is_silent_if_no_task_had_a_row_of_it():
    reports = [Report(0), Report(1)]
    reports[1].stream("a").rows = 2
    reports[0].stream("b").rows = 0
    assert _silent(["a", "b", "c"], reports) == ["b", "c"]
    assert _silent(["a"], []) == ["a"]
