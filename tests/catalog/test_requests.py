import os
import threading
import time
from pathlib import Path

import pytest

from penstock.catalog.requests import KEPT_SECONDS, Answer, RequestLog, change_of
from penstock.errors import PenstockError, SqlError, StateError
from penstock.sql import AlterQuery, CreateQuery, DropQuery, ResumeQuery
from penstock.storage.local import LocalStore

DONE = Answer(ok=True, text="query 'é' is dropped")
CREATE = "CREATE QUERY q AS SELECT a.v FROM a"


@pytest.fixture
def log(tmp_path):
    return RequestLog(LocalStore(str(tmp_path / "state"), durable=False))


def files(log):
    return [name.partition(".")[2] for name in log.store.names("requests")]


def aged(log, seconds):
    """Let all files be those of requests that were asked for so long ago."""
    folder = Path(log.store.path("requests"))
    for path in folder.iterdir():
        number, dash, rest = path.name.partition("-")
        path.rename(folder / f"{int(number) - int(seconds * 1000):013d}{dash}{rest}")


# -- what may be asked for ----------------------------------------------------------------------------------------


def test_a_request_changes_queries():
    assert isinstance(change_of(CREATE), CreateQuery)
    assert change_of("CREATE OR REPLACE QUERY q AS SELECT a.v FROM a;").replace
    assert isinstance(change_of("ALTER QUERY q AS SELECT a.v FROM a"), AlterQuery)
    assert change_of("ALTER QUERY q RESUME") == ResumeQuery("q")
    assert change_of("DROP QUERY q PURGE") == DropQuery("q", purge=True)


@pytest.mark.parametrize(
    "statement",
    [
        "", "SHOW QUERIES", "EXPLAIN q", "DROP QUERY q; DROP QUERY r", f"{CREATE}; SHOW STREAMS",
        "CREATE STREAM s (at TIMESTAMP, WATERMARK FOR at AS at) USING rate",
    ],
)  # fmt: skip
def test_a_request_does_nothing_else(log, statement):
    with pytest.raises(PenstockError, match="a request is one CREATE"):
        log.ask(statement)
    assert files(log) == []


def test_a_request_that_cannot_be_read_is_not_left(log):
    with pytest.raises(SqlError, match=r"line 1, column 19"):
        log.ask("CREATE QUERY q AS SELEC a.v FROM a")
    assert files(log) == []


# -- asking and answering -----------------------------------------------------------------------------------------


def test_a_request_comes_back_as_it_was_and_in_the_order_of_asking(log):
    asked = []
    for name in ("é", "b", "a"):
        asked.append(log.ask(f"DROP QUERY `{name}`"))
        time.sleep(0.002)
    assert log.waiting() == [request.id for request in asked]
    assert [log.read(key) for key in log.waiting()] == asked
    assert len({request.id for request in asked}) == 3


def test_without_requests_there_is_nothing_and_no_folder_is_made(log, tmp_path):
    assert log.waiting() == []
    assert not (tmp_path / "state").exists()


def test_an_answer_is_read_once_and_nothing_stays(log):
    request = log.ask("DROP QUERY `é`")
    log.take(request.id, 4)
    log.answer(request.id, DONE)
    assert log.waiting() == []
    assert files(log) == ["answer"]
    assert log.wait(request, 0) == DONE
    assert files(log) == []
    assert log.wait(request, 0) is None


def test_the_asker_waits_for_the_answer(log):
    request = log.ask("DROP QUERY q")
    late = threading.Timer(0.15, log.answer, (request.id, Answer(ok=False, text="no")))
    late.start()
    assert log.wait(request, 10) == Answer(ok=False, text="no")
    late.join()


def test_without_an_answer_the_request_goes_on_waiting(log):
    request = log.ask("DROP QUERY q")
    assert log.wait(request, 0.01) is None
    assert log.waiting() == [request.id]


def test_the_first_answer_stands(log):
    request = log.ask("DROP QUERY q")
    log.answer(request.id, DONE)
    log.answer(request.id, Answer(ok=False, text="other"))
    assert log.wait(request, 0) == DONE


# -- crashes ------------------------------------------------------------------------------------------------------


def test_a_request_that_is_taken_again_aims_at_the_same_query(log):
    known, new = log.ask("DROP QUERY q"), log.ask(CREATE)
    assert log.take(known.id, 4) == 4
    assert log.take(known.id, None) == 4
    assert log.take(new.id, None) is None
    assert log.take(new.id, 5) is None


def test_an_answered_request_is_never_taken_again(log):
    request = log.ask("DROP QUERY q")
    text = log.store.read(f"requests/{request.id}.request")
    log.answer(request.id, DONE)
    log.store.write(f"requests/{request.id}.request", text)  # the engine died before it took it away
    assert log.waiting() == []
    assert files(log) == ["answer"]
    log.store.write(f"requests/{request.id}.request", text)  # the asker reads before the engine takes it away
    assert log.wait(request, 0) == DONE
    assert files(log) == []


def test_a_half_written_request_is_not_seen(log):
    log.store.write("requests/0000000000001-x.request.abc.tmp", b"half")
    assert log.waiting() == []
    assert files(log) == []  # its writer has long been gone


def test_a_damaged_request_is_named(log):
    request = log.ask("DROP QUERY q")
    path = Path(log.store.path(f"requests/{request.id}.request"))
    path.write_bytes(path.read_bytes().replace(b"DROP", b"DRUP"))
    assert log.waiting() == [request.id]
    with pytest.raises(StateError, match=rf"{request.id}\.request is damaged"):
        log.read(request.id)


# -- age ----------------------------------------------------------------------------------------------------------


def test_an_answer_that_nobody_reads_goes_after_a_day(log):
    log.answer(log.ask("DROP QUERY q").id, DONE)
    aged(log, KEPT_SECONDS - 60)
    log.waiting()
    assert files(log) == ["answer"]
    aged(log, 120)
    log.waiting()
    assert files(log) == []


def test_a_request_waits_for_as_long_as_it_takes(log):
    log.take(log.ask("DROP QUERY q").id, 4)
    aged(log, 30 * KEPT_SECONDS)
    log.store.write("requests/readme.txt", b"of somebody else")
    (key,) = log.waiting()
    assert files(log) == ["request", "taken", "txt"]
    assert log.take(key, None) == 4


# -- who is there -------------------------------------------------------------------------------------------------


def test_an_engine_is_seen_by_its_lock(tmp_path):
    store = LocalStore(str(tmp_path / "state"))
    assert store.owner() is None
    assert not (tmp_path / "state").exists()
    with store.owner_lock():
        assert store.owner() == f"process {os.getpid()}"
        owner = Path(store.path("owner.lock")).read_text()
    assert store.owner() is None
    assert owner == f"process {os.getpid()}"


def test_a_request_holds_no_secret(log):
    create = "CREATE QUERY q AS SELECT a.v FROM a INTO jdbc OPTIONS (dbtable 't', password '{}')"
    with pytest.raises(
        PenstockError,
        match=r"option 'password' of the sink is a secret, and a request lies in a file .* refer to it as",
    ):
        log.ask(create.format("hunter2"))
    assert files(log) == []
    log.ask(create.format("${ENV:PW}"))
