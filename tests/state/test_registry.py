from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.model import Column, Reader, Sink, Stream
from penstock.state.registry import QueryRecord, Registry, RegistryLog, StreamRecord, _encode
from penstock.storage.local import LocalStore
from penstock.storage.seal import seal

A = Stream("a", (Column("at", "timestamp"), Column("k", "decimal(10,2)")), "at", 5, late="drop", idle=7, sequence="k")
B = Stream("b", (Column("t", "int"),), "t", 0, bad="error", source=Reader("kafka", (("topic", "x"), ("p", "1"))))
ONE = QueryRecord(
    4,
    "one",
    "SELECT é FROM a",
    on_error="stop",
    retain=9,
    into=Sink("jdbc", url="u", dbtable="t"),
    item_names=("é", "n"),
    item_types=("bigint", "string"),
    key_types=(("int", "bigint"),),
)
TWO = QueryRecord(5, "two", "SELECT 1 FROM b", into="out/folder", dropped=True)


@pytest.fixture
def log(tmp_path):
    return RegistryLog(LocalStore(str(tmp_path / "state"), durable=False))


def full(version=1):
    registry = Registry(version, settings={"spark.sql.session.timeZone": "UTC"}, bits={4: ("a x b", 3)})
    registry = registry.with_stream(StreamRecord(A)).with_stream(StreamRecord(B, 2))
    return registry.with_query(ONE).with_query(TWO)


def test_a_registry_comes_back_as_it_was(log):
    log.append(full())
    assert log.load() == full()
    assert list(log.load().streams) == ["a", "b"]


def test_an_empty_folder_is_an_empty_registry(log):
    assert log.load() == Registry()


def test_the_newest_version_is_loaded_and_older_ones_stay_readable(log):
    log.append(full(1))
    later = replace(full(2).without_query("one"), bits={})
    log.append(later)
    assert log.load() == later
    assert log.load(1) == full(1)


def test_a_version_is_written_once(log):
    log.append(full())
    with pytest.raises(StateError, match="version 1 was already written by another engine"):
        log.append(replace(full(), queries=()))
    assert log.load() == full()


def test_a_missing_version_is_named(log):
    log.append(full())
    with pytest.raises(StateError, match=r"version 7 is missing.*00000007\.json"):
        log.load(7)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"version": 1, "next_id": 1, "streams": [{}], "queries": []}'])
def test_a_damaged_version_is_named(log, text):
    log.append(full())
    Path(log.store.path("registry/00000001.json")).write_text(text)
    with pytest.raises(StateError, match=r"00000001\.json is damaged.*restore it from a backup"):
        log.load()


def test_ids_are_never_given_out_again():
    assert full().next_id == 6
    assert full().without_query("one").next_id == 6


def test_a_dropped_query_is_found_only_on_demand():
    registry = full().with_query(replace(TWO, id=8, dropped=False)).without_query("one")
    assert registry.find("one") is None
    assert registry.find("one", dropped=True).id == 4
    assert registry.find("two").id == 8
    assert [q.name for q in registry.live()] == ["two"]


def test_declarations_are_compared_by_what_the_user_wrote():
    assert ONE.same_declaration(replace(ONE, id=9, item_names=(), sql=" SELECT  é\nFROM a "))
    for other in ({"sql": "SELECT e FROM a"}, {"on_error": "skip"}, {"retain": None}, {"into": None}):
        assert not ONE.same_declaration(replace(ONE, **other))


def test_a_stream_declared_anew_is_another_source():
    assert StreamRecord(A).source_name != StreamRecord(A, 1).source_name


def test_no_version_that_is_written_holds_a_secret(log):
    sink = Sink("jdbc", url="jdbc:x://u:hunter2@db", password="hunter2")
    stream = replace(B, source=Reader("kafka", (("sasl.jaas.config", "hunter2"),)))
    log.append(full().with_query(replace(ONE, id=6, into=sink)).with_stream(StreamRecord(stream)))
    found = log.load()
    assert found.queries[-1].into == sink.stored
    assert found.streams["b"].stream == stream.stored
    changed = Sink(sink.format, **{**dict(sink.options), "password": "${ENV:PW}"})
    assert found.queries[-1].same_declaration(replace(ONE, id=6, into=changed))
    assert "hunter2" not in Path(log.store.path("registry/00000001.json")).read_text(encoding="utf-8")


def test_an_unknown_field_is_named_and_a_missing_one_has_its_default(log):
    body = _encode(full())
    del body["queries"][0]["dropped"]
    log.store.put_if_absent("registry/00000001.json", seal(body))
    assert log.load() == full()
    body["queries"][0]["kept"] = True
    log.store.put_if_absent("registry/00000002.json", seal({**body, "version": 2}))
    with pytest.raises(
        StateError, match=r"00000002\.json says what this version of Penstock does not know \(in queries"
    ):
        log.load()
