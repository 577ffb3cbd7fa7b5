"""A statement is parsed once between its text and the network; registering one costs the same beside others."""

import contextlib
import gc
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from penstock.catalog import check_query, compiled
from penstock.catalog.catalog import Catalog
from penstock.catalog.check_query import prepare, standing_alone
from penstock.catalog.choices import Choices
from penstock.catalog.terms_analysis import TermsAnalysis
from penstock.cli import check
from penstock.cli.script import load
from penstock.cli.script import register as register_script
from penstock.errors import RegistrationError, SqlError
from penstock.spark.registration import Registration
from penstock.sql import AlterQuery, CreateQuery, CreateStream, emit_length, parse_query, parse_script
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord
from penstock.storage.memory import MemoryStore

STREAMS = """
CREATE STREAM a (ts TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR ts AS ts) USING rate;
CREATE STREAM b (ts TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR ts AS ts) USING rate;
"""
JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 4 SECONDS], b [RANGE 6 SECONDS] WHERE a.k = b.k AND a.v > {}"
JOINED = (
    "SELECT a.k, count(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS], b [RANGE 6 SECONDS SLIDE 2 SECONDS] "
    "WHERE a.k = b.k GROUP BY a.k"
)
UNION = (
    "SELECT u.v, x.v AS w FROM (a UNION ALL b) [RANGE 4 SECONDS] AS u, (b UNION ALL a) [RANGE 2 SECONDS] AS x "
    "WHERE u.k = x.k"
)
COUNTS = "SELECT k, count(*) AS n, window_end FROM a [TUMBLING 2 SECONDS] GROUP BY k"


def catalog(store=None):
    found = Catalog(store or MemoryStore(), TermsAnalysis(), Choices())
    for statement in parse_script(STREAMS):
        assert isinstance(statement, CreateStream)
        found.add_stream(statement.stream)
    return found


def register(found, name, sql, *, instead=False, **options):
    record, made = prepare(found, QueryRecord(0, name, sql, **options), None)
    found.add(record, made, None, instead=instead)


@contextmanager
def parses():
    """The texts that were parsed inside."""
    texts = []

    def counting(text, *args, **named):
        texts.append(text)
        return parse_query(text, *args, **named)

    with contextlib.ExitStack() as stack:
        for module in (check, check_query, compiled):
            stack.enter_context(patch.object(module, "parse_query", counting))
        yield texts


DECLARED = {
    "join": JOIN.format(1),
    "joined": JOINED,
    "union": UNION,
    "counts": COUNTS,
    "above": "SELECT max(n) AS most FROM counts [TUMBLING 10 SECONDS ON window_end]",
}


def test_each_statement_is_parsed_once_until_it_is_answered():
    found = catalog()
    with parses() as texts:
        for name, sql in DECLARED.items():
            register(found, name, sql)
        found.commit(Manifest())
        found.network()
        for record in found.registry.queries:
            found.compiled(record)
    assert texts == list(DECLARED.values())


def test_what_takes_the_place_of_a_query_is_parsed_once_and_so_is_what_is_only_explained():
    found = catalog()
    for name, sql in DECLARED.items():
        register(found, name, sql)
    found.commit(Manifest())
    with parses() as texts:
        for name, sql in DECLARED.items():
            register(found, name, sql, instead=True)  # as it is
        register(found, "join", JOIN.format(2), instead=True)
        register(found, "joined", JOINED.replace("count(*)", "max(a.v)"), instead=True)
        register(found, "counts", COUNTS.replace("count(*)", "sum(v)"), instead=True)  # it has a reader
        found.commit(Manifest())
        standing_alone(found, QueryRecord(0, "(this query)", JOINED))
    assert len(texts) == len(DECLARED) + 4


def test_after_a_restart_each_statement_is_parsed_once_whatever_answers_it():
    store = MemoryStore()
    first = catalog(store)
    for name, sql in DECLARED.items():
        register(first, name, sql)
    first.commit(Manifest())
    again = catalog(store)
    assert len(again.registry.queries) > len(DECLARED)
    with parses() as texts:
        again.network()
        for record in reversed(again.registry.queries):
            again.compiled(record)
    assert sorted(texts) == sorted(DECLARED.values())
    assert {q.id: again.compiled(q) for q in again.registry.queries} == {
        q.id: first.compiled(q) for q in first.registry.queries
    }


