"""A script that is run again on the state that it has made: what it still has to do."""

from __future__ import annotations

import warnings

import pytest

from penstock import Engine
from penstock.cli.rerun import again
from penstock.cli.script import load, register
from penstock.sql import parse_script
from penstock.state.registry import QueryRecord, Registry, StreamRecord

STREAM = (
    "CREATE STREAM a (timestamp TIMESTAMP, value BIGINT,"
    " WATERMARK FOR timestamp AS timestamp - INTERVAL {} MINUTE) USING rate"
)


def left(script, *queries, streams=()):
    """What is left to do of a script: the statements by their numbers, those that stand for others by their SELECT."""
    registry = Registry(1, 9, queries=queries)
    for stream in streams:
        registry = registry.with_stream(StreamRecord(parse_script(stream)[0].stream))
    statements = parse_script(script)
    instead = again(statements, registry)
    found = [instead.get(index, index) for index in range(len(statements))]
    return [one if isinstance(one, int) else one.select for one in found if one is not None]


def known(sql, **more):
    return QueryRecord(1, "q", sql, **more)


CREATE, ALTER, REPLACE, DROP = (
    "CREATE QUERY q AS SELECT 1;",
    "ALTER QUERY q AS SELECT 2;",
    "CREATE OR REPLACE QUERY q AS SELECT 3;",
    "DROP QUERY q;",
)


def test_on_a_new_state_everything_is_done_in_order():
    assert left(CREATE + ALTER + DROP + CREATE) == [0, 1, 2, 3]


@pytest.mark.parametrize("registered", ["SELECT 1", "SELECT 2", "SELECT 9"])
def test_a_query_that_is_changed_is_compared_as_the_script_leaves_it(registered):
    assert left(CREATE + ALTER, known(registered)) == ["SELECT 2"]
    assert left(CREATE + REPLACE + ALTER, known(registered)) == ["SELECT 2"]
    assert left(CREATE + ALTER + REPLACE, known(registered)) == ["SELECT 3"]


def test_a_change_keeps_what_it_does_not_say():
    text = "CREATE QUERY q ON ERROR STOP RETAIN 1 DAY AS SELECT 1 INTO 'out'; ALTER QUERY q FROM STATE AS SELECT 2"
    query = again(parse_script(text), Registry(queries=(known("SELECT 1"),)))[1]
    assert (query.select, query.on_error, query.retain, query.into) == ("SELECT 2", "stop", 86_400_000_000, "out")
    assert (query.start, query.replace) == ("state", True)


def test_a_query_that_is_only_created_replaces_nothing():
    assert left(CREATE, known("SELECT 9")) == [0]  # and is refused
    assert not again(parse_script(CREATE + CREATE), Registry(queries=(known("SELECT 9"),)))[1].replace


def test_what_the_script_has_dropped_and_created_anew_goes_on():
    script = CREATE + DROP + "CREATE QUERY q AS SELECT 4 ORDER BY result_time;"
    assert left(script, known("SELECT 4 ORDER BY result_time", ordered=True)) == []
    assert left(script, known("SELECT 1")) == [1, 2]  # the script had no DROP when it was run before
    assert left(script, known("SELECT 4 ORDER BY result_time", ordered=True, into="out")) == [1, 2]


def test_a_drop_ends_what_is_registered():
    assert left(CREATE + ALTER + DROP, known("SELECT 2")) == [2]
    assert left(DROP + CREATE, known("SELECT 1")) == [0, 1]  # a query that starts over with each run


def test_a_stream_that_was_dropped_and_declared_anew_goes_on():
    script = f"{STREAM.format(1)}; DROP STREAM a; {STREAM.format(2)}"
    assert left(script, streams=[STREAM.format(2)]) == [2]
    assert left(script, streams=[STREAM.format(1)]) == [0, 1, 2]


def test_a_stream_is_declared_as_the_changes_behind_it_leave_it():
    script = f"{STREAM.format(1)}; ALTER STREAM a SET DELAY 2 MINUTES; ALTER STREAM a SET DELAY 3 MINUTES"
    for registered in (Registry(), Registry().with_stream(StreamRecord(parse_script(STREAM.format(9))[0].stream))):
        found = again(parse_script(script), registry=registered)
        assert (found[0].stream, found[0].altered) == (parse_script(STREAM.format(3))[0].stream, True)
        assert (found[1], found[2]) == (None, None)
    assert again(parse_script("ALTER STREAM a SET DELAY 2 MINUTES"), Registry()) == {}  # of another script's stream


def test_a_stream_that_was_altered_dropped_and_declared_anew_goes_on():
    script = (
        f"{STREAM.format(1)}; ALTER STREAM a SET DELAY 5 MINUTES; DROP STREAM a; {STREAM.format(2)}; ALTER "
        "STREAM a SET DELAY 7 MINUTES"
    )
    known = Registry().with_stream(StreamRecord(parse_script(STREAM.format(7))[0].stream))
    found = again(parse_script(script), known)
    assert found[3].stream.delay == 7 * 60_000_000
    assert [found[n] for n in (0, 1, 2, 4)] == [None] * 4


@pytest.mark.spark
def test_a_script_that_changes_its_queries_can_be_run_again(spark, tmp_path, capsys):
    path = tmp_path / "app.sql"
    path.write_text(f"""{STREAM.format(1)};
        CREATE QUERY q ON ERROR STOP AS SELECT value, result_time FROM a INTO '{tmp_path / "out"}';
        CREATE QUERY above AS SELECT value + 1 AS n FROM q;
        ALTER QUERY q AS SELECT value, result_time FROM a WHERE value > 3;
        CREATE QUERY p AS SELECT value FROM a;
        CREATE OR REPLACE QUERY p AS SELECT value AS v, timestamp FROM a;
        CREATE QUERY gone AS SELECT value FROM a;
        DROP QUERY gone PURGE;
        DROP QUERY older;
    """)
    found = []
    for _ in range(2):
        engine = Engine(spark, tmp_path / "state")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert list(register(engine, load(path))) == []
        engine.catalog.commit(engine.manifest())
        found.append((engine.catalog.registry.live(), capsys.readouterr().err.splitlines()))
    (first, told), (second, again_told) = found
    assert first == second
    assert {q.name: (q.sql, q.on_error) for q in second} == {
        "q": ("SELECT value, result_time FROM a WHERE value > 3", "stop"),
        "above": ("SELECT value + 1 AS n FROM q", "skip"),
        "p": ("SELECT value AS v, timestamp FROM a", "skip"),
    }
    assert told[0].startswith(f"{path}:6: warning: query 'p' has other columns from now on")
    assert again_told == [f"{path}:9: warning: there is no query 'older' to drop; known: above, p, q"]


def test_a_sink_with_a_secret_is_declared_again_by_the_script_that_has_it():
    into = " INTO jdbc OPTIONS (dbtable 't', password '{}');"
    script = CREATE + DROP + CREATE.rstrip(";") + into.format("changed")
    registered = parse_script(CREATE.rstrip(";") + into.format("hunter2"))[0].into.stored
    assert left(script, known("SELECT 1", into=registered)) == ["SELECT 1"]


def test_a_stream_is_the_same_with_another_secret():
    text = STREAM.format(1) + " OPTIONS (token '{}')"
    script = "DROP STREAM a;" + text.format("changed")
    record = parse_script(text.format("hunter2"))[0].stream.stored
    registry = Registry(1, 9).with_stream(StreamRecord(record))
    assert again(parse_script(script), registry) == {0: None}
