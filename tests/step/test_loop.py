"""A run takes one event after another: whatever comes from whichever thread, in whichever order."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError, SessionError, StateError
from penstock.model import Column, Stream
from penstock.step import loop as loop_module
from penstock.step.happened import AdvanceAsked, BatchArrived, ChangeAsked, ResumeAsked
from penstock.step.inbox import Stopping
from penstock.storage.memory import MemoryStore
from penstock.testing.engine import Engine
from penstock.testing.source import HandedOver
from tests.effort import examples
from tests.step.looped import SECONDS, Looped, together, until

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
STREAMS = {name: Stream(name, COLUMNS, "at", 2) for name in "abc"}
ALL = "SELECT v FROM a"
JOIN = "SELECT a.v AS v, b.v AS w FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k"


def row(at, v=0, k=7):
    return {"at": at, "k": k, "v": v}


def engine_of(store=None, source=None, streams="ab", **queries):
    engine = Engine(store or MemoryStore(), source=source)
    for name in streams:
        engine.stream(STREAMS[name])
    for name, query in queries.items():
        sql, into = query if isinstance(query, tuple) else (query, None)
        engine.query(sql, name=name, into=into)
    return engine


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Looks around and ticks come as often as they can."""
    monkeypatch.setattr(loop_module, "LOOK_SECONDS", 0.002)
    monkeypatch.setattr(loop_module, "QUIET_SECONDS", 0.004)


@pytest.fixture
def looped():
    started = []

    def start(engine=None, **options):
        started.append(Looped(engine or engine_of(all=ALL), **options))
        return started[-1].start()

    yield start
    for run in started:
        assert run.loop.inbox.wait(run.loop.ended, SECONDS), "the run has not ended"
        run.batches.stop()


# -- any order --------------------------------------------------------------------------------------------------------


class Asking:
    """What several threads do to a run; each act notes what must be true of the answers."""

    def __init__(self, run):
        self.run, self.engine = run, run.engine
        self.fed, self.until = [], {}

    def feed(self, number):
        self.run.feed(a=[row(100, number)])

    def add(self, number):
        self.engine.query(f"SELECT v FROM a WHERE v >= {number % 3}", name=f"q{number}")

    def add_and_drop(self, number):
        self.add(number)
        self.engine.drop(f"q{number}")
        self.until[f"q{number}"] = self.run.stepper.manifest.step  # no later step has a result of it

    def refused(self, number):
        with pytest.raises(RegistrationError):
            self.engine.query("SELECT v FROM a WHERE v > 99", name="all")

    def request(self, number):
        self.run.requests.ask(f"CREATE QUERY r{number} AS SELECT v FROM a")

    def advance(self, number):
        self.run.advance("b", number)

    def come_and_go(self, number):
        """A stream for which batches start again."""
        name = f"s{number}"
        self.engine.stream(Stream(name, COLUMNS, "at", 2))
        self.engine.execute(f"DROP STREAM {name}")