def test_a_script_is_parsed_once_for_its_check_and_its_registration(tmp_path):
    path = tmp_path / "script.sql"
    statements = [
        ("CREATE QUERY join", JOIN.format(1)),
        ("CREATE QUERY counts", COUNTS),
        ("CREATE QUERY union", UNION),
        ("CREATE QUERY low", "SELECT k, ts FROM b"),
        ("CREATE QUERY over", "SELECT k FROM low [RANGE 4 SECONDS]"),
        ("CREATE QUERY computed", "SELECT k, n + 1 AS more, window_end FROM counts [RANGE 4 SECONDS ON window_end]"),
        ("CREATE QUERY twice", "SELECT sum(more) AS s FROM computed [TUMBLING 4 SECONDS ON window_end] WHERE more > 2"),
        ("CREATE OR REPLACE QUERY join", JOIN.format(2)),
        ("ALTER QUERY join", JOIN.format(3)),
        ("CREATE QUERY other", JOIN.format(4)),
    ]
    path.write_text(STREAMS + "".join(f"{head} AS {select};\n" for head, select in statements))
    found = Catalog(MemoryStore(), TermsAnalysis(), Choices())
    registration = Registration(found, SimpleNamespace(add=None), lambda change: change())

    def execute(statement, text, parsed):
        match statement:
            case CreateStream(stream):
                found.add_stream(stream.stored)
            case CreateQuery(name, select):
                record = QueryRecord(0, name, select)
                registration.add(record, None, instead=statement.replace, at=(text, statement), parsed=parsed)
            case AlterQuery():
                record, target = registration.altered(statement)
                registration.add(record, target, instead=True, at=(text, statement), parsed=parsed)
        return []

    script = load(path)
    with parses() as texts:
        check.check_sql(script)
        list(register_script(SimpleNamespace(catalog=found, execute_statement=execute), script))
        found.commit(Manifest())
    assert sorted(texts) == sorted(select for _, select in statements)
    names = [q.name for q in found.registry.shown()]
    assert names == ["counts", "union", "low", "over", "computed", "twice", "join", "other"]


def test_a_select_is_parsed_again_where_its_names_mean_something_else():
    found = catalog()
    other = parse_script(STREAMS.replace("v BIGINT", "v INT"))
    streams = {s.stream.name: s.stream for s in other}
    query = parse_query(JOIN.format(1), streams)
    with parses() as texts:
        record, _ = prepare(
            found,
            QueryRecord(0, "q", JOIN.format(1)),
            None,
            parsed=compiled.ParsedSelect(query, compiled.meant(query, streams, {})),
        )
    assert texts == [JOIN.format(1)]
    assert record.item_types == ("bigint", "bigint")


def calls_of(number, more):
    """How many Python functions are called to register so many more queries beside those that are there."""
    found = catalog()
    for n in range(number):
        register(found, f"q{n}", JOIN.format(n))
    count = 0

    def counting(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    gc.disable()  # others may be told of its rounds, by functions
    sys.setprofile(counting)
    try:
        for n in range(number, number + more):
            register(found, f"q{n}", JOIN.format(1000 + n))
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def test_registering_a_query_is_no_more_work_the_more_there_are():
    calls_of(2, 1)  # what is made once
    assert calls_of(160, 4) == calls_of(10, 4)


def test_early_results_are_a_field_and_mean_what_the_words_mean():
    found = catalog()
    asked = f"{COUNTS} -- by key"
    register(found, "field", asked, emit=emit_length("10 seconds"))
    register(found, "words", f"{COUNTS} EMIT EARLY EVERY 10 SECONDS")
    field, words = (found.record(name) for name in ("field", "words"))
    assert field.sql == asked
    assert field.text.endswith("EMIT EARLY EVERY 10 seconds")
    assert (field.item_names, field.item_types) == (words.item_names, words.item_types)
    emits = [found.compiled(record).query.aggregation.emit for record in (field, words)]
    assert emits[0] == emits[1] is not None


@pytest.mark.parametrize(
    ("sql", "cause"),
    [(JOIN.format(1), "emit= is for aggregates"), (f"{COUNTS} EMIT EARLY EVERY 1 SECOND", "says EMIT EARLY itself")],
)
def test_early_results_are_refused_where_they_have_no_meaning(sql, cause):
    with pytest.raises(RegistrationError, match=cause):
        register(catalog(), "q", sql, emit=1)


@pytest.mark.parametrize("text", ["", "soon", "-1 second"])
def test_the_length_of_time_of_early_results_is_refused_if_it_is_none(text):
    with pytest.raises(SqlError):
        emit_length(text)


def test_a_query_that_a_script_drops_is_not_looked_at_again(tmp_path):
    path = tmp_path / "script.sql"
    path.write_text(
        f"{STREAMS} CREATE QUERY counts AS {COUNTS}; DROP QUERY counts; CREATE QUERY q AS SELECT k AS counts FROM a;"
    )
    check.check_sql(load(path))
