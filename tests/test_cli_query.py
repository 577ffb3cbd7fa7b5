"""`penstock query`: what it says and leaves behind when no engine runs, or one that is played by the test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from penstock.catalog.requests import Answer, RequestLog, change_of
from penstock.cli import main as cli
from penstock.model import Column, Sink, Stream
from penstock.sql import CreateQuery, DropQuery, ResumeQuery
from penstock.state.manifest import Entry, ManifestLog
from penstock.state.registry import QueryRecord, Registry, RegistryLog, StreamRecord
from penstock.storage.local import LocalStore

STREAM = Stream("a", (Column("at", "timestamp"), Column("v", "int")), "at", 0)
QUERIES = (
    QueryRecord(1, "one", "SELECT a.v\n  FROM a", into="/data/out", since=0),
    QueryRecord(2, "gone", "SELECT a.v FROM a", dropped=True, since=0),
    QueryRecord(
        3, "zwö [b]", "SELECT a.at FROM a", into=Sink("jdbc", password="hunter2", dbtable="t"), start="state", since=7
    ),
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The state directory `state` in an empty current folder, in which an engine has run."""
    monkeypatch.chdir(tmp_path)
    store = LocalStore(str(tmp_path / "state"), durable=False)
    RegistryLog(store).append(Registry(1, 4, queries=QUERIES).with_stream(StreamRecord(STREAM)))
    return store


def asked(store):
    log = RequestLog(store)
    return [log.read(key).statement for key in log.waiting()]


@pytest.fixture
def engine(store):
    """Plays an engine that answers the next request."""
    threads = []

    def play(answer):
        log = RequestLog(store)

        def run():
            with store.owner_lock():
                there.set()
                deadline = time.monotonic() + 60
                while not (keys := log.waiting()) and time.monotonic() < deadline:
                    time.sleep(0.01)
                log.answer(keys[0], answer)

        there = threading.Event()
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        there.wait()

    yield play
    for thread in threads:
        thread.join()


# -- list ---------------------------------------------------------------------------------------------------------


def test_list_shows_the_registry(store, capsys):
    assert cli.main(["query", "list", "--state", "state"]) == 0
    head, _, *rows = [" ".join(line.split()) for line in capsys.readouterr().out.strip().splitlines()]
    assert head == "query since step start sink SQL"
    assert rows == ["one 0 now /data/out SELECT a.v FROM a", f"zwö [b] 7 state {QUERIES[2].into} SELECT a.at FROM a"]


def test_list_as_json_lines(store, capsys):
    assert cli.main(["query", "list", "--state", "state", "--json"]) == 0
    out = capsys.readouterr().out
    assert [json.loads(line) for line in out.splitlines()] == [
        {"name": "one", "since": 0, "start": "now", "into": "/data/out", "sql": "SELECT a.v\n  FROM a"},
        {"name": "zwö [b]", "since": 7, "start": "state", "into": str(QUERIES[2].into), "sql": "SELECT a.at FROM a"},
    ]
    assert "zwö" in out
    assert str(QUERIES[2].into).startswith("jdbc t #")
    assert "hunter2" not in out + repr(QUERIES[2])