ACTS = ("feed", "feed", "feed", "add", "add_and_drop", "refused", "request", "advance", "come_and_go")


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.sampled_from(ACTS), min_size=1, max_size=5), min_size=2, max_size=4), st.booleans())
def test_events_of_many_threads_in_any_order_give_each_query_the_rows_of_its_steps(plans, failing):
    came, broken = {}, [failing]

    def sink(table, step):
        if broken:
            broken.clear()
            raise OSError("not now")
        came[step] = sorted(table.column("v").to_pylist())

    with patch.object(loop_module, "LOOK_SECONDS", 0.002), patch.object(loop_module, "QUIET_SECONDS", 0.004), patch(
        "penstock.results.delivery.FIRST_RETRY", 0.0
    ):  # fmt: skip
        run = Looped(engine_of(all=(ALL, sink))).start()
        asking = Asking(run)
        numbers = iter(range(1000))
        plans = [[(act, next(numbers)) for act in plan] for plan in plans]

        def act(plan):
            for name, number in plan:
                getattr(asking, name)(number)

        assert together(*(lambda plan=plan: act(plan) for plan in plans)) == [None] * len(plans)
        numbers = {n for plan in plans for name, n in plan if name == "feed"}
        until(lambda: not run.requests.waiting())
        until(lambda: run.log._upto(run.stepper.manifest.last_batch) >= len(numbers))
        run.stop(final=True)

    assert sorted(v for rows in came.values() for v in rows) == sorted(numbers)  # each once, also after the failure
    catalog, engine = run.engine.catalog, run.engine
    names = {f"q{n}": n % 3 for plan in plans for name, n in plan if name in ("add", "add_and_drop")}
    names |= {f"r{n}": 0 for plan in plans for name, n in plan if name == "request"}
    for name, least in names.items():
        since = catalog.record(name).since
        newest = engine.manifest.step
        first = since - 1 if name in asking.until else newest  # a dropped one ends with some step before it was gone
        expected = [
            sorted(v for step, rows in came.items() if since <= step <= last for v in rows if v >= least)
            for last in range(first, asking.until.get(name, newest) + 1)
        ]
        assert sorted(v for (v,) in engine.results(name)) in expected


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 3), st.integers(0, 4), st.booleans())
def test_a_stop_comes_between_anything_and_the_next_run_goes_on(feeds, changes, final):
    """Whoever asks while the run ends is done with, or told that nothing was changed; rows come once all in all."""
    store, source = MemoryStore(), HandedOver()
    run = Looped(engine_of(store, source, all=ALL)).start()
    engine = run.engine
    acts = [lambda n=n: run.feed(a=[row(100, n)]) for n in range(feeds)]
    acts += [lambda n=n: engine.query(ALL, name=f"q{n}") for n in range(changes)]
    *asked, stopped = together(*acts, lambda: run.loop.stop(final=final))
    assert stopped is None
    done = {f"q{n}" for n, error in enumerate(asked[feeds:]) if error is None}
    told = [error for error in asked[feeds:] if error is not None]
    assert all(isinstance(error, StateError) and "nothing was changed" in str(error) for error in told)
    engine.run = None
    assert {q.name for q in engine.catalog.registry.live()} == {"all"} | done
    if final:
        return
    again = Looped(engine_of(store, source, **dict.fromkeys(["all", *sorted(done)], ALL))).start()
    again.fed(a=[row(200, 99)])
    again.stop()
    assert sorted(v for (v,) in again.engine.results("all")) == [*range(feeds), 99]


# -- the end ----------------------------------------------------------------------------------------------------------


def slow_steps(run, gate):
    """Steps over batches wait for a gate; returns what is set when one has begun."""
    begun, plain = threading.Event(), run.stepper.run_batch

    def run_batch(*batch):
        begun.set()
        assert gate.wait(SECONDS)
        plain(*batch)

    run.stepper.run_batch = run_batch
    return begun


def test_a_stop_during_a_batch_waits_for_its_step_and_what_waits_behind_is_told(looped):
    gate, run = threading.Event(), looped()
    begun = slow_steps(run, gate)
    run.feed(a=[row(1, 1)])
    assert begun.wait(SECONDS)
    stopping = threading.Thread(target=run.loop.stop, kwargs={"final": False})
    stopping.start()
    until(lambda: run.inbox._events)
    late = ChangeAsked(lambda: None)
    run.inbox.put(late)
    assert not run.loop.wait(0.01)
    gate.set()
    stopping.join(SECONDS)
    assert run.loop.wait(0)
    assert run.engine.results("all") == [(1,)]
    assert str(late.outcome.exception(SECONDS)) == "the run on memory: has ended, and nothing was changed"


def test_a_change_during_a_batch_takes_effect_after_its_step(looped):
    gate, run = threading.Event(), looped()
    begun = slow_steps(run, gate)
    run.feed(a=[row(1, 1)])
    assert begun.wait(SECONDS)
    adding = threading.Thread(target=run.engine.query, args=(ALL,), kwargs={"name": "later"})
    adding.start()
    until(lambda: run.inbox._events)
    gate.set()
    adding.join(SECONDS)
    run.fed(a=[row(2, 2)])
    run.stop()
    assert run.engine.results("later") == [(2,)]
    assert sorted(run.engine.results("all")) == [(1,), (2,)]


def test_a_batch_that_waits_while_batches_start_again_comes_again(looped):
    run = looped(engine_of(streams="ab", all=ALL))
    gate, plain = threading.Event(), run.core.change

    def change(*given):
        run.feed(a=[row(1, 1)])
        until(lambda: any(isinstance(event, BatchArrived) for event in run.inbox._events))
        gate.set()
        return plain(*given)

    run.core.change = change
    run.engine.stream(STREAMS["c"])
    assert gate.is_set()
    assert run.batches.starts == 2
    run.fed(a=[row(2, 2)])
    run.stop()
    assert sorted(run.engine.results("all")) == [(1,), (2,)]
    assert (run.loop.restarts.count, run.loop.restarts.columns) == (1, {})


