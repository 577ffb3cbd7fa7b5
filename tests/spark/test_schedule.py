"""When a run asks the clock about silent streams: without Spark, on a run that is not started."""

from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from penstock.spark import batches as batches_module
from penstock.spark.batches import SparkBatches
from penstock.spark.schedule import Schedule
from penstock.step import loop as loop_module
from penstock.step.inbox import Inbox
from penstock.step.loop import Loop

NOW = 1_000.0
CLOCK = Mock(time=lambda: NOW, monotonic=lambda: NOW)


def ticked(*, unread=False, trigger=5.0, pace=None, active=0.0):
    """A run whose clock has just ticked; its stepper has noted what it was asked."""
    batches = object.__new__(SparkBatches)
    batches.schedule = Schedule("1 second", latency=1.0)
    batches.schedule.trigger_seconds, batches.schedule.pace = trigger, pace
    batches.throttle = SimpleNamespace(held=frozenset(), admit=lambda: None)
    batches.query, batches._marks = object(), Mock()
    core = Mock(delivery=SimpleNamespace(owed=False))
    core.stepper = Mock(last_active=active, manifest=SimpleNamespace(progress={"a": 7}))
    core.stepper.layout.order = ("a",)
    core.stepper.idle_progress.return_value = {"a": 8}
    loop = Loop(core, batches, Mock(), Inbox())
    with patch.object(loop_module, "time", CLOCK), patch.multiple(batches_module, time=CLOCK, unread=lambda _: unread):
        loop._tick()
    return core.stepper


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
