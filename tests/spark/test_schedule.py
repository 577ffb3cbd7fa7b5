"""When a run asks the clock about silent streams: without Spark, on a run that is not started."""

from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from penstock import run as run_module
from penstock.run import Run
from penstock.spark.schedule import Schedule

NOW = 1_000.0


def ticked(*, unread=False, trigger=5.0, pace=None, active=0.0):
    """A run whose clock has just ticked; its stepper has noted what it was asked."""
    run = object.__new__(Run)
    run.schedule = Schedule("1 second", latency=1.0)
    run.schedule.trigger_seconds, run.schedule.pace = trigger, pace
    run.throttle = SimpleNamespace(held=frozenset())
    run.delivery = SimpleNamespace(owed=False)
    run.spark_query = object()
    run.stepper = Mock(last_active=active, manifest=SimpleNamespace(progress={"a": 7}))
    run.stepper.layout.order = ("a",)
    run.stepper.idle_progress.return_value = {"a": 8}
    clock = Mock(time=lambda: NOW, monotonic=lambda: NOW)
    with patch.multiple(run_module, time=clock, unread=lambda _: unread):
        run._tick()
    return run.stepper


@pytest.mark.parametrize(
    ("options", "looked"),
    [
        ({"trigger": 5.0}, NOW - 5.0),  # what came in the last five seconds may lie there unread
        ({"trigger": 0.0}, NOW),
        ({"pace": SimpleNamespace(interval=2.5)}, NOW - 2.5),  # the pace says when Spark looks, not the trigger
        ({"pace": SimpleNamespace(interval=None)}, NOW),  # and no pace is known before the first steps
    ],
)
def test_a_stream_is_silent_up_to_the_last_time_that_spark_has_looked(options, looked):
    stepper = ticked(**options)
    stepper.idle_progress.assert_called_once_with({"a": 7}, ("a",), looked)
    stepper.tick.assert_called_once_with({"a": 8})


def test_the_clock_moves_no_stream_while_something_is_unread():
    stepper = ticked(unread=True)
    stepper.idle_progress.assert_not_called()
    stepper.tick.assert_called_once_with(None)


def test_nothing_ticks_right_after_a_step():
    stepper = ticked(active=NOW)
    stepper.tick.assert_not_called()