def test_what_is_there_at_the_start_is_read_and_the_run_ends_by_itself():
    run = Looped(engine_of(all=ALL), only_present=True, final=True)
    run.feed(a=[row(1, 1)])
    run.start()
    assert run.loop.wait(SECONDS)
    assert run.engine.manifest.final
    assert run.engine.results("all") == [(1,)]


def test_throttled_streams_are_read_when_all_others_are(looped):
    run = Looped(engine_of(all=ALL), only_present=True)
    run.batches.held = frozenset("b")
    plain = run.batches.start

    def start(layout):
        if run.batches.starts:
            run.batches.held = frozenset()
        plain(layout)

    run.batches.start = start
    run.start()
    assert run.loop.wait(SECONDS)
    assert run.batches.starts == 2


def test_a_later_stop_with_final_is_heard_while_the_run_ends(looped):
    run = looped()
    plain = run.batches.stop

    def stop():
        run.batches.stop = plain
        asked = threading.Thread(target=run.loop.stop, kwargs={"final": True}, daemon=True)
        asked.start()
        until(lambda: run.inbox._events)
        plain()

    run.batches.stop = stop
    run.loop.stop(final=False)
    assert run.engine.manifest.final


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_step_that_fails_ends_the_run_with_its_error_and_the_batch_comes_again(looped):
    source = HandedOver()
    run = looped(engine_of(source=source, all=ALL))
    boom = OSError("no more")
    with patch.object(run.stepper, "run_batch", side_effect=boom):
        run.feed(a=[row(1, 1)])
        with pytest.raises(OSError, match="no more"):
            run.loop.wait(SECONDS)
    assert run.batches.error is boom  # it is raised in the callback, so the source does not go on
    assert run.loop.error is boom
    with pytest.raises(OSError, match="no more"):
        run.loop.stop(final=False)
    run.engine.run = None
    again = looped(engine_of(run.store, source, all=ALL))
    until(lambda: again.stepper.manifest.last_batch == 0)
    again.stop()
    assert again.engine.results("all") == [(1,)]


def test_a_tick_that_fails_ends_the_run(looped):
    run = looped()
    with patch.object(run.stepper, "tick", side_effect=RuntimeError("bug")), pytest.raises(RuntimeError, match="bug"):
        run.loop.wait(SECONDS)


def test_a_run_whose_store_belongs_to_another_ends_although_nothing_happens(looped):
    class Owned(MemoryStore):
        taken = False

        def check_owner(self):
            if self.taken:
                raise StateError("it was taken over")

    store = Owned()
    run = looped(engine_of(store, all=ALL))
    store.taken = True
    with pytest.raises(StateError, match="it was taken over"):
        run.loop.wait(SECONDS)


def test_a_change_that_is_refused_changes_nothing_and_harms_nobody(looped):
    run = looped()
    with pytest.raises(RegistrationError, match="another definition"):
        run.engine.query("SELECT k FROM a", name="all")
    assert run.batches.reverted == 1
    run.fed(a=[row(1, 1)])
    run.engine.query("SELECT k FROM a", name="more")
    assert run.batches.reverted == 1
    ended = patch.object(run.stepper, "resume", side_effect=RegistrationError("it cannot go on"))
    with ended, pytest.raises(RegistrationError, match="it cannot go on"):
        run.loop.ask(ResumeAsked(run.engine.catalog.live("all")))
    run.stop()
    assert run.engine.results("all") == [(1,)]


def broken_by(owner, name):
    return patch.object(owner, name, side_effect=OSError("power cut"))


@pytest.mark.parametrize("broken", ["adopt", "take_over"])
def test_a_change_that_fails_half_way_ends_the_run_and_the_next_has_all_of_it(looped, broken):
    """Not only who asked must know: after the next step its rows could no longer be given to it."""
    source, rows = HandedOver(), {"a": [row(1, 1)], "b": [row(2, 2)]}
    run = looped(engine_of(source=source, wide=JOIN))
    run.fed(**rows)
    with broken_by(run.core if broken == "adopt" else run.stepper, broken):
        with pytest.raises(OSError, match="power cut"):
            run.engine.query(f"{JOIN} AND a.v > 0", name="held", start="state")
        with pytest.raises(OSError, match="power cut"):
            run.loop.wait(SECONDS)
    run.engine.run = None
    again = looped(engine_of(run.store, source, wide=JOIN))
    again.fed(a=[row(3, 3)])
    again.stop()
    assert sorted(again.engine.results("held")) == sorted(again.engine.results("wide")) == [(1, 2), (3, 2)]


