"""The queue of a run: events in order, and nobody waits for ever."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.errors import StateError
from penstock.step import inbox as inbox_module
from penstock.step.happened import BatchArrived, ChangeAsked, StopAsked
from penstock.step.inbox import Inbox, Stopping


def change():
    return ChangeAsked(lambda: None)


@pytest.fixture
def inbox():
    return Inbox()


def test_events_come_in_order_and_none_is_nothing(inbox):
    events = [change(), StopAsked(), BatchArrived(None, 0)]
    for event in events:
        inbox.put(event)
    assert [inbox.take(0.0) for _ in range(4)] == [*events, None]


def test_a_taken_event_wakes_who_takes(inbox):
    event = change()
    threading.Timer(0.05, inbox.put, [event]).start()
    began = time.monotonic()
    assert inbox.take(10.0) is event
    assert time.monotonic() - began < 5.0


def test_batches_that_wait_and_those_that_come_are_refused_and_others_stay(inbox):
    first, asked, later, accepted = BatchArrived(None, 0), change(), BatchArrived(None, 0), BatchArrived(None, 0)
    inbox.put(first)
    inbox.put(asked)
    inbox.refuse_batches()
    inbox.put(later)
    for batch in (first, later):
        with pytest.raises(Stopping):
            inbox.outcome(batch.outcome)
    inbox.accept_batches()
    inbox.put(accepted)
    assert [inbox.take(0.0) for _ in range(3)] == [asked, accepted, None]


def test_a_closed_inbox_answers_who_waits_and_who_comes(inbox):
    asked, batch = change(), BatchArrived(None, 0)
    inbox.put(asked)
    inbox.put(batch)
    inbox.put(StopAsked())
    inbox.close("it has ended")
    later, late_batch = change(), BatchArrived(None, 1)
    for event in (later, late_batch, StopAsked()):
        inbox.put(event)
    for event in (asked, later):
        with pytest.raises(StateError, match="it has ended"):
            inbox.outcome(event.outcome)
    for event in (batch, late_batch):
        with pytest.raises(Stopping):
            inbox.outcome(event.outcome)
    assert inbox.take(0.0) is None


def test_who_is_interrupted_takes_an_event_back_that_nobody_has_taken(inbox, monkeypatch):
    event, taken = change(), change()

    def interrupt(*_):
        raise KeyboardInterrupt

    inbox.put(event)
    inbox.put(taken)
    with monkeypatch.context() as patched:
        patched.setattr(inbox, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            inbox.outcome(event.outcome)
        assert inbox.take(0.0) is taken
        with pytest.raises(KeyboardInterrupt):
            inbox.outcome(taken.outcome)
    assert taken.outcome.running()  # it happens all the same


@pytest.mark.parametrize("put_first", [True, False])
def test_nobody_waits_for_a_thread_that_has_died(inbox, monkeypatch, put_first):
    monkeypatch.setattr(inbox_module, "PATIENCE", 0.01)
    event = BatchArrived(None, 0)
    if put_first:
        inbox.put(event)
    inbox.taker = threading.Thread(target=lambda: None)
    inbox.taker.start()
    inbox.taker.join()
    inbox.put(event)
    with pytest.raises(StateError, match="the thread of the run has died"):
        inbox.outcome(event.outcome)


def test_a_pause_ends_when_batches_are_refused(inbox):
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        paused = pool.submit(inbox.pause, 20.0)
        inbox.refuse_batches()
        paused.result(10.0)
        inbox.accept_batches()
        paused = pool.submit(inbox.pause, 20.0)
        inbox.close("it has ended")
        paused.result(10.0)
    assert time.monotonic() - began < 10.0


def test_waiting_has_a_limit(inbox):
    event = change()
    began = time.monotonic()
    assert not inbox.wait(event.outcome, 0.05)
    assert 0.04 < time.monotonic() - began < 5.0
    event.outcome.set_result(None)
    assert inbox.wait(event.outcome, 0.0)
