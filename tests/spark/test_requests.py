"""Requests from other processes: executed between two steps, answered, and harmless whatever they ask and who dies."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from penstock.catalog.requests import Answer, RequestLog
from penstock.requests import Requests
from penstock.step.happened import RequestFound, StopAsked
from penstock.step.inbox import Inbox
from penstock.step.loop import Loop
from penstock.storage.local import LocalStore
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, wait_until
from tests.spark.test_online import JOIN, NARROW, STREAMS, WIDE, Live, reference, rows_at


@pytest.fixture
def live(spark, tmp_path):
    """A running engine on `state`, with its streams and queries."""
    runs = []

    def start(queries):
        replay = Replay(tmp_path / "source", *STREAMS)
        runs.append(Live(replay, replay.engine(spark, tmp_path / "state", queries)))
        return runs[-1]

    yield start
    for one in runs:
        if one.run.active:
            one.run.stop()


@pytest.fixture
def penstock(tmp_path):
    """Runs `penstock query ..` in a process of its own: exit code, output, errors."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "query", *arguments, "--state", "state"],
            capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.spark
def test_another_process_adds_and_drops_queries_of_a_running_engine(live, penstock, tmp_path):
    one = live({"wide": WIDE})
    for number in (0, 1):
        one.feed(**rows_at(number))
    code, out, err = penstock("add", "narrow", NARROW, "--into", "out", "--timeout", "100s")
    since = one.engine.catalog.live("narrow").since
    assert (code, out, err) == (0, f"query 'narrow' is answered from step {since} on\n", "")
    for number in (2, 3):
        one.feed(**rows_at(number))
    assert one.answer("narrow") == reference(NARROW, (2, 3))
    assert one.answer("wide") == reference(WIDE, range(4))
    wait_until(lambda: list((tmp_path / "out").glob("part-*")))

    code, out, err = penstock("list", "--json")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["wide", "narrow"]
    assert json.loads(out.splitlines()[1])["since"] == since

    assert penstock("drop", "narrow", "--timeout", "100s") == (0, "query 'narrow' is dropped\n", "")
    one.feed(**rows_at(4))
    assert one.answer("narrow") == reference(NARROW, (2, 3))
    assert one.answer("wide") == reference(WIDE, range(5))
    assert not list((tmp_path / "state/requests").iterdir())


@pytest.mark.spark
def test_a_bad_request_is_answered_with_its_error_and_harms_nobody(live, penstock):
    one = live({"wide": WIDE})
    one.feed(**rows_at(0))
    version = one.engine.network().version
    code, out, err = penstock("add", "q", "SELECT a.vv FROM a [RANGE 1 SECOND] AS a", "--timeout", "100s")
    assert (code, out) == (1, "")
    message, line, caret, hint = err.splitlines()
    assert message.startswith("state: error: ")
    assert message.endswith("(line 1, column 26)")
    assert line[len(caret) - 1 :].startswith("a.vv")
    assert hint == "hint: did you mean v?"

    log = RequestLog(one.engine.store)
    for statement, error in (
        ("DROP QUERY wid", "there is no query 'wid'; did you mean wide?"),
        (f"CREATE QUERY wide AS {NARROW}", "query 'wide' is registered with another definition"),
        ("CREATE QUERY q AS SELECT a.ts + a.v AS x FROM a", "query 'q': [DATATYPE_MISMATCH"),
    ):
        answer = log.wait(log.ask(statement), 100)
        assert answer is not None
        assert (answer.ok, error in answer.text) == (False, True), answer.text
    log.store.put_if_absent("requests/0000000000001-x.request", b"damaged")
    wait_until(lambda: not log.waiting())

    assert one.engine.network().version == version
    one.feed(**rows_at(1))
    assert one.answer("wide") == reference(WIDE, range(2))