def test_list_without_queries(store, capsys):
    RegistryLog(store).append(Registry(2))
    assert cli.main(["query", "list", "--state", "state"]) == 0
    assert capsys.readouterr().out == "state: no query is registered\n"
    assert cli.main(["query", "list", "--state", "state", "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_no_command_imports_spark(store):
    program = (
        "import sys\nfrom penstock.cli import main as cli\ncli.main(sys.argv[1:])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"
    )
    for arguments in (["list"], ["drop", "one"], ["resume", "one"], ["add", "q", "SELECT a.v FROM a"]):
        done = subprocess.run(
            [sys.executable, "-c", program, "query", *arguments, "--state", "state"],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]"


# -- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [["list"], ["add", "q", "SELECT a.v FROM a"], ["drop", "q"], ["resume", "q"]])
def test_without_a_state_nothing_is_left_behind(store, tmp_path, capsys, action):
    (tmp_path / "other").mkdir()
    for folder in ("nowhere", "other"):
        assert cli.main(["query", *action, "--state", folder]) == 1
        assert capsys.readouterr().err.startswith(f"{folder}: error: there is no state of Penstock; give the directory")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["00000001.json", "other", "registry", "state"]


def test_what_cannot_be_read_is_refused_at_once_with_its_place(store, capsys):
    assert cli.main(["query", "add", "q", "SELEC a.v FROM a", "--state", "state"]) == 1
    place, line, caret = capsys.readouterr().err.splitlines()
    assert place == "state: error: Expected SELECT (line 1, column 19)"
    assert line[len(caret) - 1 :].startswith("SELEC a.v")
    assert asked(store) == []


@pytest.mark.parametrize("select", ["SELECT a.v FROM a; DROP QUERY one", "SELECT a.v FROM a; SHOW QUERIES"])
def test_a_query_brings_no_second_statement(store, capsys, select):
    assert cli.main(["query", "add", "q", select, "--state", "state"]) == 1
    assert "error: a request is one CREATE" in capsys.readouterr().err
    assert asked(store) == []


def test_ended_streams_take_no_request(store, capsys):
    ManifestLog(store).append(Entry(step=0, version=1, final=True))
    assert cli.main(["query", "drop", "one", "--state", "state"]) == 1
    assert "state: error: its streams have ended (final)" in capsys.readouterr().err
    assert asked(store) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query"], "required: ACTION"),
        (["query", "add", "q", "--state", "s"], "required: SELECT"),
        (["query", "add", "q", "SELECT 1"], "required: --state"),
        (["query", "drop", "q", "--state", "s", "--timeout", "soon"], "cannot read 'soon' as a time"),
        (["query", "alter"], "invalid choice: 'alter'"),
    ],
)
def test_wrong_usage_is_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys):
    for arguments in (["query"], ["query", "add"], ["query", "drop"]):
        with pytest.raises(SystemExit) as left:
            cli.main([*arguments, "--help"])
        assert left.value.code == 0
        assert "4 the request waits" in capsys.readouterr().out


# -- without an engine --------------------------------------------------------------------------------------------


def test_without_an_engine_the_request_waits_and_the_exit_code_says_so(store, capsys):
    assert cli.main(["query", "add", "q", " SELECT a.v FROM a;\n", "--state", "state"]) == 4
    assert capsys.readouterr() == ("", "state: no engine runs; the request waits, and is taken at the next start\n")
    assert cli.main(["query", "drop", "one", "--state", "state", "--purge"]) == 4
    assert asked(store) == ["CREATE QUERY q AS SELECT a.v FROM a", "DROP QUERY one PURGE"]


def test_all_options_are_in_the_statement(store, tmp_path):
    place = "it's \\ here"
    arguments = ["--from-state", "--replace", "--into", place]
    select = "SELECT a.v FROM a -- all of it"
    assert cli.main(["query", "add", "my `query`", select, "--state", "state", *arguments]) == 4
    assert cli.main(["query", "drop", "my `query`", "--state", "state"]) == 4
    assert cli.main(["query", "resume", "my `query`", "--state", "state"]) == 4
    add, drop, resume = (change_of(text) for text in asked(store))
    assert resume == ResumeQuery("my `query`")
    wanted = CreateQuery("my `query`", "SELECT a.v FROM a", into=str(tmp_path / place), replace=True, start="state")
    assert replace(add, line=1, column=1) == wanted
    assert drop == DropQuery("my `query`")


# -- with an engine -----------------------------------------------------------------------------------------------


def test_the_answer_is_printed(store, engine, capsys):
    engine(Answer(ok=True, text="query 'one' is dropped"))
    assert cli.main(["query", "drop", "one", "--state", "state"]) == 0
    assert capsys.readouterr() == ("query 'one' is dropped\n", "")


def test_a_refusal_is_1(store, engine, capsys):
    engine(Answer(ok=False, text="there is no query 'on'; did you mean one?"))
    assert cli.main(["query", "drop", "on", "--state", "state"]) == 1
    assert capsys.readouterr() == ("", "state: error: there is no query 'on'; did you mean one?\n")


def test_an_engine_that_does_not_answer_in_time(store, capsys):
    with store.owner_lock():
        assert cli.main(["query", "drop", "one", "--state", "state", "--timeout", "10ms"]) == 4
    err = capsys.readouterr().err
    assert err == "state: no answer within 0.01 seconds; the request waits, and is taken after the running step\n"
    assert asked(store) == ["DROP QUERY one"]