def test_batches_that_cannot_start_again_end_the_run_and_the_next_reads_the_new_stream(looped):
    source = HandedOver()
    run = looped(engine_of(source=source, all=ALL))
    with broken_by(run.batches, "start"):
        with pytest.raises(OSError, match="power cut"):
            run.engine.stream(STREAMS["c"])
        with pytest.raises(OSError, match="power cut"):
            run.loop.wait(SECONDS)
    run.engine.run = None
    again = looped(engine_of(run.store, source, streams="abc", all=ALL))
    assert set(again.batches.layout.order) == set("abc")
    again.stop()


def test_a_step_that_fails_before_a_change_ends_the_run_without_the_change(looped):
    run = looped()
    with broken_by(run.stepper, "catch_up"):
        with pytest.raises(OSError, match="power cut"):
            run.engine.query(ALL, name="more")
        with pytest.raises(OSError, match="power cut"):
            run.loop.wait(SECONDS)
    assert [q.name for q in run.engine.catalog.registry.live()] == ["all"]


@pytest.mark.parametrize("event", [AdvanceAsked("a", 1), ResumeAsked(None)])
def test_a_step_that_was_asked_for_and_fails_ends_the_run_for_all(looped, event):
    run = looped()
    event = replace(event, outcome=Future())
    with broken_by(run.core, "advance"), broken_by(run.stepper, "resume"):
        with pytest.raises(OSError, match="power cut"):
            run.loop.ask(event)
        with pytest.raises(OSError, match="power cut"):
            run.loop.wait(SECONDS)


def test_batches_that_have_failed_before_a_stop_are_the_error_of_the_run(looped, monkeypatch):
    monkeypatch.setattr(loop_module, "LOOK_SECONDS", 1000.0)  # nobody looks before the stop
    run = looped()
    run.fed(a=[row(1, 1)])
    with patch.object(run.log.store, "written_elsewhere", side_effect=OSError("the source is broken")):
        run.feed(a=[row(2, 2)])
        until(lambda: run.batches.error)
        with pytest.raises(OSError, match="the source is broken"):
            run.loop.stop(final=False)


def test_a_later_thread_with_the_number_of_that_of_a_run_is_not_taken_for_it(looped):
    number = []
    run = looped(engine_of(all=(ALL, lambda *_: number.append(threading.get_ident()))))
    run.fed(a=[row(1, 1)])
    until(lambda: number)
    run.loop.stop(final=False)
    with patch.object(loop_module, "get_ident", lambda: number[0]), pytest.raises(StateError, match="has ended"):
        run.advance("a", 9)


def test_what_has_stopped_batches_by_itself_ends_the_run(looped):
    run = looped()
    with patch.object(run.log.store, "written_elsewhere", side_effect=OSError("the source is broken")):
        run.feed(a=[row(1, 1)])
        with pytest.raises(OSError, match="the source is broken"):
            run.loop.wait(SECONDS)


def test_if_nothing_can_run_any_more_that_is_the_error(looped):
    run = looped()
    run.batches.dead = "the session is gone"
    with pytest.raises(SessionError, match="the session is gone, after step -1"):
        run.loop.wait(SECONDS)
    run = looped()
    with patch.object(run.stepper, "run_batch", side_effect=OSError("a consequence")) as failing:
        failing.side_effect = lambda *_: (setattr(run.batches, "dead", "the session is gone"), 1 / 0)
        run.feed(a=[row(1, 1)])
        with pytest.raises(SessionError, match="the session is gone") as caught:
            run.loop.wait(SECONDS)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_run_that_does_not_begin_leaves_nobody_waiting():
    run = Looped(engine_of(all=ALL))
    run.feed(a=[row(1, 1)])
    with patch.object(run, "_launch", side_effect=RuntimeError("can't start new thread")), pytest.raises(RuntimeError):
        run.start()
    assert not run.batches.active
    assert isinstance(run.batches.error, Stopping)
    with pytest.raises(StateError, match="did not begin: can't start new thread"):
        run.advance("a", 5)


def test_whatever_fails_at_the_very_end_nobody_waits_for_it(looped):
    run = looped(release=lambda: 1 / 0)
    late = ChangeAsked(lambda: None)
    ending = patch.object(run.core, "end", side_effect=lambda **_: run.inbox.put(late))
    with ending, pytest.raises(ZeroDivisionError):
        run.loop.stop(final=False)
    assert isinstance(late.outcome.exception(SECONDS), StateError)