@pytest.mark.spark
def test_a_request_left_while_no_engine_runs_is_taken_before_the_first_step_of_the_next(
    spark, live, penstock, tmp_path
):
    one = live({"wide": WIDE, "old": JOIN.format(2, 2)})
    one.feed(**rows_at(0))
    one.run.stop()
    assert penstock("add", "narrow", NARROW, "--from-state")[0] == 4
    assert penstock("drop", "old")[0] == 4
    assert penstock("drop", "nobody")[0] == 4
    one.replay.add(**rows_at(1))
    again = one.replay.engine(spark, tmp_path / "state")
    run = drain(again)
    assert [q["name"] for q in again.queries()] == ["wide", "narrow"]
    assert bag(rows_of(again.results("narrow"))) == reference(NARROW, (0, 1))
    assert bag(rows_of(again.results("old"))) == reference(JOIN.format(2, 2), (0,))
    assert run.status()["warnings"] == ["a request failed: there is no query 'nobody'; known: narrow, wide"]


@pytest.mark.spark
def test_a_crash_between_doing_and_answering_does_no_harm(spark, live, tmp_path):
    one = live({"wide": WIDE, "plain": JOIN.format(1, 1), "purged": JOIN.format(2, 2), "again": JOIN.format(3, 3)})
    one.feed(**rows_at(0))
    log = RequestLog(one.engine.store)
    with patch("penstock.requests.Requests.waiting", lambda _: []):  # the engine looks away
        asked = [
            log.ask(f"CREATE QUERY narrow FROM STATE AS {NARROW}"),
            log.ask("DROP QUERY plain"),
            log.ask("DROP QUERY purged PURGE"),
            log.ask("DROP QUERY again"),
            log.ask(f"CREATE OR REPLACE QUERY wide AS {JOIN.format(8, 8)}"),
        ]
        taken = Requests(log, one.engine.catalog, one.engine.execute)
        said = [taken.do(request.id) for request in asked]
        assert all(answer.ok for answer in said)
        lost = log.ask("DROP QUERY plain")  # asked after the first: an error, also when it is taken again
        assert not taken.do(lost.id).ok
        one.feed(**rows_at(1))
        one.run.stop()
    version = one.engine.network().version

    again = one.replay.engine(spark, tmp_path / "state", {"again": JOIN.format(4, 4)})
    one.replay.add(**rows_at(2))
    drain(again)
    assert [log.wait(request, 0) for request in asked] == said
    assert not log.wait(lost, 0).ok
    assert [q["name"] for q in again.queries()] == ["narrow", "wide", "again"]  # the new one was not asked to go
    assert again.network().version == version + 1
    assert bag(rows_of(again.results("narrow"))) == reference(NARROW, range(3))
    assert bag(rows_of(again.results("again"))) == reference(JOIN.format(4, 4), (2,))
    assert not log.store.names("requests")


# -- without Spark ------------------------------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path):
    """As much of a run as a refused request sees."""
    store = LocalStore(str(tmp_path), durable=False)
    core = Mock(store=store)
    core.stepper.warnings = []
    requests = Requests(RequestLog(store), SimpleNamespace(registry=None), lambda statement: None)
    return Loop(core, Mock(), requests, Inbox())


def looked(loop):
    """A look around, and what it finds."""
    for event in loop._next():
        if isinstance(event, RequestFound):
            loop._happen(event)


def test_a_run_that_stops_leaves_requests_to_the_next(loop):
    log = loop.requests.log
    request = log.ask("DROP QUERY q")
    loop.inbox.put(StopAsked())
    loop._look_at = time.monotonic() + 60
    loop.batches.failure.return_value = None
    loop.run()
    assert log.waiting() == [request.id]


def test_whatever_happens_is_the_answer(loop):
    log = loop.requests.log
    request = log.ask("DROP QUERY q")
    text = "AttributeError: 'NoneType' object has no attribute 'find'"
    loop.batches.gone.return_value = None
    looked(loop)
    assert loop.core.stepper.warnings == [f"a request failed: {text}"]
    assert log.wait(request, 0) == Answer(ok=False, text=text)


def test_an_answer_that_cannot_be_written_is_given_later(loop):
    log = loop.requests.log
    request = log.ask("DROP QUERY q")
    loop.batches.gone.return_value = None
    with patch.object(LocalStore, "put_if_absent", side_effect=OSError("no space left")):
        looked(loop)
    assert loop.core.stepper.warnings == []
    assert log.wait(request, 0) is None
    looked(loop)
    assert log.wait(request, 0) is not None