# -- sinks ------------------------------------------------------------------------------------------------------------


def test_a_sink_cannot_change_what_its_own_step_is_about(looped):
    """It would wait for the end of the step that waits for it."""
    said, run = [], None

    def sink(_table, _step):
        for call in (
            lambda: run.engine.query(ALL, name="more"),
            lambda: run.engine.drop("all"),
            lambda: run.advance("a", 9),
            lambda: run.loop.wait(None),
        ):
            try:
                call()
            except StateError as error:
                said.append(str(error))

    run = looped(engine_of(all=(ALL, sink)))
    run.fed(a=[row(1, 1)])
    until(lambda: len(said) == 4)
    assert all("is in the middle of a step" in text for text in said[:3])
    assert "a sink must not wait" in said[3]
    run.fed(a=[row(2, 2)])
    run.stop()
    assert [q.name for q in run.engine.catalog.registry.live()] == ["all"]


def test_a_sink_can_stop_the_run_and_ask_another_thread_for_changes(looped):
    run, adding = None, []

    def sink(table, _step):
        (number,) = table.column("v").to_pylist()
        if number == 1:
            thread = threading.Thread(target=run.engine.query, args=(ALL,), kwargs={"name": "more"})
            thread.start()
            adding.append(thread)
        else:
            run.loop.stop(final=False)
            adding.append("the sink went on")

    run = looped(engine_of(all=(ALL, sink)))
    run.fed(a=[row(1, 1)])
    until(lambda: adding)
    adding[0].join(SECONDS)
    run.feed(a=[row(2, 2)])
    assert run.loop.wait(SECONDS)
    assert adding[1:] == ["the sink went on"]
    assert run.engine.results("more") == [(2,)]


def test_a_sink_that_fails_delays_only_itself_and_is_tried_again(looped):
    came, tries = [], iter([OSError("full"), OSError("full")])

    def sink(table, step):
        if (error := next(tries, None)) is not None:
            raise error
        came.append((step, table.column("v").to_pylist()))

    with patch("penstock.results.delivery.FIRST_RETRY", 0.0):
        run = looped(engine_of(all=(ALL, sink), other=ALL))
        run.fed(a=[row(1, 1)])
        until(lambda: came)
        run.stop()
    assert came == [(0, [1])]
    assert run.engine.results("other") == [(1,)]


# -- time and requests ------------------------------------------------------------------------------------------------


def test_requests_and_ticks_come_also_while_batches_never_cease(looped):
    run = looped()
    request = run.requests.ask(f"CREATE QUERY more AS {ALL}")
    answered = None
    limit = time.monotonic() + SECONDS
    for number in range(10_000):
        run.fed(a=[row(number, number)])
        answered = answered or run.requests.wait(request, 0)
        if answered:
            break
        assert time.monotonic() < limit
    assert answered.text.startswith("query 'more' is answered from step")
    run.stop()


def test_a_request_whose_change_ends_the_run_is_left_to_the_next(looped):
    source = HandedOver()
    run = looped(engine_of(source=source, all=ALL))
    with patch.object(run.core, "adopt", side_effect=OSError("power cut")):
        request = run.requests.ask(f"CREATE QUERY more AS {ALL}")
        with pytest.raises(OSError, match="power cut"):
            run.loop.wait(SECONDS)
    run.engine.run = None
    assert run.requests.waiting() == [request.id]
    again = looped(engine_of(run.store, source, all=ALL, more=ALL))
    assert again.requests.wait(request, SECONDS).text == "query 'more' is answered from step 0 on"
    again.stop()


def test_jobs_of_a_batch_belong_to_it_and_those_between_batches_to_none(looped, monkeypatch):
    monkeypatch.setattr(loop_module, "QUIET_SECONDS", 1000.0)
    run = looped()
    marks, suspended = run.batches.marks, run.engine.catalog.registry.find("all")
    for number, act in enumerate(
        (
            lambda: run.advance("a", 1),
            lambda: run.engine.query(ALL, name="more"),
            lambda: run.loop.ask(ResumeAsked(suspended)),
        )
    ):
        run.fed(a=[row(9 + number, number)])
        assert marks[-1] == number
        act()
        assert marks[-1] is None
    run.fed(a=[row(19, 3)])
    monkeypatch.setattr(loop_module, "QUIET_SECONDS", 0.0)
    until(lambda: marks[-1] is None)
    run.stop()
    assert [mark for mark in marks if mark is not None] == [0, 1, 2, 3]
